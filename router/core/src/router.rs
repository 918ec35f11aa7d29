//! The router: one policy, the fleet and the ledger behind one set of calls.
//!
//! It reads no clock and draws from no hidden source: the same calls with the same arguments give the same answers, in a
//! live process and in virtual time. It does not hold the prefix index, whose lookup is made outside the lock that guards
//! this; its answer comes in with the request.

mod eligible;

use eligible::{Members, Survey};

use crate::breaker::{BreakerConfig, BreakerView};
use crate::fleet::{Fleet, Role, Worker, WorkerSpec};
use crate::index::Matches;
use crate::ledger::loads::LoadReport;
use crate::ledger::{Account, Cursor, Finished, LeaseId, Ledger, Load, Outcome, Tally};
use crate::policy::{Choice, Policy, PolicyConfig, Reason, Signals};
use crate::prompt::{CHARS_PER_TOKEN, INDEXED_BYTES, PromptView};
use crate::request::{Assignment, RouteRequest, UnknownModel, Unroutable};
use crate::{ScopeId, WorkerId};

/// Nanoseconds between two questions for a worker's load.
const DEFAULT_LOAD_POLL_INTERVAL_NS: u64 = 1_000_000_000;

/// Poll intervals, counted from the asking, for which a load report is believed: one that is lost is made good by the
/// next, a second one is news.
const REPORT_LIFE: u64 = 3;

/// How a router is to work.
#[derive(Debug, Clone)]
pub struct RouterConfig {
    /// The policy and its options.
    pub policy: PolicyConfig,
    /// Where random draws come from.
    pub seed: u64,
    /// Nanoseconds between two questions for a worker's load.
    pub load_poll_interval_ns: u64,
    /// When workers that fail are left alone; `None` is never.
    pub breaker: Option<BreakerConfig>,
}

/// A configuration that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Nobody can be asked all the time.
    #[error("the load poll interval must be above 0")]
    NoPollInterval,
}

/// A worker and what is in flight on it.
#[derive(Debug, Clone, Copy)]
pub struct WorkerView<'a> {
    /// The worker.
    pub worker: &'a Worker,
    /// What this router has in flight on it.
    pub load: Load,
    /// How its legs ended so far.
    pub tally: Tally,
    /// Its breaker.
    pub breaker: BreakerView,
}

/// What would be booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proposal {
    /// The worker.
    pub worker: WorkerId,
    /// Why that one.
    pub reason: Reason,
    /// Characters of the prompt that the index believes to be in its cache.
    pub matched_chars: u64,
}

/// Decides where requests go, and keeps the books about it.
#[derive(Debug)]
pub struct Router {
    signals: Signals,
    policy: Box<dyn Policy>,
    state: State,
}

/// What a decision looks at, apart from the request.
#[derive(Debug)]
struct State {
    config: RouterConfig,
    fleet: Fleet,
    ledger: Ledger,
}

// === impl RouterConfig ===

impl RouterConfig {
    /// This policy and seed, the rest by default.
    #[must_use]
    pub fn new(policy: PolicyConfig, seed: u64) -> Self {
        Self { policy, seed, load_poll_interval_ns: DEFAULT_LOAD_POLL_INTERVAL_NS, breaker: None }
    }

    /// How long a load report is believed, in nanoseconds from the asking.
    fn load_report_ttl_ns(&self) -> u64 {
        self.load_poll_interval_ns.saturating_mul(REPORT_LIFE)
    }
}

// === impl Proposal ===

impl Proposal {
    fn of(choice: Choice<'_>) -> Self {
        let Choice { candidate, reason } = choice;
        Self { worker: candidate.worker, reason, matched_chars: candidate.matched_chars }
    }
}

// === impl Router ===

impl Router {
    /// A router without workers.
    ///
    /// # Errors
    /// The configuration cannot work.
    pub fn new(config: RouterConfig) -> Result<Self, PolicyError> {
        if config.load_poll_interval_ns == 0 {
            return Err(PolicyError::NoPollInterval);
        }
        let signals = config.policy.signals();
        let ledger = Ledger::new(signals.loads.then_some(config.load_report_ttl_ns()), config.breaker);
        let policy = config.policy.build();
        Ok(Self { signals, policy, state: State { config, fleet: Fleet::new(), ledger } })
    }

    /// How it was told to work.
    #[must_use]
    pub fn config(&self) -> &RouterConfig {
        &self.state.config
    }

    /// What its policy needs to be told.
    #[must_use]
    pub fn signals(&self) -> Signals {
        self.signals
    }

    /// Adds a worker behind all others, healthy. Its id is its place in the order of adding, from 0.
    pub fn add_worker(&mut self, _now_ns: u64, spec: WorkerSpec) -> WorkerId {
        let worker = self.state.fleet.add(spec);
        self.state.ledger.open(worker.id);
        self.policy.worker_added(worker);
        worker.id
    }

    /// Takes a worker out of the fleet; what is in flight on it stays booked until it ends. False if there is no such one.
    pub fn remove_worker(&mut self, _now_ns: u64, id: WorkerId) -> bool {
        let removed = self.state.fleet.remove(id);
        if removed {
            self.state.ledger.retire(id);
            self.policy.worker_removed(id);
        }
        removed
    }

    /// Says whether a worker may get requests; whether that is news. Its breaker is a fact of its own, and is not moved. A
    /// worker that comes back after it was down may have lost its cache: the caller should then clear it in the prefix
    /// index.
    pub fn set_healthy(&mut self, now_ns: u64, id: WorkerId, healthy: bool) -> bool {
        let changed = self.state.fleet.set_healthy(id, healthy);
        if changed {
            self.state.ledger.report(now_ns, id, None);
        }
        changed
    }

    /// Says which model a worker serves, as far as that was found out; whether that is news. It changes which scopes the
    /// worker belongs to.
    pub fn set_model(&mut self, id: WorkerId, model: Option<String>) -> bool {
        self.state.fleet.set_model(id, model)
    }

    /// The scope of the workers of a role that serve `model`: one of that very name, or of the part before the first `:`
    /// (SGLang's `base:adapter` names of LoRA adapters). Any other name, and none, means all workers of the role.
    ///
    /// # Errors
    /// All workers of the role state their model, these differ, and none has this name.
    pub fn scope(&self, role: Role, model: Option<&str>) -> Result<ScopeId, UnknownModel> {
        self.state.fleet.scope(role, model)
    }

    /// The model of a scope; `None` if it takes in every one.
    #[must_use]
    pub fn scope_model(&self, scope: ScopeId) -> Option<&str> {
        self.state.fleet.scope_model(scope)
    }

    /// Chooses a worker and books the request on it. `matches` is the index's answer for the request's prompt, or empty.
    ///
    /// # Errors
    /// No worker can have the request; nothing is booked.
    pub fn assign(
        &mut self,
        now_ns: u64,
        request: &RouteRequest<'_>,
        matches: &Matches,
    ) -> Result<Assignment, Unroutable> {
        let mut members = Members::new();
        let survey = Survey { state: &self.state, now_ns, request, matches };
        let decision = survey.decision(&mut members)?;
        let choice = self.policy.choose(&decision)?;
        self.policy.booked(&decision, choice);
        let Proposal { worker, reason, matched_chars } = Proposal::of(choice);
        // What it looked at can be changed from here on.
        drop(decision);
        let lease = self.state.ledger.book(now_ns, worker, request.prompt_tokens);
        let predicted =
            self.signals.prefix_index.map(|_| predicted_cached_tokens(request, matches, matched_chars));
        Ok(Assignment {
            worker,
            lease,
            reason,
            matched_chars,
            prompt_chars: matches.prompt_chars(),
            predicted_cached_tokens: predicted,
        })
    }

    /// What [`Router::assign`] would choose now.
    ///
    /// # Errors
    /// As [`Router::assign`].
    pub fn propose(
        &self,
        now_ns: u64,
        request: &RouteRequest<'_>,
        matches: &Matches,
    ) -> Result<Proposal, Unroutable> {
        let mut members = Members::new();
        let survey = Survey { state: &self.state, now_ns, request, matches };
        let decision = survey.decision(&mut members)?;
        self.policy.choose(&decision).map(Proposal::of)
    }

    /// The first token of a leg came. False if its lease has ended.
    pub fn first_token(&mut self, now_ns: u64, lease: LeaseId) -> bool {
        self.state.ledger.first_token(now_ns, lease)
    }

    /// A leg has given `output_tokens` so far. False if its lease has ended.
    pub fn progress(&mut self, now_ns: u64, lease: LeaseId, output_tokens: u64) -> bool {
        self.state.ledger.progress(now_ns, lease, output_tokens)
    }

    /// A leg has ended, however. Ending it again does nothing.
    pub fn finish(&mut self, now_ns: u64, lease: LeaseId, outcome: Outcome) -> Finished {
        self.state.ledger.finish(now_ns, lease, outcome)
    }

    /// A worker's answer to the question for its load that was sent at `asked_ns`; `None` if it gave none that is
    /// understood.
    pub fn report_loads(&mut self, asked_ns: u64, now_ns: u64, worker: WorkerId, report: Option<LoadReport>) {
        self.state.ledger.report(asked_ns.min(now_ns), worker, report);
    }

    /// Time has come to `now_ns`.
    pub fn tick(&mut self, now_ns: u64) {
        self.policy.tick(now_ns);
    }

    /// When [`Router::tick`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.policy.next_deadline()
    }

    /// The fleet at `now_ns`, in the order of adding.
    pub fn workers(&self, now_ns: u64) -> impl Iterator<Item = WorkerView<'_>> {
        let mut accounts = Cursor::new(self.state.ledger.accounts(), Account::worker);
        self.state.fleet.workers().iter().map(move |worker| {
            let account = accounts.find(worker.id);
            WorkerView {
                worker,
                load: account.map_or_else(Load::default, Account::load),
                tally: account.map_or_else(Tally::default, Account::tally),
                breaker: account.map_or_else(BreakerView::default, |account| account.breaker(now_ns)),
            }
        })
    }

    /// How many legs were booked so far.
    #[must_use]
    pub fn bookings(&self) -> u64 {
        self.state.ledger.bookings()
    }

    /// How many legs have not ended, those on removed workers too.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.state.ledger.open_leases()
    }

    /// Whether the books agree with themselves; for tests, as it walks through all leases.
    ///
    /// # Errors
    /// What does not agree.
    pub fn check(&self) -> Result<(), String> {
        self.state.ledger.check()
    }
}

/// Prompt tokens that a match of `matched_chars` stands for. At least one token of every prompt is computed, since an
/// engine needs it to begin.
fn predicted_cached_tokens(request: &RouteRequest<'_>, matches: &Matches, matched_chars: u64) -> u64 {
    let tokens = match request.prompt {
        PromptView::Tokens(_) => matched_chars / CHARS_PER_TOKEN,
        PromptView::Unreadable => 0,
        PromptView::Text(text) => {
            // The index has looked at the beginning only of a long prompt.
            let looked_at = text.len().min(INDEXED_BYTES) as f64 / text.len().max(1) as f64;
            let share = looked_at * matched_chars as f64 / matches.prompt_chars().max(1) as f64;
            (share * request.prompt_tokens as f64).round() as u64
        }
    };
    tokens.min(request.prompt_tokens.saturating_sub(1))
}

#[cfg(test)]
mod breaker_tests;
#[cfg(test)]
mod tests;
