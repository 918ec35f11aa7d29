//! The attempts of one request.

use smallvec::SmallVec;

use super::{Cause, RetryConfig};
use crate::WorkerId;

/// The attempts of one request that have failed so far.
#[derive(Debug, Clone, Default)]
pub struct Tries {
    /// The workers, each once, in the order in which they were first tried.
    workers: SmallVec<[WorkerId; 4]>,
    /// Before when each of these is not to be tried again.
    gates_ns: SmallVec<[u64; 4]>,
    attempts: u32,
    last: Option<(WorkerId, Cause)>,
}

/// What to do after a failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Try again.
    Retry {
        /// After so many nanoseconds.
        wait_ns: u64,
        /// On none of these workers.
        exclude: SmallVec<[WorkerId; 4]>,
        /// Only if [`super::RetryBudget::draw`] allows it.
        needs_budget: bool,
    },
    /// What came of the last attempt would be worth another one, but attempts, time or the workers' `Retry-After` leave no
    /// room for it. The client gets what came of the last attempt.
    Exhausted,
    /// It is not worth another attempt, or nothing is ever tried twice. The client gets what came of the last attempt.
    Final,
}

impl Tries {
    /// No attempt has failed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An attempt on `worker` has failed at `now_ns`; `retry_after_ns` is what the worker's answer said of when to come
    /// again. A worker that has not finished with an attempt before is as good as any when it has.
    pub fn failed(&mut self, now_ns: u64, worker: WorkerId, cause: Cause, retry_after_ns: Option<u64>) {
        self.attempts += 1;
        self.last = Some((worker, cause));
        if cause == Cause::Duplicate {
            return;
        }
        let gate_ns = now_ns.saturating_add(retry_after_ns.unwrap_or(0));
        match self.workers.iter().position(|tried| *tried == worker) {
            Some(at) => self.gates_ns[at] = self.gates_ns[at].max(gate_ns),
            None => {
                self.workers.push(worker);
                self.gates_ns.push(gate_ns);
            }
        }
    }

    /// How many attempts have failed.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The workers that were tried, each once.
    #[must_use]
    pub fn tried(&self) -> &[WorkerId] {
        &self.workers
    }

    /// What to do after the last failure. `fresh_left`: an eligible worker that was not tried exists. `draw`: uniform in
    /// [0, 1). Nothing is tried after `deadline_ns`.
    #[must_use]
    pub fn next(
        &self,
        config: &RetryConfig,
        now_ns: u64,
        deadline_ns: u64,
        fresh_left: bool,
        draw: f64,
    ) -> Next {
        let Some((last, cause)) = self.last else { return Next::Final };
        if config.max_attempts <= 1 || !config.retries(cause) {
            return Next::Final;
        }
        if self.attempts >= config.max_attempts {
            return Next::Exhausted;
        }
        let backoff_ns = config.backoff_ns(self.attempts - 1, draw);
        // An engine lets go of a request a moment after it was told to.
        let is_at_once = cause.is_free() && cause != Cause::Duplicate;
        let (wait_ns, exclude) = if fresh_left {
            (if is_at_once { 0 } else { backoff_ns }, self.workers.clone())
        } else {
            let earliest_ns = self.gates_ns.iter().copied().min().unwrap_or(0).saturating_sub(now_ns);
            if earliest_ns > config.max_backoff_ns {
                return Next::Exhausted;
            }
            // A connection that had idled for too long says nothing against coming back at once.
            let backoff_ns = if cause == Cause::StaleConnection { 0 } else { backoff_ns };
            let wait_ns = backoff_ns.max(earliest_ns);
            (wait_ns, self.not_again_at(now_ns.saturating_add(wait_ns), last))
        };
        if now_ns.saturating_add(wait_ns) > deadline_ns {
            return Next::Exhausted;
        }
        Next::Retry { wait_ns, exclude, needs_budget: !cause.is_free() }
    }

    /// The workers that are not to be tried a second time at `at_ns`: those that have asked for more time, and the last
    /// one if that leaves another.
    fn not_again_at(&self, at_ns: u64, last: WorkerId) -> SmallVec<[WorkerId; 4]> {
        let gates = self.workers.iter().zip(&self.gates_ns);
        let is_open = |gate_ns: &u64| *gate_ns <= at_ns;
        let spare_last = gates.clone().any(|(worker, gate_ns)| *worker != last && is_open(gate_ns));
        let kept_out =
            gates.filter(|(worker, gate_ns)| !is_open(gate_ns) || (spare_last && **worker == last));
        kept_out.map(|(worker, _)| *worker).collect()
    }
}
