//! Histograms of times that threads add to without a lock.
//!
//! The library's histogram takes a lock per observation, which two threads that move tokens would share. Here a
//! bucket is an atomic counter. A stream's gaps are not even that: they are collected in [`Gaps`], which the request
//! owns, and merged once when it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The gateway's buckets in seconds, carried on to 600 s: answers last minutes.
pub(crate) const DURATION_BUCKETS: [f64; 22] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 45.0, 60.0, 90.0,
    120.0, 180.0, 240.0, 360.0, 600.0,
];

/// Upper bounds of the gaps between tokens, in nanoseconds: fine where decoding happens, then up to 600 s.
const GAP_BOUNDS_NS: [u64; 26] = [
    1_000_000,
    2_500_000,
    5_000_000,
    7_500_000,
    10_000_000,
    15_000_000,
    20_000_000,
    25_000_000,
    30_000_000,
    40_000_000,
    50_000_000,
    75_000_000,
    100_000_000,
    150_000_000,
    200_000_000,
    300_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
    120_000_000_000,
    300_000_000_000,
    600_000_000_000,
];

/// Upper bounds of buckets in nanoseconds, ascending; the one without a bound is not among them.
#[derive(Debug, Clone)]
pub(crate) struct Bounds(Arc<[u64]>);

/// A histogram of times.
#[derive(Debug)]
pub(crate) struct Histogram {
    bounds: Bounds,
    /// Observations of each bucket alone; the last one has no bound.
    counts: Box<[AtomicU64]>,
    sum_ns: AtomicU64,
}

/// A histogram as it is exposed.
#[derive(Debug, PartialEq)]
pub(super) struct Snapshot {
    pub(super) sum: f64,
    pub(super) count: u64,
    /// Upper bound in seconds, and the observations of this bucket alone.
    pub(super) buckets: Vec<(f64, u64)>,
}

/// The gaps between the tokens of one stream.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    counts: [u32; GAP_BOUNDS_NS.len() + 1],
    sum_ns: u64,
}

impl Bounds {
    /// The bounds given in seconds; those that are no positive number are left out.
    pub(crate) fn of_seconds(seconds: &[f64]) -> Self {
        let finite = seconds.iter().filter(|bound| bound.is_finite() && **bound > 0.0);
        let mut bounds: Vec<u64> = finite.map(|bound| (bound * 1e9).round() as u64).collect();
        bounds.sort_unstable();
        bounds.dedup();
        Self(bounds.into())
    }

    /// The bounds that [`Gaps`] count by.
    pub(crate) fn of_gaps() -> Self {
        Self(GAP_BOUNDS_NS.into())
    }

    /// The bucket of a value, which its bound includes.
    fn place(bounds: &[u64], value_ns: u64) -> usize {
        bounds.iter().position(|bound| value_ns <= *bound).unwrap_or(bounds.len())
    }
}

impl Histogram {
    pub(crate) fn new(bounds: &Bounds) -> Self {
        let counts = std::iter::repeat_with(AtomicU64::default).take(bounds.0.len() + 1).collect();
        Self { bounds: bounds.clone(), counts, sum_ns: AtomicU64::new(0) }
    }

    /// One observation.
    pub(crate) fn observe(&self, value_ns: u64) {
        self.counts[Bounds::place(&self.bounds.0, value_ns)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(value_ns, Ordering::Relaxed);
    }

    /// All gaps of a stream. Only for a histogram of [`Bounds::of_gaps`].
    pub(crate) fn merge(&self, gaps: &Gaps) {
        debug_assert_eq!(*self.bounds.0, GAP_BOUNDS_NS, "gaps go to a histogram of gaps");
        for (total, count) in self.counts.iter().zip(gaps.counts).filter(|(_, count)| *count > 0) {
            total.fetch_add(u64::from(count), Ordering::Relaxed);
        }
        self.sum_ns.fetch_add(gaps.sum_ns, Ordering::Relaxed);
    }

    /// What it holds now. The count is the sum of the buckets, so that the two agree while others add.
    pub(super) fn snapshot(&self) -> Snapshot {
        let bounds = self.bounds.0.iter().map(|bound| *bound as f64 / 1e9).chain([f64::INFINITY]);
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        Snapshot {
            sum: self.sum_ns.load(Ordering::Relaxed) as f64 / 1e9,
            count: buckets.iter().map(|bucket| bucket.1).sum(),
            buckets,
        }
    }
}

impl Gaps {
    /// `events` came together, this long after the one before.
    pub(crate) fn add(&mut self, gap_ns: u64, events: u32) {
        if events == 0 {
            return;
        }
        self.counts[Bounds::place(&GAP_BOUNDS_NS, gap_ns)] += 1;
        self.counts[0] += events - 1;
        self.sum_ns += gap_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(histogram: &Histogram) -> Vec<u64> {
        histogram.snapshot().buckets.iter().map(|bucket| bucket.1).collect()
    }

    #[test]
    fn a_value_counts_in_the_first_bucket_that_includes_it() {
        let histogram = Histogram::new(&Bounds::of_seconds(&[2.0, 0.5, 2.0, f64::NAN, -1.0]));
        for value_ns in [0, 500_000_000, 500_000_001, 2_000_000_000, 2_000_000_001, 3_000_000_000] {
            histogram.observe(value_ns);
        }
        let shown = histogram.snapshot();
        assert_eq!(shown.buckets, [(0.5, 2), (2.0, 2), (f64::INFINITY, 2)]);
        assert_eq!((shown.count, shown.sum), (6, 8.000_000_002));
    }

    #[test]
    fn merged_gaps_count_as_if_each_had_been_observed() {
        let [merged, observed] = [0, 1].map(|_| Histogram::new(&Bounds::of_gaps()));
        let mut gaps = Gaps::default();
        for (gap_ns, events) in [(7, 1), (20_000_000, 3), (20_000_001, 1), (1 << 50, 2), (5, 0)] {
            gaps.add(gap_ns, events);
            (0..events).for_each(|at| observed.observe(if at == 0 { gap_ns } else { 0 }));
        }
        merged.merge(&gaps);
        assert_eq!(merged.snapshot(), observed.snapshot());
        assert_eq!(counts(&merged).iter().sum::<u64>(), 7);
    }
}
