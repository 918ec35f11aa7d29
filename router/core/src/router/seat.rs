//! Who decides about the workers of one role: its policy, and who of them is warming up.

use super::warm_up::{WarmUp, WarmUps};
use crate::Unroutable;
use crate::fleet::Worker;
use crate::policy::{Choice, Decision, Policy, PolicyConfig, PolicyId, Signals};

/// The policy of one role, what it needs to know, and the workers that warm up under it.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) signals: Signals,
    pub(super) policy: Box<dyn Policy>,
    pub(super) policy_id: PolicyId,
    pub(super) warm_ups: WarmUps,
}

impl Seat {
    pub(super) fn new(config: &PolicyConfig, warm_up: Option<WarmUp>) -> Self {
        Self {
            signals: config.signals(),
            policy: config.build(),
            policy_id: config.id(),
            warm_ups: WarmUps::new(warm_up),
        }
    }

    /// Goes on with other options of the same policy, or with another policy, which is told of all `workers` of the role.
    pub(super) fn change<'a>(
        &mut self,
        now_ns: u64,
        config: &PolicyConfig,
        workers: impl Iterator<Item = &'a Worker>,
    ) {
        if self.policy_id != config.id() || !self.policy.reconfigure(config) {
            self.policy = config.build();
            workers.for_each(|worker| self.policy.worker_added(worker));
        }
        self.policy.tick(now_ns);
        (self.policy_id, self.signals) = (config.id(), config.signals());
        if self.signals.prefix_index.is_none() {
            self.warm_ups.end_all();
        }
    }

    /// The policy's choice, or who gets the request in its stead.
    pub(super) fn choose<'d>(&self, decision: &'d Decision<'_>) -> Result<Choice<'d>, Unroutable> {
        self.policy.choose(decision).map(|choice| self.warm_ups.divert(decision, choice))
    }

    /// The choice is booked.
    pub(super) fn booked(&mut self, decision: &Decision<'_>, choice: Choice<'_>) {
        self.policy.booked(decision, choice);
        self.warm_ups.booked(decision, choice);
    }
}
