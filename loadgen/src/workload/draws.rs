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
}

/// The generator of `component` in a run with `seed`.
pub(crate) fn stream(seed: u64, component: Component) -> Pcg64 {
    let salt = mix(seed ^ mix(component as u64));
    Pcg64::new(u128::from(salt) << 64 | u128::from(mix(salt)), component as u128)
}

/// Evenly in [0, 1).
pub(crate) fn unit(draws: &mut Pcg64) -> f64 {
    (draws.random::<u64>() >> 11) as f64 / (1u64 << 53) as f64
}

/// Evenly among 0, 1, …, `bound` − 1. (The multiply-shift rule; its bias is below `bound` / 2⁶⁴.)
pub(super) fn below(draws: &mut Pcg64, bound: usize) -> usize {
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

/// Draws 0, 1, … in proportion to weights.
#[derive(Debug)]
pub(super) struct Weighted {
    /// The sum of all weights up to and including each.
    cumulative: Vec<f64>,
}

impl Weighted {
    /// `count` ranks after Zipf: the k-th, counted from 1, has the weight k^-`exponent`.
    pub(super) fn zipf(count: u32, exponent: f64) -> Self {
        let mut sum = 0.0;
        let weight = |k: u32| {
            sum += f64::from(k).powf(-exponent);
            sum
        };
        Self { cumulative: (1..=count).map(weight).collect() }
    }

    /// One of them; 0 when there is none.
    pub(super) fn draw(&self, draws: &mut Pcg64) -> usize {
        let Some(total) = self.cumulative.last() else { return 0 };
        let at = unit(draws) * total;
        // Rounding may put a draw on the very end.
        self.cumulative.partition_point(|sum| *sum <= at).min(self.cumulative.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kolmogorov and Smirnov: the largest distance to a distribution, in units of its bound at 0.1 %.
    fn distance(mut values: Vec<f64>, cumulative: impl Fn(f64) -> f64) -> f64 {
        values.sort_by(f64::total_cmp);
        let count = values.len() as f64;
        let off = values.iter().enumerate().map(|(i, v)| (i as f64 / count - cumulative(*v)).abs());
        off.fold(0.0, f64::max) / (1.95 / count.sqrt())
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
