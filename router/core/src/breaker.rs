//! The circuit breaker of one worker: it keeps requests away from a worker that fails them, and lets a few through to find
//! out whether it has recovered.
//!
//! Closed counts failures in a row, and opens at so many. Open lets nobody through for a fixed time. Half-open hands out
//! permits: at most so many requests at a time, of which one failure opens it again and so many successes close it.
//!
//! What a leg says counts only in the state that it was booked in. Answers of a language model take minutes, and the
//! success of a request from before the opening is no news of the worker's recovery, nor is its failure one of a relapse.
//!
//! An answer that refuses a request (a status of 4xx, or 503 from a full queue) is neither success nor failure. Counted
//! as a failure it would let one client with bad requests, or a busy hour, shut a healthy fleet (sgl-project/sglang#25811,
//! sgl-project/sglang#39464).
//!
//! Health is a separate fact. A worker may get requests if it is healthy and its breaker lets them through; a probe moves
//! no breaker, and a worker that a probe has found back is still left alone until its breaker's time is over: it answers
//! probes, which says little of requests. Workers that fail every request and answer every probe are what breakers are for.

mod view;

pub use view::{BreakerChange, BreakerConfig, BreakerState, BreakerTransitions, BreakerView};

use crate::ledger::Outcome;

/// Whether a request would be let through. Ordered by how little there is against asking the worker nevertheless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gate {
    /// Yes.
    Admits,
    /// Not before this time.
    ShutUntil(u64),
    /// Not while the permits are out.
    Probing,
}

/// The state that a leg was booked in; what the leg says counts in no other. `None`: it was booked against the breaker's
/// will, and says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pass(Option<u64>);

/// One worker's breaker: closed, open or half-open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Breaker {
    config: BreakerConfig,
    phase: Phase,
    /// How many states came before this one.
    epoch: u64,
    transitions: BreakerTransitions,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    Closed {
        failures: u32,
    },
    Open {
        until_ns: u64,
    },
    /// `permits_out` legs that were booked in this state have not ended.
    HalfOpen {
        successes: u32,
        permits_out: u32,
    },
}

// === impl Breaker ===

impl Breaker {
    pub(crate) fn new(config: BreakerConfig) -> Self {
        Self {
            config,
            phase: Phase::Closed { failures: 0 },
            epoch: 0,
            transitions: BreakerTransitions::default(),
        }
    }

    /// Whether a request would be let through at `now_ns`.
    pub(crate) fn gate(&self, now_ns: u64) -> Gate {
        match self.phase {
            Phase::Open { until_ns } if now_ns < until_ns => Gate::ShutUntil(until_ns),
            Phase::HalfOpen { permits_out, .. } if permits_out >= self.permits() => Gate::Probing,
            _ => Gate::Admits,
        }
    }

    /// A leg is booked: it takes a permit, if permits are needed. The books go on also against the breaker's will.
    pub(crate) fn book(&mut self, now_ns: u64) -> Pass {
        self.advance(now_ns);
        let permits = self.permits();
        match &mut self.phase {
            Phase::Closed { .. } => Pass(Some(self.epoch)),
            Phase::HalfOpen { permits_out, .. } if *permits_out < permits => {
                *permits_out += 1;
                Pass(Some(self.epoch))
            }
            Phase::Open { .. } | Phase::HalfOpen { .. } => Pass(None),
        }
    }

    /// A leg has ended; from which state to which that moved the breaker, if it did.
    pub(crate) fn settle(
        &mut self,
        now_ns: u64,
        pass: Pass,
        outcome: Outcome,
    ) -> Option<(BreakerState, BreakerState)> {
        if !self.is_current(pass) {
            return None;
        }
        let from = self.phase.state();
        self.phase = match self.phase {
            Phase::Closed { failures } => self.after_closed(now_ns, failures, outcome),
            Phase::HalfOpen { successes, permits_out } => {
                self.after_trial(now_ns, successes, permits_out.saturating_sub(1), outcome)
            }
            // Nothing is booked in this state.
            open @ Phase::Open { .. } => open,
        };
        let to = self.phase.state();
        (from != to).then(|| {
            self.count(from, to);
            (from, to)
        })
    }

    /// What it looks like at `now_ns`.
    pub(crate) fn view(&self, now_ns: u64) -> BreakerView {
        let mut then = *self;
        then.advance(now_ns);
        let (consecutive_failures, consecutive_successes) = match then.phase {
            Phase::Closed { failures } => (failures, 0),
            Phase::Open { .. } => (0, 0),
            Phase::HalfOpen { successes, .. } => (0, successes),
        };
        BreakerView {
            state: then.phase.state(),
            consecutive_failures,
            consecutive_successes,
            transitions: then.transitions,
        }
    }

    /// Whether the permits that are out are those of `passes`; for tests.
    pub(crate) fn check(&self, passes: impl Iterator<Item = Pass>) -> Result<(), String> {
        let Phase::HalfOpen { permits_out, .. } = self.phase else { return Ok(()) };
        let held = passes.filter(|pass| self.is_current(*pass)).count();
        if held == permits_out as usize && permits_out <= self.permits() {
            return Ok(());
        }
        Err(format!("{permits_out} permits are out of {}, and {held} are held", self.permits()))
    }

    fn after_closed(&self, now_ns: u64, failures: u32, outcome: Outcome) -> Phase {
        match outcome {
            Outcome::Completed => Phase::Closed { failures: 0 },
            Outcome::Refused | Outcome::ClientGone => Phase::Closed { failures },
            Outcome::Failed if failures + 1 >= self.config.failure_threshold => self.opened(now_ns),
            Outcome::Failed => Phase::Closed { failures: failures + 1 },
        }
    }

    fn after_trial(&self, now_ns: u64, successes: u32, permits_out: u32, outcome: Outcome) -> Phase {
        match outcome {
            Outcome::Failed => self.opened(now_ns),
            Outcome::Completed if successes + 1 >= self.config.success_threshold => {
                Phase::Closed { failures: 0 }
            }
            Outcome::Completed => Phase::HalfOpen { successes: successes + 1, permits_out },
            Outcome::Refused | Outcome::ClientGone => Phase::HalfOpen { successes, permits_out },
        }
    }

    fn opened(&self, now_ns: u64) -> Phase {
        Phase::Open { until_ns: now_ns.saturating_add(self.config.open_ns) }
    }

    /// Goes from open to half-open when it is time.
    fn advance(&mut self, now_ns: u64) {
        if let Phase::Open { until_ns } = self.phase
            && now_ns >= until_ns
        {
            self.phase = Phase::HalfOpen { successes: 0, permits_out: 0 };
            self.count(BreakerState::Open, BreakerState::HalfOpen);
        }
    }

    /// A new state has begun.
    fn count(&mut self, from: BreakerState, to: BreakerState) {
        self.epoch += 1;
        let counter = match (from, to) {
            (BreakerState::Closed, _) => &mut self.transitions.closed_to_open,
            (BreakerState::Open, _) => &mut self.transitions.open_to_half_open,
            (BreakerState::HalfOpen, BreakerState::Open) => &mut self.transitions.half_open_to_open,
            (BreakerState::HalfOpen, _) => &mut self.transitions.half_open_to_closed,
        };
        *counter += 1;
    }

    fn is_current(&self, pass: Pass) -> bool {
        pass.0 == Some(self.epoch)
    }

    fn permits(&self) -> u32 {
        self.config.half_open_permits.max(1)
    }
}

// === impl Phase ===

impl Phase {
    fn state(self) -> BreakerState {
        match self {
            Phase::Closed { .. } => BreakerState::Closed,
            Phase::Open { .. } => BreakerState::Open,
            Phase::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }
}

#[cfg(test)]
mod tests;
