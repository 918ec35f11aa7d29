//! The clock that wrote a trace: did it round to coarse steps? (The Mooncake conversation trace: 3 s.)

use std::collections::BTreeMap;

/// Stamps that lie no further apart than this are one stamp, written by a clock that rounds: each may be off by a
/// millisecond, and so a gap between two of them by two.
pub(crate) const ROUNDING_NS: u64 = 2_000_000;
/// Steps finer than this are taken for a clock's resolution, not for a grid.
const FINEST_NS: f64 = 20e6;
/// Gaps of more different lengths than this come from no grid.
const MOST_GAPS: usize = 1 << 16;
/// A grid is found where stamps that are on none would look like one with a smaller chance than this.
const CHANCE: f64 = 1e-5;

/// Looks for a grid among stamps that come in order; holds no more than the different gaps.
#[derive(Debug, Clone, Default)]
pub struct Grid {
    /// The first stamp of those that are one with the former.
    former_ns: Option<u64>,
    /// How often each gap was seen.
    gaps: BTreeMap<u64, u64>,
    none: bool,
}

impl Grid {
    /// Takes the next stamp.
    pub fn add(&mut self, at_ns: u64) {
        let gap_ns = at_ns - *self.former_ns.get_or_insert(at_ns);
        if self.none || gap_ns <= ROUNDING_NS {
            return;
        }
        self.former_ns = Some(at_ns);
        *self.gaps.entry(gap_ns).or_default() += 1;
        if self.gaps.len() > MOST_GAPS {
            self.none = true;
            self.gaps.clear();
        }
    }

    /// The step of the clock, in nanoseconds, if it is a coarse one: nearly all gaps between different stamps are multiples
    /// of it, give or take two milliseconds, and there are enough of them to be no accident.
    #[must_use]
    pub fn step_ns(&self) -> Option<u64> {
        let finest = self.gaps.keys().next().map(|gap| *gap as f64).filter(|gap| *gap >= FINEST_NS)?;
        let sum = |of: &dyn Fn(f64) -> f64| -> f64 {
            self.gaps.iter().map(|(gap, times)| of(*gap as f64) * *times as f64).sum()
        };
        let rounding = ROUNDING_NS as f64;
        // The finest gap may have been rounded. So is the mean over all steps, by the first stamp and the last, but that
        // error is shared by all of them; a gap of many steps has as many shares of it beside its own. Both may be reached,
        // and then a nanosecond is left to how fractions are computed.
        let steps = sum(&|gap| (gap / finest).round());
        let step = sum(&|gap| gap) / steps;
        let is_off = |gap: f64| {
            let of_gap = (gap / step).round();
            (of_gap * step - gap).abs() > rounding * (1.0 + of_gap / steps) + 1.0
        };
        let (all, misfits) = (sum(&|_| 1.0), sum(&|gap| f64::from(u8::from(is_off(gap)))));
        // One gap fits any grid, and each other one by accident where it ends within the rounding of a step.
        let accident = (2.0 * rounding + 1e6) / finest;
        let is_proven = accident.powf(all - misfits - 1.0) <= CHANCE;
        (misfits * 20.0 <= all && is_proven).then(|| (step / 1e6).round() as u64 * 1_000_000)
    }
}

impl FromIterator<u64> for Grid {
    fn from_iter<I: IntoIterator<Item = u64>>(stamps: I) -> Self {
        let mut grid = Self::default();
        stamps.into_iter().for_each(|at_ns| grid.add(at_ns));
        grid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::draws::{Component, below, stream, unit};

    #[test]
    fn grids_are_found_and_fine_clocks_are_none() {
        assert_eq!(step_ms(&[0, 0, 3000, 6000, 6000, 9000]), Some(3000));
        assert_eq!(step_ms(&[0, 2999, 2999, 6000, 12_001, 15_000]), Some(3000), "give or take 1 ms");
        assert_eq!(step_ms(&[0, 3000, 6000, 6001, 9000, 21_000]), Some(3000), "one step, two stamps");
        assert_eq!(step_ms(&[0, 40, 277, 471, 1000, 1123]), None, "a clock of 1 ms");
        assert_eq!(step_ms(&[0, 1, 2, 3]), None);
        assert_eq!(step_ms(&[7, 7, 7]), None);
        assert_eq!(step_ms(&[0, 3000]), None, "any gap would do");
        assert_eq!(step_ms(&[0, 40, 80, 120]), None, "of fine steps it takes more");
        assert_eq!(step_ms(&[]), None);
    }

    /// A stamp for each step of `step_ms` and now and then a step without one, every stamp off by up to a millisecond;
    /// `rows` of them for each step, off together or each by itself.
    fn rounded(seed: u64, step_ms: u64, steps: u64, rows: usize, each: bool) -> Vec<u64> {
        let mut draws = stream(seed, Component::Arrivals);
        let mut at_ms = Vec::new();
        for step in (1..=steps).filter(|step| step % 7 != 3) {
            let mut wobble = below(&mut draws, 3) as u64;
            for _ in 0..rows {
                if each {
                    wobble = below(&mut draws, 3) as u64;
                }
                at_ms.push(step * step_ms + wobble - 1);
            }
        }
        at_ms.sort_unstable();
        at_ms
    }

    fn step_ms(at_ms: &[u64]) -> Option<u64> {
        at_ms.iter().map(|at| at * 1_000_000).collect::<Grid>().step_ns().map(|step| step / 1_000_000)
    }

    #[test]
    fn a_clock_whose_every_stamp_is_off_by_a_millisecond_has_its_grid() {
        for (step, steps) in
            [(25, 100), (100, 10), (100, 3000), (1000, 31), (3000, 8), (3000, 434), (60_000, 100)]
        {
            for seed in 0..200 {
                for (rows, each) in [(1, false), (5, false), (5, true)] {
                    let at_ms = rounded(seed, step, steps, rows, each);
                    assert_eq!(
                        step_ms(&at_ms),
                        Some(step),
                        "{step} ms, {steps} steps, {rows} rows, seed {seed}"
                    );
                }
            }
        }
    }

    #[test]
    fn gaps_of_a_poisson_process_are_on_no_grid() {
        for mean_ms in [10.0, 100.0, 1000.0, 3000.0, 60_000.0] {
            for rows in [2, 3, 4, 5, 8, 20, 100, 3000] {
                for seed in 0..200 {
                    let (mut draws, mut at_ms) = (stream(seed, Component::Arrivals), 0.0);
                    let mut next = |_| {
                        at_ms -= mean_ms * (1.0 - unit(&mut draws)).ln();
                        at_ms.round() as u64
                    };
                    let at_ms: Vec<u64> = (0..rows).map(&mut next).collect();
                    assert_eq!(step_ms(&at_ms), None, "a mean of {mean_ms} ms, {rows} rows, seed {seed}");
                }
            }
        }
    }

    #[test]
    fn a_trace_of_ever_new_gaps_is_on_no_grid_and_takes_no_memory() {
        let mut at_ns = 0;
        let stamps = (0..200_000).map(|i| {
            at_ns += 30_000_000 + i;
            at_ns
        });
        let grid: Grid = stamps.collect();
        assert_eq!(grid.step_ns(), None);
        assert!(grid.gaps.is_empty());
    }
}
