//! Health: a worker that has come goes out of rotation after some failures in a row and comes back after some successes in
//! a row.
//!
//! A verdict comes from a probe, or from a request that found nobody there. A worker that is out, that says it is
//! unwell, or where nobody was found, is probed again soon: it is known to be gone, or to be back, within seconds however
//! long the interval is. One that only does not answer in time may be busy, and has the whole interval, unless there was
//! reason to doubt it ([`Member::inquire`]).

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use super::{Member, Stage, describe};
use crate::config::HealthConfig;
use crate::shared::Shared;
use crate::upstream::{CallError, NoAnswer, Probe, probe};

/// Longest time to the next probe while there is reason to hurry.
const HURRY: Duration = Duration::from_secs(1);

/// Probes a worker that is there, for ever.
pub(super) async fn watch(shared: &Arc<Shared>, member: &Arc<Member>, config: &HealthConfig) {
    let mut streak = Streak { healthy: true, against: 0 };
    // Nobody was there for a moment: whoever is there next may be another one.
    let mut was_gone = false;
    let mut is_doubted = false;
    let mut next = Instant::now() + config.interval;
    let mut earliest = Instant::now();
    loop {
        let verdict = tokio::select! {
            biased;
            times = member.unreachable.next() => Verdict::Unreachable { times, why: None },
            _ = member.doubted.next() => {
                is_doubted = true;
                next = next.min(earliest);
                continue;
            }
            () = tokio::time::sleep_until(next) => {
                let verdict = ask(shared, member, config).await;
                earliest = Instant::now() + HURRY;
                let Some(verdict) = verdict else {
                    next = earliest;
                    continue;
                };
                let is_good = matches!(verdict, Verdict::Good);
                member.checks.note(is_good);
                is_doubted &= !is_good;
                next = Instant::now() + config.interval;
                verdict
            }
        };
        let turned = streak.note(&verdict, config);
        match verdict {
            Verdict::Unreachable { .. } => was_gone = true,
            Verdict::Good if was_gone || (turned && streak.healthy) => {
                describe::anew(shared, member).await;
                was_gone = false;
            }
            _ => {}
        }
        if turned && member.stage_is(|stage| !matches!(stage, Stage::Failed(_))) {
            announce(&member.address.url, streak.healthy, &verdict);
            shared.set_healthy(member, streak.healthy);
        }
        let is_sign = matches!(verdict, Verdict::Unwell(_) | Verdict::Unreachable { .. });
        if !streak.healthy || is_doubted || is_sign {
            next = next.min(Instant::now() + HURRY);
        }
    }
}

/// Probes once; nothing if this machine lacks the means to ask, such as file descriptors.
pub(super) async fn ask(shared: &Shared, member: &Member, config: &HealthConfig) -> Option<Verdict> {
    let question = Probe { path: config.path.clone(), member, timeout: config.timeout };
    Some(match probe(&shared.background.pool, question).await {
        Ok((status, _)) if status.is_success() => Verdict::Good,
        Ok((status, _)) => Verdict::Unwell(status),
        Err(CallError::NoAnswer(missing)) if missing.is_nobody_there() => {
            Verdict::Unreachable { times: 1, why: Some(missing) }
        }
        Err(CallError::NoAnswer(missing @ NoAnswer::Connect(_))) => {
            tracing::warn!(worker = %member.address.url, "cannot be probed: {missing}");
            return None;
        }
        Err(CallError::Itself) => Verdict::Itself,
        Err(error) => Verdict::Bad(error.to_string()),
    })
}

fn announce(url: &str, healthy: bool, verdict: &Verdict) {
    if healthy {
        tracing::info!(worker = %url, "healthy again");
    } else {
        tracing::warn!(worker = %url, "unhealthy: {verdict}");
    }
}

/// What was found out about a worker.
#[derive(Debug)]
pub(super) enum Verdict {
    Good,
    /// It answers with another status.
    Unwell(StatusCode),
    /// It does not answer as it should.
    Bad(String),
    /// It is this router: no time makes a worker of it.
    Itself,
    /// So many attempts in a row found nobody there.
    Unreachable {
        times: u32,
        /// What the last of them found, if it was a probe.
        why: Option<NoAnswer>,
    },
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Good => f.write_str("well"),
            Self::Unwell(status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)) => {
                write!(
                    f,
                    "status {status}: it wants another key, see --worker-api-key, or api_key of the worker"
                )
            }
            Self::Unwell(status) => write!(f, "status {status}"),
            Self::Bad(problem) => f.write_str(problem),
            Self::Itself => CallError::Itself.fmt(f),
            Self::Unreachable { why: Some(missing), .. } => missing.fmt(f),
            Self::Unreachable { why: None, .. } => f.write_str("cannot connect"),
        }
    }
}

/// The state, and how many verdicts in a row spoke against it.
#[derive(Debug)]
struct Streak {
    healthy: bool,
    against: u32,
}

impl Streak {
    /// Takes a verdict; whether it changed the state.
    fn note(&mut self, verdict: &Verdict, config: &HealthConfig) -> bool {
        let (good, times) = match verdict {
            Verdict::Good => (true, 1),
            Verdict::Unwell(_) | Verdict::Bad(_) | Verdict::Itself => (false, 1),
            Verdict::Unreachable { times, .. } => (false, *times),
        };
        if good == self.healthy {
            self.against = 0;
            return false;
        }
        self.against = self.against.saturating_add(times);
        let limit = if self.healthy { config.failure_threshold } else { config.success_threshold };
        let turned = self.against >= limit;
        if turned {
            *self = Self { healthy: good, against: 0 };
        }
        turned
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_verdicts_in_a_row_turn_the_state() {
        let config = HealthConfig {
            path: http::Uri::from_static("/health"),
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            failure_threshold: 3,
            success_threshold: 2,
        };
        let mut streak = Streak { healthy: true, against: 0 };
        let mut states = String::new();
        for verdict in "bbgbbbgbggbgb2g0123".chars() {
            let verdict = match verdict {
                'g' => Verdict::Good,
                'b' => Verdict::Bad(String::new()),
                times => Verdict::Unreachable { times: times.to_digit(10).expect("a digit"), why: None },
            };
            streak.note(&verdict, &config);
            states.push(if streak.healthy { '+' } else { '-' });
        }
        assert_eq!(states, "+++++----++++------");
    }
}
