//! How a router is to work.

use crate::breaker::BreakerConfig;
use crate::plan::PairPreference;
use crate::policy::{Policies, PolicyConfig};

use super::warm_up::WarmUp;

/// Nanoseconds between two questions for a worker's load.
const DEFAULT_LOAD_POLL_INTERVAL_NS: u64 = 1_000_000_000;

/// Poll intervals, counted from the asking, for which a load report is believed: one that is lost is made good by the
/// next, a second one is news.
const REPORT_LIFE: u64 = 3;

/// How a router is to work.
#[derive(Debug, Clone)]
pub struct RouterConfig {
    /// The policies and their options.
    pub policies: Policies,
    /// Where random draws come from.
    pub seed: u64,
    /// Nanoseconds between two questions for a worker's load.
    pub load_poll_interval_ns: u64,
    /// When workers that fail are left alone; `None` is never.
    pub breaker: Option<BreakerConfig>,
    /// How workers with a cold cache are brought to their share; `None` is not at all.
    pub warm_up: Option<WarmUp>,
    /// Most decode streams that run at a time on what one prefill worker computed; `None` is any number.
    pub decode_dispatch_limit: Option<u32>,
    /// Pair or regular worker, where a model is served by both.
    pub pair: PairPreference,
}

/// A configuration that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Nobody can be asked all the time.
    #[error("the load poll interval must be above 0")]
    NoPollInterval,
    /// Not a share.
    #[error("the warm-up share must be a number from 0 up")]
    NoShare,
    /// Nobody could ever have a decode stream.
    #[error("the decode dispatch limit must be above 0")]
    NoDispatch,
}

// === impl RouterConfig ===

impl RouterConfig {
    /// This policy for all roles and this seed, the rest by default.
    #[must_use]
    pub fn new(policy: PolicyConfig, seed: u64) -> Self {
        Self {
            policies: Policies::all(policy),
            seed,
            load_poll_interval_ns: DEFAULT_LOAD_POLL_INTERVAL_NS,
            breaker: None,
            warm_up: None,
            decode_dispatch_limit: None,
            pair: PairPreference::default(),
        }
    }

    /// Whether it can work.
    pub(super) fn check(&self) -> Result<(), PolicyError> {
        let is_share = |share: f64| share >= 0.0 && share.is_finite();
        if self.load_poll_interval_ns == 0 {
            return Err(PolicyError::NoPollInterval);
        }
        if self.warm_up.is_some_and(|warm_up| !is_share(warm_up.share)) {
            return Err(PolicyError::NoShare);
        }
        if self.decode_dispatch_limit == Some(0) {
            return Err(PolicyError::NoDispatch);
        }
        Ok(())
    }

    /// How long load reports are believed, in nanoseconds from the asking; `None` if nobody wants them.
    pub(super) fn report_ttl_ns(&self) -> Option<u64> {
        let ttl_ns = self.load_poll_interval_ns.saturating_mul(REPORT_LIFE);
        self.policies.signals().loads.then_some(ttl_ns)
    }
}
