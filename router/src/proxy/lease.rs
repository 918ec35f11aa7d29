//! What a request holds while it is with a worker, as guards: whatever becomes of the request's task, dropping
//! them settles the books.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use router_core::{Assignment, Outcome};

use super::endpoint::Endpoint;
use super::prepare;
use crate::fleet::{Member, Owed, PlannedLeg, Rank};
use crate::shared::Shared;

/// The booking of one request on one worker. Dropped without an outcome, the client has gone.
pub(crate) struct Lease {
    shared: Arc<Shared>,
    member: Arc<Member>,
    rank: Arc<Rank>,
    assignment: Assignment,
    /// The leg that computed the prompt, if that is another one.
    source: Option<Box<Assignment>>,
    open: bool,
}

impl Lease {
    pub(crate) fn new(shared: Arc<Shared>, leg: PlannedLeg) -> Self {
        let PlannedLeg { assignment, rank, member } = leg;
        Self { shared, member, rank, assignment, source: None, open: true }
    }

    /// The same, where another leg computes the prompt.
    pub(crate) fn computed_by(mut self, source: Option<Assignment>) -> Self {
        self.source = source.map(Box::new);
        self
    }

    pub(super) fn assignment(&self) -> &Assignment {
        &self.assignment
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.shared.clock.now_ns()
    }

    /// The first token came.
    pub(crate) fn first_token(&self, now_ns: u64) {
        self.shared.books.lock().router.first_token(now_ns, self.assignment.lease);
    }

    /// `output_tokens` have come so far.
    pub(crate) fn progress(&self, now_ns: u64, output_tokens: u64) {
        self.shared.books.lock().router.progress(now_ns, self.assignment.lease, output_tokens);
    }

    /// The request is over as far as the worker is concerned. What is said after the first time counts for nothing.
    pub(crate) fn settle(&mut self, outcome: Outcome) {
        self.settle_told(outcome, None);
    }

    /// As [`Self::settle`]; and so many tokens of the prompt were in the cache of the worker that computed it. Where that is
    /// far less than was believed, again and again, the cache is not believed in any more.
    pub(crate) fn settle_told(&mut self, outcome: Outcome, cached_tokens: Option<u64>) {
        if std::mem::take(&mut self.open) {
            if outcome == Outcome::Failed {
                self.member.inquire();
            }
            let now_ns = self.now_ns();
            let computed = *self.source.as_deref().unwrap_or(&self.assignment);
            let mut books = self.shared.books.lock();
            let told = |tokens| books.router.told_cached(now_ns, &computed, tokens);
            let is_lost = cached_tokens.is_some_and(told);
            let finished = books.router.finish(now_ns, self.assignment.lease, outcome);
            let lost = is_lost.then(|| books.rank(computed.worker).cloned()).flatten();
            drop(books);
            self.member.request_ended();
            if self.source.is_some() {
                self.shared.dispatch.stream_ended();
            }
            if let Some(lost) = lost {
                tracing::warn!(worker = %lost.url, "its cache holds nothing of what was sent there; taken for empty");
                self.shared.belief.forget(&[computed.worker]);
            }
            if let Some(change) = finished.breaker {
                let (from, to) = (change.from.label(), change.to.label());
                tracing::warn!(worker = %self.rank.url, from, to, "circuit breaker");
                self.shared.turns.notify_waiters();
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.settle(Outcome::ClientGone);
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease")
            .field("id", &self.assignment.lease)
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

/// A booking that no response head has confirmed: the lease, and the credit in the prefix index that is
/// withdrawn unless one comes.
pub(crate) struct Booking {
    /// Declared first, so dropped first: the books are closed before the index is looked at.
    lease: Lease,
    credit: Pledge,
}

/// A credit that is withdrawn when this is dropped before it was kept. The body is kept rather than the prompt:
/// it is there anyway, and read anew only in this rare case.
pub(crate) struct Pledge {
    shared: Arc<Shared>,
    endpoint: &'static Endpoint,
    body: Bytes,
    /// `None` without an index, and once it is settled.
    credit: Option<Owed>,
}

impl Booking {
    pub(crate) fn new(lease: Lease, credit: Pledge) -> Self {
        Self { lease, credit }
    }

    pub(super) fn member(&self) -> &Arc<Member> {
        &self.lease.member
    }

    pub(super) fn rank(&self) -> &Arc<Rank> {
        &self.lease.rank
    }

    /// A response head of this status came. The credit stands if it is one of success: what an engine turns away, it
    /// does not compute.
    pub(crate) fn answered(self, status: StatusCode) -> Lease {
        let Self { lease, mut credit } = self;
        if status.is_success() {
            credit.credit = None;
        }
        lease
    }

    /// An answer of success came in full.
    pub(crate) fn complete(&mut self) {
        self.credit.credit = None;
        self.lease.settle(Outcome::Completed);
    }

    /// No response head came, or nothing to keep behind it.
    pub(crate) fn fail(mut self, outcome: Outcome) {
        self.lease.settle(outcome);
    }
}

impl Pledge {
    pub(crate) fn new(
        shared: Arc<Shared>,
        endpoint: &'static Endpoint,
        body: Bytes,
        credit: Option<Owed>,
    ) -> Self {
        Self { shared, endpoint, body, credit }
    }
}

impl Drop for Pledge {
    fn drop(&mut self) {
        if let Some(credit) = self.credit.take() {
            prepare::withdraw(&self.shared, self.endpoint, &self.body, credit);
        }
    }
}
