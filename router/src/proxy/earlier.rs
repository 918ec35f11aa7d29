//! What earlier tries of a request have left behind at engines.
//!
//! An engine refuses a request under the name (`rid`) of one that it has not finished with, and the next try of a request has the
//! name of the one before. So a try waits until the engines of its plan have been told to let go. That may have come to nothing: what
//! calls a request off can overtake it, and then finds nothing to abort. A refusal for the name's sake shows that it has been taken up
//! by now; it is called off again, and there is another try.

use std::sync::{Arc, OnceLock};

use router_core::Leg;
use router_core::ids::WorkerId;
use smallvec::SmallVec;
use tokio::task::JoinHandle;

use super::names::Named;
use super::prepare::Booked;
use crate::error::{Fault, Half, Refusal};
use crate::fleet::Member;

/// The engines that may still know the request by its name, and what the client would have been told.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    /// All tries have the names that the client has given, and are one request under them.
    named: OnceLock<Arc<Named>>,
    left: Left,
    /// What the client would have been told of the last try that did not fail for the name's sake.
    refusal: Option<Refusal>,
}

/// What one try leaves behind; most leave nothing.
#[derive(Debug, Default)]
pub(super) struct Left(Option<Box<Traces>>);

#[derive(Debug, Default)]
struct Traces {
    /// The engines that were sent it.
    engines: SmallVec<[WorkerId; 4]>,
    calling_off: Vec<CallingOff>,
}

/// An engine that is being told to let go of a request.
#[derive(Debug)]
pub(super) struct CallingOff {
    pub(super) engine: WorkerId,
    /// Ends by itself after a short while.
    pub(super) task: JoinHandle<()>,
}

impl Left {
    /// Of a try that was sent to these, of which some are called off.
    pub(super) fn at(
        engines: [&Arc<Member>; 2],
        calling_off: impl IntoIterator<Item = Option<CallingOff>>,
    ) -> Self {
        Self(Some(Box::new(Traces {
            engines: engines.into_iter().map(|member| member.first_id).collect(),
            calling_off: calling_off.into_iter().flatten().collect(),
        })))
    }

    /// This and that.
    pub(super) fn extend(&mut self, other: Self) {
        match (&mut self.0, other.0) {
            (Some(traces), Some(others)) => {
                traces.engines.extend(others.engines);
                traces.calling_off.extend(others.calling_off);
            }
            (none @ None, others) => *none = others,
            (Some(_), None) => {}
        }
    }
}

impl Earlier {
    /// The names of the request; `enter` takes them, at the first try.
    pub(super) fn named(&self, enter: impl FnOnce() -> Named) -> Arc<Named> {
        Arc::clone(self.named.get_or_init(|| Arc::new(enter())))
    }

    /// One more try has failed so.
    pub(super) fn add(&mut self, left: Left) {
        self.left.extend(left);
    }

    /// Whether this engine was sent one.
    pub(super) fn has_been_at(&self, member: &Member) -> bool {
        self.left.0.as_ref().is_some_and(|traces| traces.engines.contains(&member.first_id))
    }

    /// One more try has come to an answer of this leg that is worth another one.
    pub(super) fn answered(&mut self, leg: Leg) {
        self.refusal = Half::of(leg).map(|leg| Refusal::LegFailed { leg, fault: Fault::GivenUp });
    }

    /// What the client is told of a try that came to this, if no other follows. That of one which failed for the name's sake says
    /// nothing to it: that is the router's doing.
    pub(super) fn told(&mut self, refusal: Refusal, is_for_the_name: bool) -> Refusal {
        if is_for_the_name { self.refusal.unwrap_or(refusal) } else { *self.refusal.insert(refusal) }
    }

    /// Waits until the engines of this plan have been told, or could not be.
    pub(super) async fn let_go(&mut self, plan: &Booked) {
        let Some(traces) = &mut self.left.0 else { return };
        let is_of_plan = |engine: WorkerId| {
            let mut legs = plan.prefill.iter().chain([&plan.decode]);
            legs.any(|leg| leg.member.first_id == engine)
        };
        let all = std::mem::take(&mut traces.calling_off);
        let (theirs, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| is_of_plan(one.engine));
        traces.calling_off = others;
        for one in theirs {
            // Whether it worked the engine's answer shows.
            let _ = one.task.await;
        }
    }
}
