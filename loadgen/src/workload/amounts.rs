//! Draws of amounts: lengths of prompts and replies, numbers of turns, times to think.
//!
//! Every item (a group, a request, a turn) has a generator of its own, made of the seed, the component and the item's
//! number. So the lengths of one item depend on no other item, on no order, and on no other key of the scenario.

use rand_pcg::Pcg64;

use super::draws::{Component, Weighted, below, exponential, normal, stream_of, unit};
use crate::scenario::Spread;

/// Draws of one component that follow one distribution.
#[derive(Debug)]
pub(super) struct Amounts<'a> {
    spread: &'a Spread,
    /// The weights, where values are drawn by weight.
    table: Option<Weighted>,
    seed: u64,
    component: Component,
}

impl<'a> Amounts<'a> {
    /// Those of `component` in a run with `seed`.
    pub(super) fn new(spread: &'a Spread, seed: u64, component: Component) -> Self {
        let table = match spread {
            Spread::Zipf { exponent, low, high } => {
                let count = u32::try_from(high - low + 1).unwrap_or(u32::MAX);
                Some(Weighted::zipf(count, *exponent))
            }
            Spread::Empirical(values) => Some(Weighted::of(values.iter().map(|(_, weight)| *weight))),
            _ => None,
        };
        Self { spread, table, seed, component }
    }

    /// The amount of item `index`.
    pub(super) fn of(&self, index: u64) -> u64 {
        if let Spread::Fixed(amount) = self.spread {
            return *amount;
        }
        self.draw(&mut stream_of(self.seed, self.component, index))
    }

    /// The same where it counts tokens, which are fewer than 2^32.
    pub(super) fn tokens(&self, index: u64) -> u32 {
        u32::try_from(self.of(index)).unwrap_or(u32::MAX)
    }

    fn draw(&self, draws: &mut Pcg64) -> u64 {
        let ranked = |draws: &mut Pcg64| self.table.as_ref().map_or(0, |table| table.draw(draws));
        let within = |value: f64, low: u64, high: u64| (value.round().max(0.0) as u64).clamp(low, high);
        match self.spread {
            Spread::Fixed(amount) => *amount,
            Spread::Uniform { low, high } if high - low < u64::from(u32::MAX) => {
                low + below(draws, (high - low + 1) as usize) as u64
            }
            Spread::Uniform { low, high } => low + ((high - low) as f64 * unit(draws)) as u64,
            Spread::Lognormal { median, sigma, low, high } => {
                within(median * (sigma * normal(draws)).exp(), *low, *high)
            }
            Spread::Exponential { mean, low, high } => within(mean * exponential(draws), *low, *high),
            Spread::Zipf { low, .. } => low + ranked(draws) as u64,
            Spread::Empirical(values) => values[ranked(draws)].0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::draws::testing::normal_cdf;
    use super::*;
    use crate::statistics::kolmogorov::distance;

    const COUNT: u64 = 100_000;

    fn drawn(spread: &Spread) -> Vec<f64> {
        let amounts = Amounts::new(spread, 11, Component::Question);
        (0..COUNT).map(|index| amounts.of(index) as f64).collect()
    }

    /// Shares of whole values agree with their probabilities within five standard deviations.
    fn follows(spread: &Spread, probability: impl Fn(u64) -> f64) {
        let values = drawn(spread);
        let (low, high) = spread.bounds();
        let all: f64 = (low..=high).map(&probability).sum();
        assert!((all - 1.0).abs() < 1e-9, "{spread:?}: probabilities add up to {all}");
        for value in low..=high {
            let share = values.iter().filter(|v| **v == value as f64).count() as f64;
            let expected = COUNT as f64 * probability(value);
            let deviation = (expected * (1.0 - probability(value))).sqrt();
            assert!((share - expected).abs() <= 5.0 * deviation + 1.0, "{spread:?} {value}: {share}");
        }
        let mean = values.iter().sum::<f64>() / COUNT as f64;
        assert!((mean / spread.mean() - 1.0).abs() < 0.02, "{spread:?}: mean {mean}");
    }

    #[test]
    fn fixed_amounts_draw_nothing() {
        assert!(drawn(&Spread::Fixed(7)).iter().all(|value| *value == 7.0));
    }

    #[test]
    fn uniform_amounts_are_even() {
        follows(&Spread::Uniform { low: 3, high: 12 }, |_| 0.1);
        let wide = Spread::Uniform { low: 0, high: 10_000_000_000 };
        assert!(distance(drawn(&wide), |ns| ns / 1e10) < 1.0);
    }

    #[test]
    fn zipf_amounts_follow_their_ranks() {
        let all: f64 = (1..=40).map(|k| f64::from(k).powf(-1.3)).sum();
        follows(&Spread::Zipf { exponent: 1.3, low: 5, high: 44 }, |value| {
            ((value - 4) as f64).powf(-1.3) / all
        });
    }

    #[test]
    fn empirical_amounts_follow_their_weights() {
        let weights = [(3, 1.0), (4, 0.0), (5, 6.0), (6, 3.0)];
        follows(&Spread::Empirical(weights.into()), |value| weights[value as usize - 3].1 / 10.0);
    }

    #[test]
    fn lognormal_amounts_have_normal_logarithms_and_keep_their_bounds() {
        // In nanoseconds rounding does not show.
        let (median, sigma) = (2e9, 0.8);
        let spread = Spread::Lognormal { median, sigma, low: 0, high: u64::MAX };
        let values = drawn(&spread);
        let mean = values.iter().sum::<f64>() / COUNT as f64;
        assert!((mean / spread.mean() - 1.0).abs() < 0.015, "e^(σ²/2) times the median: {mean}");
        assert!(distance(values, |ns| normal_cdf((ns / median).ln() / sigma)) < 1.0);

        let bounded = drawn(&Spread::Lognormal { median: 200.0, sigma, low: 100, high: 300 });
        let share = |of: f64| bounded.iter().filter(|v| **v == of).count() as f64 / COUNT as f64;
        // Whatever rounds to the bound or lies beyond it.
        let (below, above) =
            (normal_cdf((100.5f64 / 200.0).ln() / sigma), 1.0 - normal_cdf((299.5f64 / 200.0).ln() / sigma));
        assert!((share(100.0) - below).abs() < 0.006 && (share(300.0) - above).abs() < 0.006);
    }

    #[test]
    fn exponential_amounts_are() {
        let spread = Spread::Exponential { mean: 3e9, low: 0, high: u64::MAX };
        assert!(distance(drawn(&spread), |ns| 1.0 - (-ns / 3e9).exp()) < 1.0);
    }

    #[test]
    fn items_and_components_are_independent() {
        let spread = Spread::Uniform { low: 0, high: 1_000_000 };
        let of = |seed, component| Amounts::new(&spread, seed, component).of(5);
        assert_eq!(of(1, Component::Question), of(1, Component::Question));
        assert_ne!(of(1, Component::Question), of(2, Component::Question));
        assert_ne!(of(1, Component::Question), of(1, Component::Output));
        let values = drawn(&spread);
        let pairs = values.windows(2).map(|w| (w[0] - 5e5) * (w[1] - 5e5)).sum::<f64>() / COUNT as f64;
        assert!((pairs / (1e12 / 12.0)).abs() < 0.02, "neighbours are not correlated: {pairs}");
    }

    #[test]
    fn what_is_drawn_outside_of_the_bounds_counts_as_the_bound() {
        let values = drawn(&Spread::Exponential { mean: 100.0, low: 50, high: 200 });
        let share = |of: f64| values.iter().filter(|v| **v == of).count() as f64 / COUNT as f64;
        assert!(values.iter().all(|v| (50.0..=200.0).contains(v)));
        let (below, above) = (1.0 - (-50.5f64 / 100.0).exp(), (-199.5f64 / 100.0).exp());
        assert!((share(50.0) - below).abs() < 0.006 && (share(200.0) - above).abs() < 0.006);
    }
}
