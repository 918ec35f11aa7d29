//! Arrival times that do not depend on what is sent.

use super::draws::{Component, exponential, stream};
use crate::scenario::Arrival;

/// When each of `count` requests is sent, in nanoseconds since the start; ascending.
pub(super) fn stamps_ns(arrival: Arrival, count: usize, seed: u64) -> Vec<u64> {
    let evenly = |span_ns: f64| (0..count).map(move |i| (i as f64 * span_ns / count as f64).round() as u64);
    match arrival {
        Arrival::Burst { over_ns } => evenly(over_ns as f64).collect(),
        Arrival::Constant { rate } => evenly(count as f64 / rate * 1e9).collect(),
        Arrival::Poisson { rate } => poisson_ns(rate, count, seed),
        Arrival::Closed { .. } | Arrival::Trace => vec![0; count],
    }
}

/// A Poisson process of `rate` per second: gaps are exponential, and the first stands before the first request.
fn poisson_ns(rate: f64, count: usize, seed: u64) -> Vec<u64> {
    let mut draws = stream(seed, Component::Arrivals);
    let mut at_ns = 0;
    let next = std::iter::repeat_with(|| {
        at_ns += (exponential(&mut draws) / rate * 1e9).round() as u64;
        at_ns
    });
    next.take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_even_and_ends_within_its_span() {
        let at = stamps_ns(Arrival::Burst { over_ns: 1_500_000_000 }, 1000, 1);
        assert_eq!(at[0], 0);
        assert!(at.windows(2).all(|w| w[1] - w[0] == 1_500_000), "equal gaps");
        assert_eq!(at.len(), 1000);
        assert!(stamps_ns(Arrival::Burst { over_ns: 0 }, 10, 1).iter().all(|at| *at == 0));
    }

    #[test]
    fn constant_gaps_do_not_drift() {
        let at = stamps_ns(Arrival::Constant { rate: 3.0 }, 30_001, 1);
        assert_eq!(at[30_000], 10_000_000_000_000);
        assert_eq!(at[1], 333_333_333);
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let rate = 40.0;
        let count = 100_000;
        let at = stamps_ns(Arrival::Poisson { rate }, count, 7);
        let mut gaps: Vec<f64> = at.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e9).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((mean * rate - 1.0).abs() < 0.01, "mean gap {mean}");
        gaps.sort_by(f64::total_cmp);
        // Kolmogorov and Smirnov: the largest distance to 1 − e^(−rate·gap); 1.95/√n is the bound at 0.1 %.
        let distance = gaps
            .iter()
            .enumerate()
            .map(|(i, gap)| (i as f64 / gaps.len() as f64 - (1.0 - (-rate * gap).exp())).abs())
            .fold(0.0, f64::max);
        assert!(distance < 1.95 / (gaps.len() as f64).sqrt(), "distance {distance}");
        assert_eq!(at, stamps_ns(Arrival::Poisson { rate }, count, 7));
        assert_ne!(at, stamps_ns(Arrival::Poisson { rate }, count, 8));
    }
}
