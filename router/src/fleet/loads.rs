//! Load reports: each worker is asked at once and then at every interval, by a task of its own, so that one that
//! hangs delays nobody. Only while a policy rules that looks at the answers.

use std::sync::Arc;
use std::time::Duration;

use http::{StatusCode, Uri};
use protocol::loads::LoadSummary;
use router_core::LoadReport;
use tokio::time::MissedTickBehavior;

use super::Member;
use crate::shared::Shared;
use crate::upstream::{Probe, probe};

/// The newer form; engines that do not have it are asked in the older one.
const CURRENT: &str = "/v1/loads?include=core";
const LEGACY: &str = "/get_load";

/// Longest wait for an answer; a shorter interval shortens it, so that one question never overlaps the next.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Asks one worker for ever.
pub(super) async fn watch(shared: &Arc<Shared>, member: &Member, interval: Duration) {
    let timeout = TIMEOUT.min(interval.mul_f64(0.9));
    let mut path = CURRENT;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !shared.books.lock().router.signals().loads {
            continue;
        }
        let asked_ns = shared.clock.now_ns();
        let mut report = ask(shared, member, path, timeout).await;
        if report == Err(Unanswered::NoSuchPath) {
            path = if path == CURRENT { LEGACY } else { CURRENT };
            let left = timeout.saturating_sub(Duration::from_nanos(shared.clock.now_ns() - asked_ns));
            report = ask(shared, member, path, left).await;
        }
        if let Err(problem) = report {
            tracing::debug!(worker = %member.address.url, "no load report: {problem:?}");
        }
        let now_ns = shared.clock.now_ns();
        shared.books.lock().router.report_loads(asked_ns, now_ns, member.id, report.ok());
    }
}

/// Why there is no report.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Unanswered {
    NoSuchPath,
    Unreachable,
    Unreadable,
}

async fn ask(
    shared: &Shared,
    member: &Member,
    path: &'static str,
    timeout: Duration,
) -> Result<LoadReport, Unanswered> {
    let question = Probe { path: Uri::from_static(path), member, timeout };
    match probe(&shared.background.pool, question).await {
        Ok((StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _)) => Err(Unanswered::NoSuchPath),
        Ok((status, body)) if status.is_success() => {
            LoadSummary::parse(&body).ok().and_then(report).ok_or(Unanswered::Unreadable)
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
