//! Arrival times that do not depend on what is sent.

use rand_pcg::Pcg64;

use super::draws::{Component, exponential, gamma, ln_gamma, stream, weibull};
use crate::scenario::{Arrival, Gaps, Windows};

/// When each of `count` requests is sent, in nanoseconds since the start; ascending.
pub(super) fn stamps_ns(arrival: &Arrival, count: usize, seed: u64) -> Vec<u64> {
    let evenly = |span_ns: f64| (0..count).map(move |i| (i as f64 * span_ns / count as f64).round() as u64);
    let mut draws = stream(seed, Component::Arrivals);
    match arrival {
        Arrival::Burst { over_ns } => evenly(*over_ns as f64).collect(),
        Arrival::Constant { rate } => evenly(count as f64 / rate * 1e9).collect(),
        Arrival::Poisson { rate } => by_gaps(count, || exponential(&mut draws) / rate * 1e9),
        Arrival::Gamma { rate, burstiness } => {
            by_gaps(count, || gamma(&mut draws, *burstiness) / (burstiness * rate) * 1e9)
        }
        Arrival::Ramp { from, to, over_ns } => ramp(*from, *to, *over_ns, count, &mut draws),
        Arrival::Servegen { windows, speedup } => by_windows(windows, *speedup, count, &mut draws),
        Arrival::Closed { .. } | Arrival::Trace => vec![0; count],
    }
}

/// Stamps with these gaps, in nanoseconds; the first gap stands before the first request.
fn by_gaps(count: usize, mut gap_ns: impl FnMut() -> f64) -> Vec<u64> {
    let mut at_ns = 0;
    let next = std::iter::repeat_with(|| {
        at_ns += gap_ns().round() as u64;
        at_ns
    });
    next.take(count).collect()
}

/// A Poisson process whose rate goes evenly from one to another: request i comes when the expected number of requests
/// has grown to the sum of i exponential draws.
fn ramp(from: f64, to: f64, over_ns: u64, count: usize, draws: &mut Pcg64) -> Vec<u64> {
    let over_s = over_ns as f64 / 1e9;
    let in_ramp = (from + to) / 2.0 * over_s;
    let slope = (to - from) / over_s;
    let mut expected = 0.0;
    let next = std::iter::repeat_with(|| {
        expected += exponential(draws);
        let at_s = if expected < in_ramp {
            // from·t + slope·t²/2 = expected, in the form that also holds for a slope of 0.
            2.0 * expected / (from + (from * from + 2.0 * slope * expected).max(0.0).sqrt())
        } else {
            over_s + (expected - in_ramp) / to
        };
        (at_s * 1e9).round() as u64
    });
    next.take(count).collect()
}

/// Every window begins anew, and what its gaps lead beyond its end is left out.
fn by_windows(windows: &Windows, speedup: f64, count: usize, draws: &mut Pcg64) -> Vec<u64> {
    let mut stamps = Vec::with_capacity(count);
    let mut start_ns = 0.0;
    for window in windows.windows.iter().cycle() {
        let end_ns = start_ns + window.length_ns as f64;
        let mut at_ns = start_ns;
        while window.rate > 0.0 && stamps.len() < count {
            at_ns += unit_gap(window.gaps, draws) / window.rate * 1e9;
            if at_ns >= end_ns {
                break;
            }
            stamps.push((at_ns / speedup).round() as u64);
        }
        if stamps.len() == count {
            break;
        }
        start_ns = end_ns;
    }
    stamps
}

/// A gap with mean 1.
fn unit_gap(gaps: Gaps, draws: &mut Pcg64) -> f64 {
    match gaps {
        Gaps::Poisson => exponential(draws),
        Gaps::Gamma(shape) => gamma(draws, shape) / shape,
        // The mean of a Weibull distribution of scale 1 is Γ(1 + 1/shape).
        Gaps::Weibull(shape) => weibull(draws, shape) / ln_gamma(1.0 + 1.0 / shape).exp(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::path::Path;
    use std::sync::Arc;

    use super::super::draws::testing::gamma_cdf;
    use super::*;
    use crate::scenario::Window;
    use crate::statistics::kolmogorov::distance;

    const COUNT: usize = 100_000;

    fn gaps_s(at_ns: &[u64]) -> Vec<f64> {
        at_ns.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e9).collect()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn a_burst_is_even_and_ends_within_its_span() {
        let at = stamps_ns(&Arrival::Burst { over_ns: 1_500_000_000 }, 1000, 1);
        assert_eq!(at[0], 0);
        assert!(at.windows(2).all(|w| w[1] - w[0] == 1_500_000), "equal gaps");
        assert_eq!(at.len(), 1000);
        assert!(stamps_ns(&Arrival::Burst { over_ns: 0 }, 10, 1).iter().all(|at| *at == 0));
    }

    #[test]
    fn constant_gaps_do_not_drift() {
        let at = stamps_ns(&Arrival::Constant { rate: 3.0 }, 30_001, 1);
        assert_eq!(at[30_000], 10_000_000_000_000);
        assert_eq!(at[1], 333_333_333);
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let rate = 40.0;
        let poisson = Arrival::Poisson { rate };
        let at = stamps_ns(&poisson, COUNT, 7);
        let gaps = gaps_s(&at);
        assert!((mean(&gaps) * rate - 1.0).abs() < 0.01, "mean gap {}", mean(&gaps));
        assert!(distance(gaps, |gap| 1.0 - (-rate * gap).exp()) < 1.0);
        assert_eq!(at, stamps_ns(&poisson, COUNT, 7));
        assert_ne!(at, stamps_ns(&poisson, COUNT, 8));
    }

    #[test]
    fn gamma_gaps_have_their_rate_and_vary_by_their_burstiness() {
        // So slow that whole nanoseconds do not show: of shape 0.25, one gap in a hundred is shorter than 2e-8 of the mean.
        let rate = 0.001;
        for burstiness in [0.25, 1.0, 4.0] {
            let gaps = gaps_s(&stamps_ns(&Arrival::Gamma { rate, burstiness }, COUNT, 7));
            let mean = mean(&gaps);
            assert!((mean * rate - 1.0).abs() < 0.02, "{burstiness}: mean gap {mean}");
            let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            let variation = variance.sqrt() / mean;
            assert!((variation * burstiness.sqrt() - 1.0).abs() < 0.02, "{burstiness}: {variation}");
            assert!(
                distance(gaps, |gap| gamma_cdf(burstiness, burstiness * rate * gap)) < 1.0,
                "{burstiness}"
            );
        }
    }

    #[test]
    fn a_ramp_has_its_rate_at_every_moment() {
        for (from, to) in [(0.0, 100.0), (50.0, 150.0), (150.0, 50.0), (80.0, 80.0)] {
            let ramp = Arrival::Ramp { from, to, over_ns: 1_000_000_000_000 };
            let at = stamps_ns(&ramp, 120_000, 3);
            assert!(at.is_sorted());
            let slope = (to - from) / 1e3;
            let expected = |s: f64| {
                let t = s.min(1e3);
                from * t + slope * t * t / 2.0 + to * (s - t)
            };
            let last_s = at[at.len() - 1] as f64 / 1e9;
            let seconds = at.iter().map(|ns| *ns as f64 / 1e9).collect();
            // Given their number, the arrivals are independent draws with this distribution.
            let off = distance(seconds, |s| expected(s) / expected(last_s));
            assert!(off < 1.0, "{from} to {to}: {off}");
            assert!((expected(last_s) / 120_000.0 - 1.0).abs() < 0.02, "{from} to {to}");
        }
    }

    #[test]
    fn windows_have_their_rates_and_distributions() {
        let window = |rate, gaps| Window { length_ns: 20_000_000_000_000, rate, gaps };
        let (shape, rate) = (0.6, 3.0);
        let all = vec![
            window(rate, Gaps::Weibull(shape)),
            window(0.0, Gaps::Poisson),
            window(2.0 * rate, Gaps::Gamma(0.5)),
            window(rate, Gaps::Poisson),
        ];
        let windows = Arc::new(Windows { path: "w".into(), windows: all });
        let at = stamps_ns(&Arrival::Servegen { windows: Arc::clone(&windows), speedup: 1.0 }, 300_000, 5);
        let of = |from: u64| -> Vec<u64> {
            let span = from * 20_000_000_000_000..(from + 1) * 20_000_000_000_000;
            at.iter().copied().filter(|ns| span.contains(ns)).collect()
        };
        for (place, rate) in [(0, rate), (2, 2.0 * rate), (3, rate), (4, rate)] {
            let count = of(place).len() as f64;
            assert!((count / (rate * 20_000.0) - 1.0).abs() < 0.02, "window {place}: {count}");
        }
        assert!(of(1).is_empty(), "a pause");
        let scale = ln_gamma(1.0 + 1.0 / shape).exp() * rate;
        assert!(distance(gaps_s(&of(0)), |gap| 1.0 - (-(gap * scale).powf(shape)).exp()) < 1.0);
        assert!(distance(gaps_s(&of(2)), |gap| gamma_cdf(0.5, 0.5 * 2.0 * rate * gap)) < 1.0);
        assert!(distance(gaps_s(&of(3)), |gap| 1.0 - (-rate * gap).exp()) < 1.0);
        let fast = stamps_ns(&Arrival::Servegen { windows, speedup: 10.0 }, 1000, 5);
        assert!(fast.iter().zip(&at).all(|(fast, at)| fast.abs_diff(at / 10) <= 1));
    }

    #[test]
    fn the_published_windows_of_a_client_are_played_at_their_rates() {
        let name = "servegen_m-large_chunk-100-trace.csv";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces").join(name);
        if !path.exists() {
            // Not `eprintln!`, which the test harness swallows.
            let _ = writeln!(std::io::stderr(), "skipped: {name} is not in ../shared/traces");
            return;
        }
        let windows = crate::scenario::read_windows(&path, 0).unwrap();
        assert_eq!(windows.windows.len(), 2016);
        let expected: f64 = windows.windows.iter().map(|window| window.rate * 600.0).sum();
        let windows = Arc::new(windows);
        let at = stamps_ns(&Arrival::Servegen { windows, speedup: 1.0 }, expected as usize, 1);
        let weeks = at[at.len() - 1] as f64 / 1e9 / (14.0 * 86_400.0);
        assert!((weeks - 1.0).abs() < 0.01, "all requests of two weeks take two weeks: {weeks}");
    }
}
