//! Decisions about the workers of one scope, for the tests of these: live requests are planned.

use super::{Proposal, Router};
use crate::index::Matches;
use crate::request::{Assignment, RouteRequest, Unroutable};

impl Router {
    /// Chooses a worker and books the request on it. `matches` is the index's answer for the request's prompt, or empty.
    ///
    /// # Errors
    /// No worker can have the request; nothing is booked.
    pub(crate) fn assign(
        &mut self,
        now_ns: u64,
        request: &RouteRequest<'_>,
        matches: &Matches,
    ) -> Result<Assignment, Unroutable> {
        let leg = {
            let mut slot = None;
            let draft = self.state.draft(&self.seats, now_ns, (request, matches), 0, &mut slot)?;
            draft.settle(&mut self.seats)
        };
        Ok(self.enter(now_ns, leg, None))
    }

    /// What [`Router::assign`] would choose now.
    ///
    /// # Errors
    /// As [`Router::assign`].
    pub(crate) fn propose(
        &self,
        now_ns: u64,
        request: &RouteRequest<'_>,
        matches: &Matches,
    ) -> Result<Proposal, Unroutable> {
        let mut slot = None;
        let draft = self.state.draft(&self.seats, now_ns, (request, matches), 0, &mut slot)?;
        Ok(draft.proposal())
    }
}
