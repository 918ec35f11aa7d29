//! `new_token_ratio`: which share of the output still to come is reserved when requests are admitted.
//!
//! SGLang bets that replies end before their limit. The bet gets bolder with every decode step and is taken back
//! when it is lost, that is when a request had to be retracted.

/// Decode steps from the first value to the least one.
const DECAY_STEPS: f64 = 600.0;
/// The first value at a conservativeness of 1.
const FIRST: f64 = 0.7;
/// The least value as a share of the first.
const LEAST: f64 = 0.14;
/// Output tokens that every request is given to make before the next retraction.
const RETRACT_STEPS: u64 = 20;

#[derive(Debug, Clone)]
pub(crate) struct NewTokenRatio {
    first: f64,
    /// The value at `since`; a product over the steps since then and not a sum, so that a stretch of steps gives
    /// the same as its steps one by one.
    from: f64,
    since: u64,
}

impl NewTokenRatio {
    pub(crate) fn new(conservativeness: f64) -> Self {
        let first = (FIRST * conservativeness).min(1.0);
        Self { first, from: first, since: 0 }
    }

    /// The value after `steps` decode steps since the start.
    pub(crate) fn at(&self, steps: u64) -> f64 {
        if steps <= self.since {
            return self.from;
        }
        let least = self.first * LEAST;
        let decay = (self.first - least) / DECAY_STEPS;
        (self.from - decay * (steps - self.since) as f64).max(least)
    }

    /// Nothing is left to do.
    pub(crate) fn reset(&mut self, steps: u64) {
        self.from = self.first;
        self.since = steps;
    }

    /// A step that counts as one of the batch is no decode step.
    pub(crate) fn skip_step(&mut self) {
        self.since += 1;
    }

    /// Requests were retracted before the step after `steps`, which does not decay the ratio; the `left` ones have
    /// made `produced` of `max_new` output tokens.
    pub(crate) fn retracted(&mut self, steps: u64, left: u64, produced: u64, max_new: u64) {
        self.from = ((produced + RETRACT_STEPS * left) as f64 / (max_new + 1) as f64).min(1.0);
        self.since = steps + 1;
    }
}

/// Tokens to have free after a retraction, with `left` requests in the batch.
pub(crate) fn retraction_headroom(left: usize) -> u64 {
    RETRACT_STEPS * left as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_decays_linearly_and_learns_from_retractions() {
        let mut ratio = NewTokenRatio::new(1.0);
        assert!((ratio.at(0) - 0.7).abs() < 1e-12);
        assert!((ratio.at(300) - (0.7 + 0.098) / 2.0).abs() < 1e-12);
        assert!((ratio.at(600) - 0.098).abs() < 1e-12);
        assert!((ratio.at(9_000) - 0.098).abs() < 1e-12);
        ratio.retracted(9_000, 3, 40, 199);
        assert!((ratio.at(9_000) - 0.5).abs() < 1e-12);
        ratio.retracted(9_000, 30, 40, 199);
        assert!((ratio.at(9_000) - 1.0).abs() < 1e-12, "never above 1");
        assert!((ratio.at(9_011) - (1.0 - 10.0 * (0.7 - 0.098) / 600.0)).abs() < 1e-12);
        ratio.reset(9_001);
        assert!((ratio.at(9_001) - 0.7).abs() < 1e-12);
        assert!((NewTokenRatio::new(2.0).at(0) - 1.0).abs() < 1e-12);
    }
}
