//! The life of a worker, in one task of its own: it is probed until it is there, asked what it is, and then watched. No
//! worker waits for another one.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::health::Verdict;
use super::layout::Unsettled;
use super::newcomers::Newcomer;
use super::{Facts, Member, Stage, describe, health, loads};
use crate::config::HealthConfig;
use crate::shared::Shared;

/// Between the first probes of a worker that is not there yet; each pause is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Begins a worker's life, or goes on with it under other terms.
pub(super) fn begin(shared: &Arc<Shared>, member: &Arc<Member>) {
    let newcomer = shared.newcomers.announce();
    let live = live(Arc::clone(shared), Arc::clone(member), newcomer);
    member.attend(shared.background.runtime.spawn(live).abort_handle());
}

async fn live(shared: Arc<Shared>, member: Arc<Member>, newcomer: Newcomer) {
    let rounds = &shared.rounds;
    let health = rounds.health.as_ref().filter(|_| member.terms().health_check);
    let Some(described) = arrive(&shared, &member, health, newcomer).await else { return };
    let watch_health = async {
        if let Some(health) = health {
            health::watch(&shared, &member, health).await;
        }
    };
    tokio::join!(
        watch_health,
        loads::watch(&shared, &member, rounds.load_poll_interval),
        describe::watch(&shared, &member, described),
    );
}

/// Until a worker is there; whether it has said what it is. Nothing if it did not come in time, or was sent away. Whatever
/// comes of it, nobody waits for it as for a newcomer afterwards.
async fn arrive(
    shared: &Arc<Shared>,
    member: &Arc<Member>,
    health: Option<&HealthConfig>,
    newcomer: Newcomer,
) -> Option<bool> {
    match health {
        // It goes on under other terms. Where nobody is to look any more it is taken for healthy.
        _ if member.stage() == Stage::Ready => {
            shared.set_healthy(member, true);
            Some(member.facts() != Facts::default())
        }
        Some(health) => come(shared, member, health, newcomer).await,
        // Nobody can say when it is there, so it is there. If it is, it may say by which ranks it is addressed.
        None if shared.rounds.dp_aware => {
            let welcomed = welcome(shared, member).await;
            welcomed.unwrap_or_else(|_| join(shared, member).then_some(false))
        }
        None => join(shared, member).then_some(false),
    }
}

/// Probes a worker until it is there; whether it has said what it is. Nothing if it did not come in time.
async fn come(
    shared: &Arc<Shared>,
    member: &Arc<Member>,
    health: &HealthConfig,
    newcomer: Newcomer,
) -> Option<bool> {
    let end = Instant::now() + shared.rounds.startup_timeout;
    let mut newcomer = Some(newcomer);
    let mut pause = FIRST_PAUSE;
    member.advance(Stage::is_coming, Stage::Probing(None));
    loop {
        let problem = match health::ask(shared, member, health).await {
            Some(Verdict::Good) => {
                member.checks.note(true);
                match welcome(shared, member).await {
                    Ok(described) => return described,
                    Err(problem) => problem,
                }
            }
            Some(verdict @ Verdict::Itself) => {
                member.checks.note(false);
                fail(shared, member, verdict.to_string());
                return None;
            }
            Some(verdict) => {
                member.checks.note(false);
                verdict.to_string()
            }
            None => "this machine lacks the means to ask".to_owned(),
        };
        if newcomer.take().is_some() {
            tracing::warn!(worker = %member.address.url, "not there yet: {problem}");
        }
        if Instant::now() >= end {
            let seconds = shared.rounds.startup_timeout.as_secs();
            fail(
                shared,
                member,
                format!("not there within {seconds} s: {problem}; register it again once it is there"),
            );
            return None;
        }
        member.advance(Stage::is_coming, Stage::Probing(Some(problem)));
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Asks a worker what it is, which then gets requests; whether it has said it. Nothing if it is not to have any.
///
/// # Errors
/// What it has not said yet, without which it cannot have requests.
async fn welcome(shared: &Arc<Shared>, member: &Arc<Member>) -> Result<Option<bool>, String> {
    let described = describe::once(shared, member).await;
    let is_answer = described.is_answer();
    let settled = member.contradiction().map_or(described.ranks, |problem| Err(Unsettled::Wrong(problem)));
    match settled {
        Ok(()) => Ok(join(shared, member).then_some(is_answer)),
        Err(Unsettled::NotYet(problem)) => Err(problem),
        Err(Unsettled::Wrong(problem)) => {
            fail(shared, member, problem);
            Ok(None)
        }
    }
}

/// The worker gets requests from now on; false if it was told to leave meanwhile.
fn join(shared: &Shared, member: &Member) -> bool {
    let joined = member.advance(Stage::is_coming, Stage::Ready);
    if joined {
        shared.set_healthy(member, true);
        tracing::info!(worker = %member.address.url, role = member.role().label(), "ready");
    }
    joined
}

fn fail(shared: &Shared, member: &Member, reason: String) {
    if member.advance(Stage::is_coming, Stage::Failed(reason.clone())) {
        tracing::error!(worker = %member.address.url, "{reason}");
        shared.turns.notify_waiters();
    }
}

/// A worker that is there is not what it was said to be: it gets no requests any more, and nothing goes on about it. What
/// runs there goes on.
pub(super) fn expel(shared: &Shared, member: &Member, reason: String) {
    if member.advance(|stage| *stage == Stage::Ready, Stage::Failed(reason.clone())) {
        // Never taken back, whatever its health is found to be meanwhile.
        let mut books = shared.books.lock();
        let now_ns = shared.clock.now_ns();
        member.ids().iter().for_each(|id| _ = books.router.set_draining(now_ns, *id));
        drop(books);
        shared.set_healthy(member, false);
        tracing::error!(worker = %member.address.url, "{reason}");
        shared.turns.notify_waiters();
        member.leave_alone();
    }
}
