//! The configuration, read again while the router runs: after SIGHUP, and when its file has changed. The list of workers,
//! the policy and the policy's options are taken over; no request is lost by it. Everything else waits for the next
//! start, and that is said. What cannot be read changes nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli;
use crate::config::{Config, StaticWorker};
use crate::fleet::{Identity, Registered, Terms, drain, register};
use crate::shared::Shared;

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(2);

/// Reads again whenever there is reason to. Needs a runtime around it.
///
/// # Errors
/// The operating system refuses signal handlers.
pub(crate) fn start(shared: &Arc<Shared>, config: Config) -> std::io::Result<()> {
    let hangup = signal(SignalKind::hangup())?;
    tokio::spawn(run(Arc::clone(shared), config, hangup));
    Ok(())
}

async fn run(shared: Arc<Shared>, mut config: Config, mut hangup: Signal) {
    let mut seen = stamp(config.config_file.as_deref());
    loop {
        tokio::select! {
            _ = hangup.recv() => {}
            () = tokio::time::sleep(LOOK) => {
                let now = stamp(config.config_file.as_deref());
                if std::mem::replace(&mut seen, now) == now {
                    continue;
                }
            }
        }
        let arguments = config.source.arguments.clone();
        // It reads files and looks up names.
        let read = tokio::task::spawn_blocking(move || cli::reload(&arguments)).await;
        match read {
            Ok(Ok(reloaded)) => {
                for warning in reloaded.warnings {
                    tracing::warn!("{warning}");
                }
                apply(&shared, &config, &reloaded.config);
                config = reloaded.config;
            }
            Ok(Err(problem)) => tracing::error!("the configuration stays as it was: {problem}"),
            Err(panicked) => tracing::error!("the configuration stays as it was: {panicked}"),
        }
    }
}

/// What tells one content of a file from another.
fn stamp(file: Option<&Path>) -> Option<(SystemTime, u64)> {
    let about = std::fs::metadata(file?).ok()?;
    Some((about.modified().ok()?, about.len()))
}

fn apply(shared: &Arc<Shared>, before: &Config, now: &Config) {
    let (gone, come, changed) = differences(&before.workers, &now.workers);
    for worker in &gone {
        let leaving = shared.books.lock().find(Identity::of(&worker.address));
        if let Some(member) = leaving {
            drain(shared, &member, shared.settings.drain_timeout);
        }
    }
    // Added before the first one can have left: the last worker waits for its successor.
    for worker in come.iter().chain(&changed) {
        let terms = Terms::of(worker, shared.settings.worker_key.as_ref());
        if let Registered::Known(member) = register(shared, &worker.address, terms.clone()) {
            member.change_terms(|former| *former = terms);
        }
    }
    if before.policy != now.policy {
        shared.set_policy(now.policy.clone());
    }
    let later = before.source.changes(&now.source);
    if !later.is_empty() {
        tracing::warn!("takes effect at the next start: {}", later.join(", "));
    }
    tracing::info!(
        policy = now.policy.name(),
        workers = now.workers.len(),
        added = come.len(),
        removed = gone.len(),
        "configuration read again"
    );
}

type Workers<'a> = Vec<&'a StaticWorker>;

/// Those that are no longer there, those that are new, and those that are described otherwise.
fn differences<'a>(
    before: &'a [StaticWorker],
    now: &'a [StaticWorker],
) -> (Workers<'a>, Workers<'a>, Workers<'a>) {
    let known = |list: &'a [StaticWorker], worker: &StaticWorker| {
        list.iter().find(|other| other.address.is_same_worker(&worker.address))
    };
    let gone = before.iter().filter(|worker| known(now, worker).is_none()).collect();
    let come = now.iter().filter(|worker| known(before, worker).is_none()).collect();
    let changed =
        now.iter().filter(|worker| known(before, worker).is_some_and(|other| other != *worker)).collect();
    (gone, come, changed)
}
