//! `round_robin`: the workers in turn.

use std::collections::BTreeMap;

use super::table::PolicyRow;
use super::{Choice, Decision, Policy, Reason, Signals};
use crate::{ScopeId, Unroutable, WorkerId};

const TURN: Reason = Reason::new("turn");

pub(super) const ROW: PolicyRow = PolicyRow {
    name: "round_robin",
    summary: "The workers in turn.",
    options: &[],
    reasons: &[TURN.as_str()],
    needs_header: false,
    fewest_workers: 1,
    fits: |_| true,
    branch_metric: None,
    signals: |_| Signals::default(),
    build: |_| Box::new(RoundRobin::default()),
};

/// The cursor is the worker that was last booked, not a counter: when workers come and go the others keep their turn.
#[derive(Debug, Default)]
struct RoundRobin {
    last: BTreeMap<ScopeId, WorkerId>,
}

impl Policy for RoundRobin {
    fn choose<'d>(&self, decision: &'d Decision<'_>) -> Result<Choice<'d>, Unroutable> {
        let last = self.last.get(&decision.request.scope);
        let place = last.map_or(0, |last| decision.candidates.place_after(*last));
        Ok(Choice::new(decision.candidates.at(place), TURN))
    }

    fn booked(&mut self, decision: &Decision<'_>, choice: Choice<'_>) {
        self.last.insert(decision.request.scope, choice.candidate.worker);
    }
}
