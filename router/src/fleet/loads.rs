//! Load reports: each engine is asked at once and then at every interval, by a task of its own, so that one that
//! hangs delays nobody. Only while a policy rules that looks at the answers.

use std::sync::Arc;
use std::time::Duration;

use http::{StatusCode, Uri};
use protocol::loads::{LoadSummary, RankSummary};
use router_core::LoadReport;
use tokio::time::{Instant, MissedTickBehavior};

use super::Member;
use super::rank::Layout;
use crate::clock::nanoseconds;
use crate::shared::Shared;
use crate::upstream::{Probe, probe};

/// The newer form; engines that do not have it are asked in the older one.
const CURRENT: &str = "/v1/loads?include=core";
const LEGACY: &str = "/get_load";

/// Longest wait for an answer; a shorter interval shortens it, so that one question never overlaps the next.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What came of asking an engine.
#[derive(Debug)]
pub(super) struct Answer {
    asked_ns: u64,
    path: &'static str,
    pub(super) ranks: Result<Vec<RankSummary>, Unanswered>,
}

/// Why there is no report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unanswered {
    #[error("it has no load report")]
    NoSuchPath,
    #[error("no answer to {CURRENT}")]
    Unreachable,
    #[error("its load report on {CURRENT} cannot be read")]
    Unreadable,
}

/// Asks one engine for ever; each of its ranks is told what the engine reports of it.
pub(super) async fn watch(shared: &Arc<Shared>, member: &Member, interval: Duration) {
    let timeout = TIMEOUT.min(interval.mul_f64(0.9));
    let now_ns = shared.clock.now_ns();
    let early = member.settled.lock().take_report();
    let early = early.filter(|answer| now_ns.saturating_sub(answer.asked_ns) < nanoseconds(interval));
    // One that was asked just now for its ranks is not asked again at once.
    let first =
        early.as_ref().map_or_else(Instant::now, |answer| shared.clock.instant(answer.asked_ns) + interval);
    let mut path = early.as_ref().map_or(CURRENT, |answer| answer.path);
    let mut ticks = tokio::time::interval_at(first, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut doubtful = Vec::new();
    if let Some(answer) = early {
        file(shared, member, &answer);
    }
    loop {
        ticks.tick().await;
        if !shared.books.lock().router.signals().loads {
            continue;
        }
        let answer = ask(shared, member, path, timeout).await;
        path = answer.path;
        match &answer.ranks {
            Ok(ranks) => doubt(member, ranks, &mut doubtful),
            Err(problem) => tracing::debug!(worker = %member.address.url, "no load report: {problem}"),
        }
        file(shared, member, &answer);
    }
}

/// Tells the core.
fn file(shared: &Shared, member: &Member, answer: &Answer) {
    let now_ns = shared.clock.now_ns();
    let mut books = shared.books.lock();
    for rank in member.ranks().iter() {
        let ranks = answer.ranks.as_ref().ok();
        let load = ranks.and_then(|ranks| member.load_of(rank, ranks)).and_then(report);
        books.router.report_loads(answer.asked_ns, now_ns, rank.id, load);
    }
}

/// An engine that reports other ranks than it had has been started anew; it is asked what it is. Once for each of the sets of
/// ranks that it reports, as one that does not say more then is not asked for ever.
fn doubt(member: &Member, ranks: &[RankSummary], doubtful: &mut Vec<u32>) {
    let Layout::Ranks { first, count } = member.layout() else { return };
    let mut numbers: Vec<u32> = ranks.iter().filter_map(|rank| rank.dp_rank).collect();
    numbers.sort_unstable();
    let is_known = numbers.iter().copied().eq(first..first.saturating_add(count));
    if !numbers.is_empty() && !is_known && numbers != *doubtful {
        *doubtful = numbers;
        member.settled.lock().doubt();
        member.lost.note();
    }
}

/// Asks once, in the form that the engine has, which is the newer one if it has both.
pub(super) async fn ask_either(shared: &Shared, member: &Member) -> Answer {
    ask(shared, member, CURRENT, TIMEOUT).await
}

/// Asks on this path, and on the other one if there is no such path.
async fn ask(shared: &Shared, member: &Member, path: &'static str, timeout: Duration) -> Answer {
    let asked_ns = shared.clock.now_ns();
    let ranks = ask_on(shared, member, path, timeout).await;
    if ranks != Err(Unanswered::NoSuchPath) {
        return Answer { asked_ns, path, ranks };
    }
    let path = if path == CURRENT { LEGACY } else { CURRENT };
    let left = timeout.saturating_sub(Duration::from_nanos(shared.clock.now_ns() - asked_ns));
    Answer { asked_ns, path, ranks: ask_on(shared, member, path, left).await }
}

async fn ask_on(
    shared: &Shared,
    member: &Member,
    path: &'static str,
    timeout: Duration,
) -> Result<Vec<RankSummary>, Unanswered> {
    let question = Probe { path: Uri::from_static(path), member, timeout };
    match probe(&shared.background.pool, question).await {
        Ok((StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _)) => Err(Unanswered::NoSuchPath),
        Ok((status, body)) if status.is_success() => {
            RankSummary::parse(&body).map_err(|_| Unanswered::Unreadable)
        }
        Ok(_) => Err(Unanswered::Unreadable),
        Err(_) => Err(Unanswered::Unreachable),
    }
}

/// What no worker has: a report of more is a mistake, and would keep requests away from it.
const MOST_TOKENS: u64 = 1 << 40;

fn report(summary: LoadSummary) -> Option<LoadReport> {
    (summary.total_tokens <= MOST_TOKENS).then_some(LoadReport {
        total_tokens: summary.total_tokens,
        running: summary.running,
        waiting: summary.waiting,
        // The older form does not tell it.
        token_usage: summary.token_usage.unwrap_or(0.0),
    })
}
