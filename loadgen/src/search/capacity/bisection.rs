//! The search for the load at which something ends to hold, within the range of a key.

use std::ops::RangeInclusive;

/// The gap between the highest load that is met and the lowest one that is not, as a ratio.
const NARROW: f64 = 1.02;

/// What is known so far, and what is to be tried next.
///
/// Upwards a load is doubled. Downwards the steps grow, a half, a quarter, a sixteenth, …, because low loads cost little and a
/// fleet that is idle tells the most: what misses there misses everywhere.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bisection {
    range: RangeInclusive<f64>,
    start: f64,
    /// The highest load that was met.
    pub(super) met: Option<f64>,
    /// The lowest load that was missed.
    pub(super) missed: Option<f64>,
    /// By how much the next step downwards divides.
    divisor: f64,
    /// There is nothing to be learnt beyond what was tried.
    ended: bool,
}

impl Bisection {
    pub(super) fn new(start: f64, range: RangeInclusive<f64>) -> Self {
        let start = start.clamp(*range.start(), *range.end());
        Self { range, start, met: None, missed: None, divisor: 2.0, ended: false }
    }

    /// What to try next; `None` when it is known well enough, or cannot be known better.
    pub(super) fn next(&self) -> Option<f64> {
        let (low, high) = (*self.range.start(), *self.range.end());
        match (self.met, self.missed) {
            // A load that is met above one that was missed: chance, and no gap to halve.
            (Some(met), Some(missed)) => (missed / met > NARROW).then(|| short((met * missed).sqrt())),
            _ if self.ended => None,
            (None, None) => Some(self.start),
            (Some(met), None) => (met < high).then_some((met * 2.0).min(high)),
            (None, Some(missed)) => (missed > low).then_some((missed / self.divisor).max(low)),
        }
    }

    /// What came of a load. `idle` says that the fleet had next to nothing to do.
    pub(super) fn tell(&mut self, at: f64, met: bool, idle: bool) {
        if met {
            self.met = Some(at);
            return;
        }
        if self.missed.is_some() && self.met.is_none() {
            self.divisor *= self.divisor;
        }
        self.missed = Some(at);
        self.ended |= idle;
    }

    /// A load cannot be tried: the search ends with what was tried before.
    pub(super) fn refuse(&mut self) {
        self.ended = true;
    }
}

/// A load with four digits: nobody needs more, and people have to read it.
fn short(load: f64) -> f64 {
    let scale = 10_f64.powi(3 - load.log10().floor() as i32);
    (load * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A search in which loads up to `limit` are met, and the fleet is idle up to `idle`.
    fn search(start: f64, limit: f64, idle: f64) -> (Bisection, usize) {
        let mut bisection = Bisection::new(start, 1e-3..=1e6);
        let mut tries = 0;
        while let Some(at) = bisection.next() {
            assert!((1e-3..=1e6).contains(&at), "{at} is out of range");
            bisection.tell(at, at <= limit, at <= idle);
            tries += 1;
        }
        (bisection, tries)
    }

    #[test]
    fn the_limit_is_found_from_either_side_within_two_percent() {
        for start in [1e-9, 1.0, 10.0, 37.0, 900.0, 1e9] {
            let (found, tries) = search(start, 42.0, 0.1);
            let (met, missed) = (found.met.unwrap(), found.missed.unwrap());
            assert!(met <= 42.0 && missed > 42.0 && missed / met <= 1.02, "{start}: {found:?}");
            assert!(tries <= if start < 1.0 { 25 } else { 16 }, "{start}: {tries}");
        }
    }

    #[test]
    fn the_ends_of_the_range_are_tried_and_nothing_beyond() {
        for start in [0.001, 0.0011, 1.0, 1000.0, 1e6] {
            let (found, tries) = search(start, f64::INFINITY, 0.0);
            assert_eq!((found.met, found.missed), (Some(1e6), None), "{start}");
            assert!(tries <= 32, "{start}: {tries}");
            let (found, tries) = search(start, 0.0, 0.0);
            assert_eq!((found.met, found.missed), (None, Some(1e-3)), "{start}");
            assert!(tries <= 7, "{start}: {tries}");
        }
    }

    #[test]
    fn an_idle_fleet_that_misses_ends_the_search() {
        let (found, tries) = search(100.0, 0.0, 1.0);
        assert!(found.missed.unwrap() <= 1.0 && tries <= 4, "{found:?}, {tries}");
        let mut refused = Bisection::new(1.0, 1e-3..=1e6);
        refused.tell(1.0, false, false);
        refused.refuse();
        assert_eq!(refused.next(), None);
    }
}
