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

use super::{Member, Rank, Stage, Standing};
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

/// Sends one rank of an engine away; the others stay. With the last one the engine goes.
pub(crate) fn drain_rank(
    shared: &Arc<Shared>,
    member: &Arc<Member>,
    rank: &Arc<Rank>,
    limit: Duration,
) -> Leave {
    let mut books = shared.books.lock();
    if rank.is_leaving() || member.stage().is_leaving() {
        return Leave::Already;
    }
    if member.ranks().iter().all(|other| other.id == rank.id || other.is_leaving()) {
        drop(books);
        return drain(shared, member, limit);
    }
    rank.leave();
    books.router.set_draining(shared.clock.now_ns(), rank.id);
    drop(books);
    tracing::info!(worker = %rank.url, "draining");
    let end = Instant::now() + limit;
    let (gone, member, rank) = (Arc::clone(shared), Arc::clone(member), Arc::clone(rank));
    shared.background.runtime.spawn(async move { go_alone(&gone, &member, &rank, end).await });
    Leave::Now
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
    let now_ns = shared.clock.now_ns();
    let mut books = shared.books.lock();
    let is_there = member.ids().iter().fold(false, |news, id| books.router.set_draining(now_ns, *id) | news);
    drop(books);
    if is_there {
        tracing::info!(worker = %member.address.url, "draining");
        member.advance(|_| true, Stage::Draining);
    }
}

/// Waits until nothing runs there, and takes the worker out.
async fn go(shared: &Shared, member: &Member, end: Instant) {
    let running = idle(member, end, || shared.books.lock().leases_at(member)).await;
    // It may have been registered again meanwhile, and be another one.
    if shared.books.lock().remove(shared.clock.now_ns(), member) {
        shared.belief.remove(&member.ids());
        announce(&member.address.url, running);
    }
}

/// The same for one rank.
async fn go_alone(shared: &Shared, member: &Member, rank: &Rank, end: Instant) {
    let running = idle(member, end, || shared.books.lock().router.leases_of(rank.id)).await;
    // Its engine may have left before it.
    if shared.books.lock().remove_rank(shared.clock.now_ns(), member, rank) {
        shared.belief.remove(&[rank.id]);
        announce(&rank.url, running);
    }
}

/// Waits until so many requests as `running` tells are none, or for the `end`; how many there are then.
async fn idle(member: &Member, end: Instant, running: impl Fn() -> usize) -> usize {
    member.ends.watch();
    loop {
        // Before the look: an end that this does not see is news.
        let mut ended = std::pin::pin!(member.ends.next());
        ended.as_mut().enable();
        let running = running();
        if running == 0 || Instant::now() >= end {
            return running;
        }
        tokio::select! {
            () = ended => {}
            () = sleep_until(end) => {}
        }
    }
}

fn announce(worker: &str, running: usize) {
    if running == 0 {
        tracing::info!(%worker, "removed");
    } else {
        tracing::warn!(%worker, running, "removed after its time to drain; what runs there goes on to its end");
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
        let own = fleet.binary_search_by_key(&member.first_id, |worker| worker.member.first_id);
        let own = own.map(|at| &fleet[at]);
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
