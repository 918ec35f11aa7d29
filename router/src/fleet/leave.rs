//! How workers go: they get no new requests, what runs there may finish, and then they are forgotten. What takes longer than
//! that is waited for no more, but never cut.
//!
//! The last workers for their requests stay for a while if another one is on its way: one that replaces them should be
//! there first (sgl-project/sglang#38524).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use router_core::Role;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Member, Stage, Standing};
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
    if !tell(member) {
        return Leave::Already;
    }
    begin(shared, vec![Arc::clone(member)], limit);
    match member.stage() {
        Stage::Staying => Leave::Later(shared.rounds.succession.min(limit)),
        _ => Leave::Now,
    }
}

/// Sends workers away together, so that none of them is taken for another one's successor; which of them were not leaving
/// already.
pub(crate) fn drain_all(
    shared: &Arc<Shared>,
    members: Vec<Arc<Member>>,
    limit: Duration,
) -> Vec<Arc<Member>> {
    let told: Vec<_> = members.into_iter().filter(|member| tell(member)).collect();
    begin(shared, told.clone(), limit);
    told
}

/// Whether it is news to it.
fn tell(member: &Member) -> bool {
    member.advance(|stage| !stage.is_leaving(), Stage::Staying)
}

fn begin(shared: &Arc<Shared>, members: Vec<Arc<Member>>, limit: Duration) {
    // Whoever waits for one of these to come need not.
    shared.turns.notify_waiters();
    let begun = Instant::now();
    let end = begun + limit;
    let stay = shared.rounds.succession.min(limit);
    let staying = if stay.is_zero() { let_go(shared, members, end) } else { part(shared, members, end) };
    if !staying.is_empty() {
        let shared = Arc::clone(shared);
        let runtime = shared.background.runtime.clone();
        runtime.spawn(async move { stay_on(&shared, staying, begun + stay, end).await });
    }
}

/// Lets go of those that wait for nobody; the others.
fn part(shared: &Arc<Shared>, members: Vec<Arc<Member>>, end: Instant) -> Vec<Arc<Member>> {
    let stays = who_stays(shared, &members);
    let mut stays = stays.iter();
    let (staying, going) = members.into_iter().partition(|_| *stays.next().unwrap_or(&false));
    let_go(shared, going, end);
    staying
}

/// They get no requests any more, and are taken out when nothing runs there, or at the `end`. None of them is left.
fn let_go(shared: &Arc<Shared>, members: Vec<Arc<Member>>, end: Instant) -> Vec<Arc<Member>> {
    for member in members {
        close(shared, &member);
        let shared = Arc::clone(shared);
        let runtime = shared.background.runtime.clone();
        runtime.spawn(async move { go(&shared, &member, end).await });
    }
    Vec::new()
}

/// Waits for successors, while there are some to wait for.
async fn stay_on(shared: &Arc<Shared>, mut staying: Vec<Arc<Member>>, until: Instant, end: Instant) {
    loop {
        let mut turn = std::pin::pin!(shared.turns.notified());
        // What happens from here on is not missed.
        turn.as_mut().enable();
        staying = part(shared, staying, end);
        if staying.is_empty() {
            return;
        }
        if timeout_at(until, turn).await.is_err() {
            let_go(shared, staying, end);
            return;
        }
    }
}

/// The worker gets no requests any more. One that has been taken out meanwhile gets none anyway.
fn close(shared: &Shared, member: &Member) {
    let is_there = shared.books.lock().router.set_draining(shared.clock.now_ns(), member.id);
    if is_there {
        tracing::info!(worker = %member.address.url, "draining");
        member.advance(|_| true, Stage::Draining);
    }
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

/// Of each, whether nobody else is there for its requests, and somebody is about to come. One look at the fleet is enough
/// for all of them.
fn who_stays(shared: &Shared, members: &[Arc<Member>]) -> Vec<bool> {
    let fleet = shared.standings();
    let (mut there, mut coming) = (Served::default(), Served::default());
    for worker in &fleet {
        let member = &worker.member;
        if worker.healthy && member.stage_is(|stage| *stage == Stage::Ready) {
            there.add(worker);
        } else if member.stage_is(Stage::is_coming) && member.since.elapsed() < shared.rounds.succession {
            coming.add(worker);
        }
    }
    let stays = |member: &Arc<Member>| {
        let own = fleet.binary_search_by_key(&member.id, |worker| worker.member.id).map(|at| &fleet[at]);
        own.is_ok_and(|own| own.healthy && !there.has(own) && coming.has(own))
    };
    members.iter().map(stays).collect()
}

/// The roles and models that somebody serves.
#[derive(Default)]
struct Served<'a>(HashSet<(Role, Option<&'a str>)>);

impl<'a> Served<'a> {
    fn add(&mut self, worker: &'a Standing) {
        self.0.insert((worker.role, worker.model.as_deref()));
    }

    /// Whether somebody may serve the requests of this one: one that has not said what it serves may.
    fn has(&self, own: &Standing) -> bool {
        let Some(model) = own.model.as_deref() else {
            return self.0.iter().any(|(role, _)| *role == own.role);
        };
        self.0.contains(&(own.role, Some(model))) || self.0.contains(&(own.role, None))
    }
}
