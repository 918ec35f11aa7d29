//! The router: a policy for each role, the fleet and the ledger behind one set of calls.
//!
//! It reads no clock and draws from no hidden source: the same calls with the same arguments give the same answers, in a
//! live process and in virtual time. It does not hold the prefix index, whose lookup is made outside the lock that guards
//! this; its answer comes in with the request.

mod config;
mod doubt;
mod draft;
mod eligible;
mod pairing;
mod places;
mod seat;
mod warm_up;
mod workers;

use std::num::NonZeroU32;

pub use config::{PolicyError, RouterConfig};
use doubt::Doubts;
pub use places::Places;
use seat::Seat;
pub use warm_up::WarmUp;
pub use workers::WorkerView;

use crate::fleet::{Fleet, PerRole, Role};
use crate::ledger::loads::LoadReport;
use crate::ledger::{Finished, LeaseId, Ledger, Outcome};
use crate::plan::{PairPreference, Scopes};
use crate::policy::{Policies, Reason, Signals};
use crate::request::UnknownModel;
use crate::{ScopeId, WorkerId};

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
    seats: PerRole<Seat>,
    doubts: Doubts,
    state: State,
}

/// What a decision looks at, apart from the request.
#[derive(Debug)]
struct State {
    config: RouterConfig,
    fleet: Fleet,
    ledger: Ledger,
    /// Of the request that is being placed; given for replays only.
    places: Places,
}

// === impl Router ===

impl Router {
    /// A router without workers.
    ///
    /// # Errors
    /// The configuration cannot work.
    pub fn new(config: RouterConfig) -> Result<Self, PolicyError> {
        config.check()?;
        let seats = PerRole::of(|role| Seat::new(config.policies.get(role), config.warm_up));
        let ledger = Ledger::new(config.report_ttl_ns(), config.breaker);
        Ok(Self {
            seats,
            doubts: Doubts::default(),
            state: State { config, fleet: Fleet::new(), ledger, places: Places::default() },
        })
    }

    /// As [`Router::new`], but as if so many legs had been booked before: draws go on from there. For whoever replays the later
    /// part of what a router did.
    ///
    /// # Errors
    /// As there.
    pub fn resumed(config: RouterConfig, bookings: u64) -> Result<Self, PolicyError> {
        let mut router = Self::new(config)?;
        router.resume(bookings);
        Ok(router)
    }

    /// Goes on as if so many legs had been booked so far, if that are more than were: for whoever replays what a router did
    /// and does not know all of it.
    pub fn resume(&mut self, bookings: u64) {
        self.state.ledger.resume(bookings);
    }

    /// Goes on with other policies, or with other options of the same; returns what they need to be told. Workers, leases,
    /// breakers and, where both want them, load reports stay as they are. What a policy before has learned is lost, but
    /// for the keys that stick under `manual` when only its options change. Nothing happens to a role for which nothing is
    /// changed.
    pub fn set_policies(&mut self, now_ns: u64, policies: Policies) -> Signals {
        let before = std::mem::replace(&mut self.state.config.policies, policies);
        let State { config, fleet, ledger, .. } = &mut self.state;
        for role in Role::ALL {
            let policy = config.policies.get(role);
            if policy != before.get(role) {
                let workers = fleet.workers().iter().filter(|worker| worker.role == role);
                self.seats.get_mut(role).change(now_ns, policy, workers);
            }
        }
        if before != config.policies {
            ledger.set_report_ttl(config.report_ttl_ns());
        }
        self.signals()
    }

    /// Goes on with another limit of decode streams per prefill worker, `None` being any number, and with another preference for
    /// pairs. What is booked stays.
    pub fn set_pairing(&mut self, decode_dispatch_limit: Option<NonZeroU32>, pair: PairPreference) {
        self.state.config.decode_dispatch_limit = decode_dispatch_limit.map(NonZeroU32::get);
        self.state.config.pair = pair;
    }

    /// How it was told to work.
    #[must_use]
    pub fn config(&self) -> &RouterConfig {
        &self.state.config
    }

    /// What its policies need to be told, all together.
    #[must_use]
    pub fn signals(&self) -> Signals {
        self.seats.iter().map(|seat| seat.signals).fold(Signals::default(), Signals::merge)
    }

    /// What the policy of a role needs to be told.
    #[must_use]
    pub fn signals_of(&self, role: Role) -> Signals {
        self.seats.get(role).signals
    }

    /// The scopes of the workers that serve `model`: one of that very name, or of the part before the first `:` (SGLang's
    /// `base:adapter` names of LoRA adapters). Any other name, and none, means all workers. A role of which nobody could
    /// serve it has none.
    ///
    /// # Errors
    /// All workers state their model, these differ, and none has this name.
    pub fn scopes(&self, model: Option<&str>) -> Result<Scopes, UnknownModel> {
        self.state.fleet.scopes(model)
    }

    /// The model of a scope; `None` if it takes in every one.
    #[must_use]
    pub fn scope_model(&self, scope: ScopeId) -> Option<&str> {
        self.state.fleet.scope_model(scope)
    }

    /// Whether there are workers in a scope, able or not.
    #[must_use]
    pub fn has_workers(&self, scope: ScopeId) -> bool {
        self.state.fleet.workers_of(scope).is_some_and(|workers| !workers.members.is_empty())
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
        self.seats.iter_mut().for_each(|seat| seat.policy.tick(now_ns));
    }

    /// When [`Router::tick`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.seats.iter().filter_map(|seat| seat.policy.next_deadline()).min()
    }

    /// How many routing keys its policies remember; `None` if none ever does.
    #[must_use]
    pub fn remembered_keys(&self) -> Option<usize> {
        self.seats.iter().filter_map(|seat| seat.policy.remembered_keys()).reduce(|one, two| one + two)
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

#[cfg(test)]
mod alone;
#[cfg(test)]
mod breaker_tests;
#[cfg(test)]
mod policy_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod worker_tests;
