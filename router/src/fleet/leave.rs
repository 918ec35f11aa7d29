//! How a worker goes: it gets no new requests, what runs there may finish, and then it is forgotten. What takes longer than
//! that is waited for no more, but never cut.
//!
//! The last worker for its requests stays for a while if another one is on its way: one that replaces it should be there
//! first (sgl-project/sglang#38524).

use std::sync::Arc;
use std::time::Duration;

use router_core::Worker;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Member, Stage};
use crate::shared::Shared;

/// How long the last worker stays at most.
pub(crate) const SUCCESSION: Duration = Duration::from_secs(30);

/// How a worker leaves that was told to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    /// It gets no requests any more.
    Now,
    /// It gets them until another one is there for them, for as long as this at most.
    Later(Duration),
    /// It is leaving already.
    Already,
}

/// Sends a worker away; what runs there is waited for as long as `limit`, in which the wait for a successor counts.
pub(crate) fn drain(shared: &Arc<Shared>, member: &Arc<Member>, limit: Duration) -> Leave {
    if !member.advance(|stage| !stage.is_leaving(), Stage::Staying) {
        return Leave::Already;
    }
    // Whoever waits for this one to come need not.
    shared.turns.notify_waiters();
    let end = Instant::now() + limit;
    let stay = shared.rounds.succession.min(limit);
    let stays = !stay.is_zero() && has_successor(shared, member);
    if !stays {
        close(shared, member);
    }
    let (left_to, one) = (Arc::clone(shared), Arc::clone(member));
    shared.background.runtime.spawn(async move {
        if stays {
            stay_until(&left_to, &one, Instant::now() + stay).await;
            close(&left_to, &one);
        }
        go(&left_to, &one, end).await;
    });
    if stays { Leave::Later(stay) } else { Leave::Now }
}

/// Waits for a successor, while there is one to wait for.
async fn stay_until(shared: &Shared, member: &Member, end: Instant) {
    loop {
        let mut turn = std::pin::pin!(shared.turns.notified());
        // What happens from here on is not missed.
        turn.as_mut().enable();
        if !has_successor(shared, member) || timeout_at(end, turn).await.is_err() {
            return;
        }
    }
}

/// The worker gets no requests any more.
fn close(shared: &Shared, member: &Member) {
    tracing::info!(worker = %member.address.url, "draining");
    member.advance(|_| true, Stage::Draining);
    shared.books.lock().router.set_draining(shared.clock.now_ns(), member.id);
}

/// Waits until nothing runs there, and takes the worker out.
async fn go(shared: &Shared, member: &Member, end: Instant) {
    // Before the first look: an end that this does not see is news.
    member.ends.watch();
    let running = loop {
        let running = shared.books.lock().router.leases_of(member.id);
        if running == 0 || Instant::now() >= end {
            break running;
        }
        tokio::select! {
            () = member.ends.next() => {}
            () = sleep_until(end) => {}
        }
    };
    // It may have been registered again meanwhile, and be another one.
    if !shared.books.lock().remove(shared.clock.now_ns(), member) {
        return;
    }
    shared.belief.remove(member.id);
    if running == 0 {
        tracing::info!(worker = %member.address.url, "removed");
    } else {
        let url = &member.address.url;
        tracing::warn!(worker = %url, running, "removed after its time to drain; what runs there goes on to its end");
    }
}

/// Whether nobody else is there for its requests, and somebody is about to come.
fn has_successor(shared: &Shared, member: &Member) -> bool {
    let books = shared.books.lock();
    let may_come =
        |other: &Arc<Member>| other.is_coming() && other.since.elapsed() < shared.rounds.succession;
    // First what is found out soon: mostly nobody is coming.
    if !books.members().iter().any(may_come) {
        return false;
    }
    let all = || books.router.workers(0).map(|row| row.worker).zip(books.members());
    let Some((own, _)) = all().find(|(worker, _)| worker.id == member.id) else { return false };
    let others = || all().filter(|(worker, _)| worker.id != own.id && stands_in(worker, own));
    let is_there = |(worker, other): (&Worker, &Arc<Member>)| worker.healthy && other.stage() == Stage::Ready;
    own.healthy && !others().any(is_there) && others().any(|(_, other)| may_come(other))
}

/// Whether one may serve the requests of the other: one that has not said what it serves may.
fn stands_in(other: &Worker, own: &Worker) -> bool {
    let is_model = own.model.is_none() || other.model.is_none() || own.model == other.model;
    own.role == other.role && is_model
}
