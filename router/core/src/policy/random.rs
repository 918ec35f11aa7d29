//! `random`: any worker.

use super::table::PolicyRow;
use super::{Choice, Decision, Policy, Reason, Signals};
use crate::Unroutable;

const DRAW: Reason = Reason::new("draw");

pub(super) const ROW: PolicyRow = PolicyRow {
    name: "random",
    summary: "Any worker, each as likely as the others.",
    options: &[],
    reasons: &[DRAW.as_str()],
    needs_header: false,
    fewest_workers: 1,
    fits: |_| true,
    branch_metric: None,
    signals: |_| Signals::default(),
    build: |_| Box::new(Random),
};

#[derive(Debug)]
struct Random;

impl Policy for Random {
    fn choose<'d>(&self, decision: &'d Decision<'_>) -> Result<Choice<'d>, Unroutable> {
        let place = decision.draws().below(decision.candidates.len());
        Ok(Choice::new(decision.candidates.at(place), DRAW))
    }
}
