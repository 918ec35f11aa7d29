//! How long prompts and replies are.

use std::collections::HashMap;

use serde::Serialize;

/// A distribution of lengths, in tokens.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lengths {
    /// Of all rows together.
    pub sum: u64,
    /// Mean.
    pub mean: f64,
    /// Shortest.
    pub min: u32,
    /// Half are at most this long.
    pub p50: u32,
    /// 90 % are.
    pub p90: u32,
    /// 99 % are.
    pub p99: u32,
    /// Longest.
    pub max: u32,
}

/// How often each length was met.
#[derive(Debug, Default)]
pub(super) struct Tally(HashMap<u32, u64>);

impl Tally {
    pub(super) fn add(&mut self, tokens: u32) {
        *self.0.entry(tokens).or_default() += 1;
    }

    pub(super) fn finish(self) -> Lengths {
        let mut counts: Vec<(u32, u64)> = self.0.into_iter().collect();
        counts.sort_unstable();
        let rows: u64 = counts.iter().map(|(_, count)| count).sum();
        let sum: u64 = counts.iter().map(|(tokens, count)| u64::from(*tokens) * count).sum();
        let at = |share: f64| quantile(&counts, (share * rows as f64).ceil() as u64);
        let mean = if rows == 0 { 0.0 } else { sum as f64 / rows as f64 };
        Lengths { sum, mean, min: at(0.0), p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1.0) }
    }
}

/// The length of rank `rank`, counted from 1.
fn quantile(counts: &[(u32, u64)], rank: u64) -> u32 {
    let mut below = 0;
    let reached = |(_, count): &&(u32, u64)| {
        below += count;
        below >= rank
    };
    counts.iter().find(reached).map_or(0, |(tokens, _)| *tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_lengths_that_occur() {
        let mut tally = Tally::default();
        (1..=200).rev().for_each(|tokens| tally.add(tokens));
        let lengths = tally.finish();
        assert_eq!(
            (lengths.min, lengths.p50, lengths.p90, lengths.p99, lengths.max),
            (1, 100, 180, 198, 200)
        );
        assert_eq!((lengths.sum, lengths.mean), (20_100, 100.5));
    }
}
