//! Seeded draws. Each component has a stream of its own; the algorithms on top of the generator are spelled out here,
//! because a library's may change between versions, and a seed must mean the same for ever.

use protocol::tokenizer::mix;
use rand::RngExt;
use rand_pcg::Pcg64;

/// What draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Component {
    Order = 1,
    Popularity = 2,
    MatchRatio = 3,
    Arrivals = 4,
    Jitter = 5,
    Rooms = 6,
    Mishaps = 7,
    System = 8,
    Question = 9,
    Output = 10,
    Turns = 11,
    Think = 12,
    Children = 13,
    ChildPrompt = 14,
    ChildOutput = 15,
    Join = 16,
    Mix = 17,
}

/// The generator of `component` in a run with `seed`.
pub(crate) fn stream(seed: u64, component: Component) -> Pcg64 {
    let salt = mix(seed ^ mix(component as u64));
    Pcg64::new(u128::from(salt) << 64 | u128::from(mix(salt)), component as u128)
}

/// The generator of item `index` of `component`: what one item draws moves no other.
pub(super) fn stream_of(seed: u64, component: Component, index: u64) -> Pcg64 {
    let salt = mix(mix(seed ^ mix(component as u64)) ^ mix(index));
    Pcg64::new(u128::from(salt) << 64 | u128::from(mix(salt)), component as u128)
}

/// Evenly in [0, 1).
pub(crate) fn unit(draws: &mut Pcg64) -> f64 {
    (draws.random::<u64>() >> 11) as f64 / (1u64 << 53) as f64
}

/// Evenly among 0, 1, …, `bound` − 1. (The multiply-shift rule; its bias is below `bound` / 2⁶⁴.)
pub(crate) fn below(draws: &mut Pcg64, bound: usize) -> usize {
    ((u128::from(draws.random::<u64>()) * bound as u128) >> 64) as usize
}

/// A shuffle after Fisher and Yates.
pub(super) fn shuffle<T>(draws: &mut Pcg64, items: &mut [T]) {
    for i in (1..items.len()).rev() {
        items.swap(i, below(draws, i + 1));
    }
}

/// Exponential with mean 1, by inverse transform. (Nothing is drawn as 1, whose logarithm would have no end.)
pub(super) fn exponential(draws: &mut Pcg64) -> f64 {
    -(-unit(draws)).ln_1p()
}

/// Normal with mean 0 and standard deviation 1, after Box and Muller.
pub(super) fn normal(draws: &mut Pcg64) -> f64 {
    let radius = (2.0 * exponential(draws)).sqrt();
    radius * (std::f64::consts::TAU * unit(draws)).cos()
}

/// Gamma with this shape and scale 1: the method of Marsaglia and Tsang (2000). Shapes below 1 are drawn as shape + 1
/// times u^(1/shape), as they propose.
pub(super) fn gamma(draws: &mut Pcg64, shape: f64) -> f64 {
    if shape < 1.0 {
        // The exponential is the negative logarithm of an even draw, and so never that of 0.
        let boost = (-exponential(draws) / shape).exp();
        return gamma(draws, shape + 1.0) * boost;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(draws);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && -exponential(draws) < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

/// Weibull with this shape and scale 1, by inverse transform.
pub(super) fn weibull(draws: &mut Pcg64, shape: f64) -> f64 {
    exponential(draws).powf(1.0 / shape)
}

/// ln Γ(x) for x > 0, after Lanczos with g = 7 and nine terms.
pub(super) fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let sum = TERMS[1..].iter().zip(1..).fold(TERMS[0], |sum, (term, i)| sum + term / (x + f64::from(i)));
    let t = x + 7.5;
    0.5 * std::f64::consts::TAU.ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// Draws 0, 1, … in proportion to weights.
#[derive(Debug)]
pub(super) struct Weighted {
    /// The sum of all weights up to and including each.
    cumulative: Vec<f64>,
}

impl Weighted {
    /// `count` ranks after Zipf: the k-th, counted from 1, has the weight k^-`exponent`.
    pub(super) fn zipf(count: u32, exponent: f64) -> Self {
        Self::of((1..=count).map(|k| f64::from(k).powf(-exponent)))
    }

    /// One rank for every weight.
    pub(super) fn of(weights: impl Iterator<Item = f64>) -> Self {
        let mut sum = 0.0;
        let add = |weight: f64| {
            sum += weight;
            sum
        };
        Self { cumulative: weights.map(add).collect() }
    }

    /// One of them; 0 when there is none.
    pub(super) fn draw(&self, draws: &mut Pcg64) -> usize {
        let Some(total) = self.cumulative.last() else { return 0 };
        let at = unit(draws) * total;
        // Rounding may put a draw on the very end.
        self.cumulative.partition_point(|sum| *sum <= at).min(self.cumulative.len() - 1)
    }
}

/// What draws are tested against.
#[cfg(test)]
pub(super) mod testing {
    use super::ln_gamma;

    /// The share of a gamma distribution of scale 1 below `x`: the series of the incomplete gamma function.
    pub(crate) fn gamma_cdf(shape: f64, x: f64) -> f64 {
        if x <= 0.0 {
            return 0.0;
        }
        let (mut term, mut sum, mut at) = (1.0 / shape, 1.0 / shape, shape);
        while term > sum * 1e-15 {
            at += 1.0;
            term *= x / at;
            sum += term;
        }
        (sum.ln() + shape * x.ln() - x - ln_gamma(shape)).exp().min(1.0)
    }

    /// The share of the standard normal distribution below `x`: its square is a gamma distribution of shape 1/2.
    pub(crate) fn normal_cdf(x: f64) -> f64 {
        0.5 * (1.0 + gamma_cdf(0.5, x * x / 2.0).copysign(x))
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{gamma_cdf, normal_cdf};
    use super::*;
    use crate::statistics::kolmogorov::distance;

    fn many(draw: impl Fn(&mut Pcg64) -> f64) -> Vec<f64> {
        let mut draws = stream(5, Component::Arrivals);
        (0..100_000).map(|_| draw(&mut draws)).collect()
    }

    #[test]
    fn gamma_normal_and_weibull_draws_are() {
        assert!(distance(many(normal), normal_cdf) < 1.0);
        for shape in [0.05, 0.25, 0.9, 1.0, 3.0, 40.0] {
            let values = many(|draws| gamma(draws, shape));
            assert!(values.iter().all(|v| v.is_finite() && *v >= 0.0));
            assert!(distance(values, |v| gamma_cdf(shape, v)) < 1.0, "{shape}");
            let values = many(|draws| weibull(draws, shape));
            assert!(distance(values, |v| 1.0 - (-v.powf(shape)).exp()) < 1.0, "{shape}");
        }
    }

    #[test]
    fn the_gamma_function_has_its_known_values() {
        for (x, expected) in [(1.0, 0.0), (5.0, 24f64.ln()), (0.5, std::f64::consts::PI.sqrt().ln())] {
            assert!((ln_gamma(x) - expected).abs() < 1e-12, "{x}");
        }
        assert!((gamma_cdf(1.0, 2.0) - (1.0 - (-2f64).exp())).abs() < 1e-12);
        assert!(
            (normal_cdf(1.959_963_985) - 0.975).abs() < 1e-9
                && (normal_cdf(-1.0) - 0.158_655_254).abs() < 1e-9
        );
    }

    #[test]
    fn exponential_draws_are() {
        let mut draws = stream(7, Component::Arrivals);
        let values: Vec<f64> = (0..100_000).map(|_| exponential(&mut draws)).collect();
        assert!(values.iter().all(|v| v.is_finite() && *v >= 0.0));
        assert!(distance(values, |v| 1.0 - (-v).exp()) < 1.0);
    }

    #[test]
    fn zipf_draws_follow_their_weights() {
        for exponent in [0.0, 0.9, 1.5, 10.0] {
            let ranks = Weighted::zipf(50, exponent);
            let weights: Vec<f64> = (1..=50).map(|k| f64::from(k).powf(-exponent)).collect();
            let total: f64 = weights.iter().sum();
            let mut counts = vec![0u32; 50];
            let mut draws = stream(3, Component::Popularity);
            (0..100_000).for_each(|_| counts[ranks.draw(&mut draws)] += 1);
            for (count, weight) in counts.iter().zip(&weights) {
                let expected = 1e5 * weight / total;
                let deviation = (expected * (1.0 - weight / total)).sqrt();
                assert!(
                    (f64::from(*count) - expected).abs() <= 5.0 * deviation + 1.0,
                    "{exponent}: {counts:?}"
                );
            }
        }
    }

    #[test]
    fn a_seed_means_the_same_for_ever() {
        let mut draws = stream(1, Component::Arrivals);
        let gaps_ns: Vec<u64> = (0..3).map(|_| (exponential(&mut draws) * 1e9).round() as u64).collect();
        let mut draws = stream(1, Component::Popularity);
        let ranks = Weighted::zipf(64, 1.0);
        let ranks: Vec<usize> = (0..8).map(|_| ranks.draw(&mut draws)).collect();
        let mut items: Vec<u32> = (0..8).collect();
        shuffle(&mut stream(1, Component::Order), &mut items);
        assert_eq!(
            (&gaps_ns[..], &ranks[..], &items[..]),
            (
                &[17_601_491, 510_534_271, 1_266_747_320][..],
                &[0, 0, 60, 2, 57, 4, 1, 27][..],
                &[3, 1, 4, 5, 2, 7, 6, 0][..]
            )
        );
    }

    #[test]
    fn streams_differ_by_seed_and_by_component() {
        let first = |seed, component| stream(seed, component).random::<u64>();
        assert_eq!(first(1, Component::Order), first(1, Component::Order));
        assert_ne!(first(1, Component::Order), first(2, Component::Order));
        assert_ne!(first(1, Component::Order), first(1, Component::Arrivals));
    }

    #[test]
    fn a_shuffle_is_even() {
        let mut draws = stream(3, Component::Order);
        let mut counts = [[0u32; 4]; 4];
        for _ in 0..8000 {
            let mut items = [0, 1, 2, 3];
            shuffle(&mut draws, &mut items);
            items.iter().enumerate().for_each(|(at, item)| counts[at][*item] += 1);
        }
        // 2000 expected, standard deviation 39.
        assert!(counts.iter().flatten().all(|count| count.abs_diff(2000) < 200), "{counts:?}");
    }
}
