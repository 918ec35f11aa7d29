//! How fast the ranks step: slower than they should, or now and then faster and slower.

use protocol::tokenizer::mix;

use crate::config::LiveConfig;

/// How much longer steps take than the cost model says.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepSpeed {
    slowness: f64,
    /// Up to this share more or less.
    jitter: f64,
    seed: u64,
    draws: u64,
}

impl StepSpeed {
    /// As configured, for the worker at this place of its host.
    pub(super) fn new(config: &LiveConfig, index: u64) -> Self {
        Self { slowness: 1.0, jitter: config.jitter, seed: mix(config.jitter_seed ^ mix(index)), draws: 0 }
    }

    pub(super) fn slowness(&self) -> f64 {
        self.slowness
    }

    pub(super) fn set_slowness(&mut self, slowness: f64) {
        self.slowness = slowness;
    }

    /// The factor for the next step, where steps differ.
    pub(super) fn draw(&mut self) -> Option<f64> {
        if self.jitter <= 0.0 {
            return None;
        }
        self.draws += 1;
        let share = (mix(self.seed ^ mix(self.draws)) >> 11) as f64 / (1u64 << 53) as f64;
        Some(self.slowness * (1.0 + self.jitter * (2.0 * share - 1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_within_its_share_and_follows_the_seed() {
        let factors = |seed, index| {
            let config = LiveConfig { jitter: 0.2, jitter_seed: seed, ..LiveConfig::default() };
            let mut speed = StepSpeed::new(&config, index);
            speed.set_slowness(3.0);
            (0..1000).filter_map(|_| speed.draw()).collect::<Vec<f64>>()
        };
        let all = factors(1, 0);
        assert!(all.iter().all(|factor| (2.4..=3.6).contains(factor)));
        let mean = all.iter().sum::<f64>() / 1000.0;
        assert!((2.95..3.05).contains(&mean), "{mean}");
        assert_eq!(all, factors(1, 0));
        assert!(all != factors(2, 0) && all != factors(1, 1));
        assert_eq!(StepSpeed::new(&LiveConfig::default(), 0).draw(), None);
    }
}
