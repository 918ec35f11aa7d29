//! What lets engines step together.

use super::{Engine, Phase, Step};
use crate::time::Ticks;

impl Engine {
    /// When the step in progress ends.
    pub(crate) fn step_end(&self) -> Option<Ticks> {
        match self.phase {
            Phase::Step(Step { ends, .. }) => Some(ends),
            Phase::Idle | Phase::Pass(_) => None,
        }
    }

    /// Nothing of this engine ends or begins before `until`: the step in progress lasts so long, and one that has no
    /// work waits.
    pub(crate) fn hold(&mut self, until: Ticks) {
        match &mut self.phase {
            Phase::Step(step) => step.ends = step.ends.max(until),
            Phase::Pass(at) => *at = (*at).max(until),
            Phase::Idle => {}
        }
        self.not_before = self.not_before.max(until);
    }
}
