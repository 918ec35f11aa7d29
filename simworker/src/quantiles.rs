//! Quantiles of spans within half a percent: counts in buckets whose width grows with their value.

use std::collections::BTreeMap;

/// Buckets per doubling of the value.
const PER_DOUBLING: u64 = 128;

/// Spans in nanoseconds. Only buckets that have something in them take memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Quantiles {
    counts: BTreeMap<u64, u64>,
    count: u64,
    sum_ns: u128,
}

impl Quantiles {
    /// Observes `span_ns` so many times.
    pub(crate) fn observe(&mut self, span_ns: u64, times: u64) {
        *self.counts.entry(bucket(span_ns)).or_default() += times;
        self.count += times;
        self.sum_ns += u128::from(span_ns) * u128::from(times);
    }

    /// How many observations there are.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The sum of all observations in seconds.
    pub(crate) fn sum_s(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// The value that this share of the observations does not exceed, in nanoseconds; none without any observation.
    pub(crate) fn at(&self, share: f64) -> Option<u64> {
        let rank = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        self.counts.iter().find_map(|(bucket, count)| {
            seen += count;
            (seen >= rank).then(|| middle(*bucket))
        })
    }
}

/// The bucket of a value. Below two times [`PER_DOUBLING`] each value has its own.
fn bucket(value: u64) -> u64 {
    let shift = value.checked_ilog2().unwrap_or(0).saturating_sub(PER_DOUBLING.ilog2());
    u64::from(shift) * PER_DOUBLING + (value >> shift)
}

/// The value in the middle of a bucket.
fn middle(bucket: u64) -> u64 {
    let Some(shift) = (bucket / PER_DOUBLING).checked_sub(1) else { return bucket };
    let low = (bucket - shift * PER_DOUBLING) << shift;
    low + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_its_bucket_is_near_every_value() {
        for value in
            (0..64).flat_map(|shift| [1u64 << shift, (1 << shift) + (1 << shift) / 3, u64::MAX >> shift])
        {
            let found = middle(bucket(value));
            assert!(found.abs_diff(value) <= value / 250, "{value}: {found}");
        }
        assert!((0..100_000).map(bucket).is_sorted());
    }

    #[test]
    fn quantiles_count_what_was_seen() {
        let mut seen = Quantiles::default();
        assert_eq!(seen.at(0.5), None);
        seen.observe(10, 60);
        seen.observe(200, 39);
        seen.observe(5_000_000, 1);
        assert_eq!(
            (seen.at(0.5), seen.at(0.6), seen.at(0.61), seen.at(0.99)),
            (Some(10), Some(10), Some(200), Some(200))
        );
        assert!(seen.at(1.0).is_some_and(|most| most.abs_diff(5_000_000) < 25_000));
        assert_eq!(seen.count(), 100);
        assert!((seen.sum_s() - 0.005_008_4).abs() < 1e-12);
    }
}
