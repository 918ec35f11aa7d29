//! How a worker goes: it gets no new requests, what runs there may finish for a while, and then it is forgotten.

use std::sync::Arc;
use std::time::Duration;

use router_core::ids::WorkerId;
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

/// Whether nobody else is there, and somebody is about to come.
fn is_last(shared: &Shared, member: &Member) -> bool {
    let books = shared.books.lock();
    let rows = books.router.workers(0);
    let healthy: Vec<WorkerId> = rows.filter(|row| row.worker.healthy).map(|row| row.worker.id).collect();
    let is_well = |id| healthy.binary_search(&id).is_ok();
    let others = || books.members().iter().filter(|other| other.id != member.id);
    let is_there = |other: &Arc<Member>| other.stage() == Stage::Ready && is_well(other.id);
    let is_coming = |other: &Arc<Member>| other.stage().is_coming() && other.since.elapsed() < SUCCESSION;
    is_well(member.id) && !others().any(is_there) && others().any(is_coming)
}
