//! Data-parallel ranks: several engines behind one front end.
//!
//! Each rank has its own scheduler, radix cache and KV. The front end sends each request to one of them, by a rank that
//! the request names or else by its own balancing, none of which looks at prefixes. Without DP attention ranks know
//! nothing of each other; with it they share the layers between the attentions, so that all of them
//! [step together](Ranks#lockstep).
//!
//! | file | idea |
//! |---|---|
//! | [`balance`] | which rank gets the next request |
//! | [`ranks`] | the engines as one |

mod balance;
mod ranks;

pub use balance::LoadBalance;
pub use ranks::Ranks;

use crate::config::{ConfigError, EngineConfig, Pace};

/// How many ranks there are, and what they have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DpConfig {
    /// Ranks (`--dp-size`), at least 1.
    pub size: u32,
    /// Which rank gets a request that names none (`--load-balance-method`).
    pub balance: LoadBalance,
    /// DP attention (`--enable-dp-attention`): all ranks step together, and the bounds on chunks and running requests are
    /// shared among them.
    pub attention: bool,
}

impl DpConfig {
    /// Whether ranks of such engines can be.
    ///
    /// # Errors
    /// The first value that is impossible.
    pub fn validate(self, engine: &EngineConfig) -> Result<(), ConfigError> {
        if self.size == 0 {
            return Err(ConfigError::NoRank);
        }
        if self.is_lockstep() && engine.max_running < self.size {
            return Err(ConfigError::TooFewToShare { max_running: engine.max_running, ranks: self.size });
        }
        self.of_each(engine.clone()).validate()
    }

    /// Whether all ranks step together.
    fn is_lockstep(self) -> bool {
        self.attention && self.size > 1
    }

    /// What each rank gets of an engine's configuration. Where ranks step together every step counts, as it ends when
    /// the longest does.
    fn of_each(self, engine: EngineConfig) -> EngineConfig {
        if !self.is_lockstep() {
            return engine;
        }
        EngineConfig {
            chunked_prefill: engine.chunked_prefill.map(|chunk| chunk / self.size),
            max_running: engine.max_running / self.size,
            pace: Pace::Step,
            ..engine
        }
    }
}

impl Default for DpConfig {
    fn default() -> Self {
        Self { size: 1, balance: LoadBalance::RoundRobin, attention: false }
    }
}
