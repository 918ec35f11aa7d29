//! What is told to a breaker, and what it tells.

use crate::WorkerId;

/// When a breaker opens and closes. Counts of 0 mean 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerConfig {
    /// Failures in a row that open it.
    pub failure_threshold: u32,
    /// Successes in a row that close it when it is half-open.
    pub success_threshold: u32,
    /// Nanoseconds from its opening until it is half-open.
    pub open_ns: u64,
    /// Most requests at a time while it is half-open.
    pub half_open_permits: u32,
    /// When the breakers of all healthy workers refuse: try the open worker that is nearest to its trial (the least
    /// loaded of several, or one on trial if none is open) instead of turning the request away.
    pub try_least_bad: bool,
}

/// What a breaker does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BreakerState {
    /// It lets every request through.
    #[default]
    Closed,
    /// It lets none through.
    Open,
    /// It lets a few through.
    HalfOpen,
}

/// How often a breaker went from which state to which.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BreakerTransitions {
    /// Too many failures in a row.
    pub closed_to_open: u64,
    /// Its time was over.
    pub open_to_half_open: u64,
    /// A failure on trial.
    pub half_open_to_open: u64,
    /// Enough successes on trial.
    pub half_open_to_closed: u64,
}

/// A breaker as seen at some time. Of a worker without a breaker: closed, and all counts 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BreakerView {
    /// What it does.
    pub state: BreakerState,
    /// Failures in a row, on the way to its opening; 0 unless closed.
    pub consecutive_failures: u32,
    /// Successes in a row, on the way to its closing; 0 unless half-open.
    pub consecutive_successes: u32,
    /// State changes so far.
    pub transitions: BreakerTransitions,
}

/// A worker's breaker has changed its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerChange {
    /// Whose.
    pub worker: WorkerId,
    /// The state before.
    pub from: BreakerState,
    /// The state now.
    pub to: BreakerState,
}

// === impl BreakerConfig ===

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            failure_threshold: 10,
            success_threshold: 3,
            open_ns: 60_000_000_000,
            half_open_permits: 1,
            try_least_bad: false,
        }
    }
}

// === impl BreakerState ===

impl BreakerState {
    /// Every state.
    pub const ALL: [BreakerState; 3] = [BreakerState::Closed, BreakerState::Open, BreakerState::HalfOpen];

    /// The word used in logs, metrics and answers.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            BreakerState::Closed => "closed",
            BreakerState::Open => "open",
            BreakerState::HalfOpen => "half_open",
        }
    }

    /// The number used in metrics.
    #[must_use]
    pub fn gauge(self) -> u8 {
        match self {
            BreakerState::Closed => 0,
            BreakerState::Open => 1,
            BreakerState::HalfOpen => 2,
        }
    }
}

// === impl BreakerTransitions ===

impl BreakerTransitions {
    /// (from, to, how often) of every change that can be.
    pub fn iter(&self) -> impl Iterator<Item = (BreakerState, BreakerState, u64)> {
        use BreakerState::{Closed, HalfOpen, Open};
        [
            (Closed, Open, self.closed_to_open),
            (Open, HalfOpen, self.open_to_half_open),
            (HalfOpen, Open, self.half_open_to_open),
            (HalfOpen, Closed, self.half_open_to_closed),
        ]
        .into_iter()
    }
}
