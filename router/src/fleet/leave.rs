//! How a worker goes: it gets no new requests, what runs there may finish for a while, and then it is forgotten.

use std::sync::Arc;
use std::time::Duration;

use router_core::Worker;
use tokio::time::Instant;

use super::{Member, Stage};
use crate::shared::Shared;

/// How long the last worker stays because another one is on its way: one that replaces it should be there first
/// (sgl-project/sglang#38524).
const SUCCESSION: Duration = Duration::from_secs(30);

/// How often it is looked whether the last request has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Sends a worker away. False if it is leaving already.
pub(crate) fn drain(shared: &Arc<Shared>, member: &Arc<Member>, limit: Duration) -> bool {
    let leaving = member.advance(|stage| *stage != Stage::Draining, Stage::Draining);
    if leaving {
        let (shared, member) = (Arc::clone(shared), Arc::clone(member));
        let runtime = shared.background.runtime.clone();
        runtime.spawn(async move { go(&shared, &member, limit).await });
    }
    leaving
}

async fn go(shared: &Arc<Shared>, member: &Member, limit: Duration) {
    let succession = Instant::now() + SUCCESSION;
    while is_last(shared, member) && Instant::now() < succession {
        tokio::time::sleep(LOOK).await;
    }
    tracing::info!(worker = %member.address.url, "draining");
    shared.books.lock().router.set_draining(shared.clock.now_ns(), member.id);
    let end = Instant::now() + limit;
    while shared.books.lock().router.leases_of(member.id) > 0 && Instant::now() < end {
        tokio::time::sleep(LOOK).await;
    }
    // It may have been registered again meanwhile, and be another one.
    if shared.books.lock().remove(shared.clock.now_ns(), member) {
        shared.belief.remove(member.id);
        tracing::info!(worker = %member.address.url, "removed");
    }
}

/// Whether nobody else is there for its requests, and somebody is about to come.
fn is_last(shared: &Shared, member: &Member) -> bool {
    let books = shared.books.lock();
    let all = || books.router.workers(0).map(|row| row.worker).zip(books.members());
    let Some((own, _)) = all().find(|(worker, _)| worker.id == member.id) else { return false };
    let others = || all().filter(|(worker, _)| worker.id != own.id && stands_in(worker, own));
    let is_there = |(worker, other): (&Worker, &Arc<Member>)| worker.healthy && other.stage() == Stage::Ready;
    let is_coming =
        |(_, other): (&Worker, &Arc<Member>)| other.stage().is_coming() && other.since.elapsed() < SUCCESSION;
    own.healthy && !others().any(is_there) && others().any(is_coming)
}

/// Whether one may serve the requests of the other: one that has not said what it serves may.
fn stands_in(other: &Worker, own: &Worker) -> bool {
    let is_model = own.model.is_none() || other.model.is_none() || own.model == other.model;
    own.role == other.role && is_model
}
