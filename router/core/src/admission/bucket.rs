//! The token bucket, in whole numbers: nothing is rounded, so the rate holds over any time.

use std::num::NonZeroU32;

/// One token, in units of level: at a rate of one per second the level rises by 1 in a nanosecond.
const TOKEN: u64 = 1_000_000_000;

/// Holds the tokens of one second, and at least one.
#[derive(Debug)]
pub(super) struct Bucket {
    /// Tokens per second, above 0.
    rate: u64,
    level: u64,
    filled_ns: u64,
}

impl Bucket {
    /// Full at time 0. `rate` is in tokens per second.
    pub(super) fn full(rate: NonZeroU32) -> Self {
        let rate = u64::from(rate.get());
        Self { rate, level: rate * TOKEN, filled_ns: 0 }
    }

    /// Adds what has come by `now_ns`.
    pub(super) fn fill(&mut self, now_ns: u64) {
        let came = now_ns.saturating_sub(self.filled_ns).saturating_mul(self.rate);
        self.level = self.level.saturating_add(came).min(self.rate * TOKEN);
        self.filled_ns = self.filled_ns.max(now_ns);
    }

    /// Takes a token, if there is a whole one.
    pub(super) fn take(&mut self) -> bool {
        let rest = self.level.checked_sub(TOKEN);
        self.level = rest.unwrap_or(self.level);
        rest.is_some()
    }

    /// When there is a whole token, as far as known: not after the last filling if there is one.
    pub(super) fn next_token_ns(&self) -> u64 {
        self.filled_ns.saturating_add(TOKEN.saturating_sub(self.level).div_ceil(self.rate))
    }

    /// Nanoseconds between two tokens.
    pub(super) fn interval_ns(&self) -> f64 {
        TOKEN as f64 / self.rate as f64
    }
}
