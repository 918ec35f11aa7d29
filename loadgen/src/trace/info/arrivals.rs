//! The load of a trace: rate, peaks, burstiness.

use serde::Serialize;

use crate::trace::Grid;
use crate::trace::stamp::SECOND_NS;

/// The windows in which requests are counted, in seconds.
const WINDOWS_S: [u64; 3] = [1, 10, 60];

/// When requests came.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Arrivals {
    /// From the first request to the last, in seconds.
    pub span_s: f64,
    /// Requests per second; absent where all came at once.
    pub rate: Option<f64>,
    /// Standard deviation of the gaps over their mean; 1 for a Poisson process. Absent where all came at once.
    pub gap_cv: Option<f64>,
    /// Counts per window, from the first request on.
    pub windows: Vec<Window>,
    /// The step of a clock that rounded to coarse steps, in milliseconds.
    pub grid_ms: Option<u64>,
}

/// Requests counted in windows of one length.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Window {
    /// Its length, in seconds.
    pub seconds: u64,
    /// Most requests in one window, per second.
    pub peak_rate: f64,
    /// The Fano factor: variance of the counts over their mean; 1 for a Poisson process.
    pub fano: f64,
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    rows: u64,
    first_ns: u64,
    last_ns: u64,
    /// Sum of the squares of the gaps, in square seconds.
    gap_squares: f64,
    counts: [Count; WINDOWS_S.len()],
    grid: Grid,
}

/// Counts per window, of which only the current one is kept.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
    window: u64,
    now: u64,
    most: u64,
    squares: f64,
}

impl Tally {
    pub(super) fn add(&mut self, at_ns: u64) {
        if self.rows == 0 {
            (self.first_ns, self.last_ns) = (at_ns, at_ns);
        }
        let gap_s = (at_ns - self.last_ns) as f64 / SECOND_NS as f64;
        self.gap_squares += gap_s * gap_s;
        self.rows += 1;
        self.last_ns = at_ns;
        for (count, seconds) in self.counts.iter_mut().zip(WINDOWS_S) {
            count.add((at_ns - self.first_ns) / (seconds * SECOND_NS));
        }
        self.grid.add(at_ns);
    }

    pub(super) fn finish(mut self) -> Arrivals {
        let span_s = (self.last_ns - self.first_ns) as f64 / SECOND_NS as f64;
        let gaps = self.rows.saturating_sub(1) as f64;
        let spread = span_s > 0.0;
        let mean_gap_s = span_s / gaps;
        let variance = (self.gap_squares / gaps - mean_gap_s * mean_gap_s).max(0.0);
        let windows = self.counts.iter_mut().zip(WINDOWS_S);
        let windows = windows.map(|(count, seconds)| count.finish(self.rows, seconds)).collect();
        Arrivals {
            span_s,
            rate: spread.then(|| gaps / span_s),
            gap_cv: spread.then(|| variance.sqrt() / mean_gap_s),
            windows,
            grid_ms: self.grid.step_ns().map(|step| step / 1_000_000),
        }
    }
}

impl Count {
    fn add(&mut self, window: u64) {
        if window != self.window {
            self.close();
            self.window = window;
        }
        self.now += 1;
    }

    fn close(&mut self) {
        let count = std::mem::take(&mut self.now);
        self.most = self.most.max(count);
        self.squares += count as f64 * count as f64;
    }

    /// Empty windows up to the last request count too.
    fn finish(&mut self, rows: u64, seconds: u64) -> Window {
        self.close();
        let windows = (self.window + 1) as f64;
        let mean = rows as f64 / windows;
        let fano = (self.squares / windows - mean * mean) / mean;
        Window { seconds, peak_rate: self.most as f64 / seconds as f64, fano }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(at_ms: impl IntoIterator<Item = u64>) -> Arrivals {
        let mut tally = Tally::default();
        at_ms.into_iter().for_each(|ms| tally.add(ms * 1_000_000));
        tally.finish()
    }

    #[test]
    fn even_arrivals_have_no_spread() {
        let even = arrivals((0..1000).map(|i| 5000 + i * 100));
        assert!((even.rate.unwrap() - 10.0).abs() < 1e-9 && even.gap_cv.unwrap() < 1e-5, "{even:?}");
        assert!((even.span_s - 99.9).abs() < 1e-9);
        assert_eq!(even.windows[0], Window { seconds: 1, peak_rate: 10.0, fano: 0.0 });
    }

    #[test]
    fn pairs_with_long_pauses() {
        // Gaps 0 and 2 s in turn: mean 1, deviation 1. Counts 2, 0, 2, 0, …, 2: mean 2·5/9, mean square 4·5/9.
        let pairs = arrivals([0, 0, 2000, 2000, 4000, 4000, 6000, 6000, 8000, 8000]);
        let mean = 10.0 / 9.0;
        assert!((pairs.windows[0].fano - (20.0 / 9.0 - mean * mean) / mean).abs() < 1e-12, "{pairs:?}");
        // Nine gaps, five of 0 s and four of 2 s.
        let mean = 8.0 / 9.0;
        let cv = (16.0_f64 / 9.0 - mean * mean).sqrt() / mean;
        assert!((pairs.gap_cv.unwrap() - cv).abs() < 1e-12);
        assert_eq!((pairs.windows[0].peak_rate, pairs.grid_ms), (2.0, Some(2000)));
    }

    #[test]
    fn what_comes_at_once_has_no_rate() {
        let burst = arrivals([7, 7, 7]);
        assert_eq!((burst.rate, burst.gap_cv, burst.span_s), (None, None, 0.0));
        assert_eq!(arrivals([7]).rate, None);
    }
}
