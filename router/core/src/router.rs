//! The router: one policy, the fleet and the ledger behind one set of calls.
//!
//! It reads no clock and draws from no hidden source: the same calls with the same arguments give the same answers, in a
//! live process and in virtual time. It does not hold the prefix index, whose lookup is made outside the lock that guards
//! this; its answer comes in with the request.

mod doubt;
mod eligible;
mod warm_up;
mod workers;

use doubt::Doubts;
use eligible::Survey;
pub use warm_up::WarmUp;
use warm_up::WarmUps;
pub use workers::WorkerView;

use crate::breaker::BreakerConfig;
use crate::fleet::{Fleet, Role};
use crate::index::Matches;
use crate::ledger::loads::LoadReport;
use crate::ledger::{Account, Finished, LeaseId, Ledger, Outcome};
use crate::policy::{Choice, Decision, Policy, PolicyConfig, PolicyId, Reason, Signals};
use crate::prompt::{CHARS_PER_TOKEN, INDEXED_BYTES, PromptView};
use crate::request::{Assignment, Grounds, RouteRequest, UnknownModel, Unroutable};
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
    /// How workers with a cold cache are brought to their share; `None` is not at all.
    pub warm_up: Option<WarmUp>,
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
    policy_id: PolicyId,
    warm_ups: WarmUps,
    doubts: Doubts,
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
        let load_poll_interval_ns = DEFAULT_LOAD_POLL_INTERVAL_NS;
        Self { policy, seed, load_poll_interval_ns, breaker: None, warm_up: None }
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
        if config.warm_up.is_some_and(|warm_up| !(warm_up.share >= 0.0 && warm_up.share.is_finite())) {
            return Err(PolicyError::NoShare);
        }
        let signals = config.policy.signals();
        let ledger = Ledger::new(signals.loads.then_some(config.load_report_ttl_ns()), config.breaker);
        Ok(Self {
            signals,
            policy: config.policy.build(),
            policy_id: config.policy.id(),
            warm_ups: WarmUps::new(config.warm_up),
            doubts: Doubts::default(),
            state: State { config, fleet: Fleet::new(), ledger },
        })
    }

    /// Goes on with another policy, or with other options of the same; returns what it needs to be told. Workers, leases,
    /// breakers and, where both want them, load reports stay as they are. What the policy before has learned is lost, but
    /// for the keys that stick under `manual` when only its options change. Nothing happens if nothing is changed.
    pub fn set_policy(&mut self, now_ns: u64, policy: PolicyConfig) -> Signals {
        let before = std::mem::replace(&mut self.state.config.policy, policy);
        let policy = &self.state.config.policy;
        if *policy == before {
            return self.signals;
        }
        if before.name() != policy.name() || !self.policy.reconfigure(policy) {
            self.policy = policy.build();
            self.state.fleet.workers().iter().for_each(|worker| self.policy.worker_added(worker));
        }
        self.policy_id = policy.id();
        self.policy.tick(now_ns);
        self.signals = policy.signals();
        let report_ttl_ns = self.signals.loads.then_some(self.state.config.load_report_ttl_ns());
        self.state.ledger.set_report_ttl(report_ttl_ns);
        if self.signals.prefix_index.is_none() {
            self.warm_ups.end_all();
        }
        self.signals
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
        let survey = Survey { state: &self.state, now_ns, request, matches };
        let decision = survey.decision()?;
        let choice = self.choose(&decision)?;
        self.policy.booked(&decision, choice);
        self.warm_ups.booked(&decision, choice);
        let Proposal { worker, reason, matched_chars } = Proposal::of(choice);
        // What it looked at can be changed from here on.
        drop(decision);
        let grounds = self.grounds(worker, matches);
        let lease = self.state.ledger.book(now_ns, worker, request.prompt_tokens, grounds.looked);
        let predicted =
            self.signals.prefix_index.map(|_| predicted_cached_tokens(request, matches, matched_chars));
        Ok(Assignment {
            worker,
            lease,
            policy: self.policy_id,
            reason,
            matched_chars,
            prompt_chars: matches.prompt_chars(),
            predicted_cached_tokens: predicted,
            grounds,
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
        let survey = Survey { state: &self.state, now_ns, request, matches };
        let decision = survey.decision()?;
        self.choose(&decision).map(Proposal::of)
    }

    fn grounds(&self, worker: WorkerId, matches: &Matches) -> Grounds {
        let (credited, head_credited) =
            matches.get(worker).map_or((0, 0), |row| (row.credited, row.head_credited));
        let computing_since = self.state.ledger.account(worker).and_then(Account::computing_since);
        let settled = computing_since.is_none_or(|since| credited <= since);
        Grounds { looked: matches.looked(), head_credited, settled }
    }

    fn choose<'d>(&self, decision: &'d Decision<'_>) -> Result<Choice<'d>, Unroutable> {
        self.policy.choose(decision).map(|choice| self.warm_ups.divert(decision, choice))
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

    /// How many routing keys its policy remembers; `None` if it never does.
    #[must_use]
    pub fn remembered_keys(&self) -> Option<usize> {
        self.policy.remembered_keys()
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
mod policy_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod worker_tests;
