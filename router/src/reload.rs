//! The configuration, read again while the router runs: after SIGHUP, and when its file has changed and is no longer being
//! written. The list of workers, the policy and the policy's options, and when pairs are used are taken over; no request is lost by it.
//! Everything else waits for the next start, and that is said. What cannot be read changes nothing.

mod changes;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::task::spawn_blocking;

pub(crate) use self::watch::Contents;
use self::watch::Watch;
use crate::cli::{self, Reloaded, Source};
use crate::config::Config;
use crate::shared::Shared;

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(2);

/// Reads again whenever there is reason to. Needs a runtime around it.
pub(crate) fn start(shared: &Arc<Shared>, config: Config, hangup: Signal) {
    tokio::spawn(run(Arc::clone(shared), config, hangup));
}

async fn run(shared: Arc<Shared>, mut config: Config, mut hangup: Signal) {
    let started = config.source.clone();
    // As it was read at the start: a change since then is one.
    let mut watch = Watch::new(contents(&config.source));
    loop {
        let is_asked = tokio::select! {
            _ = hangup.recv() => true,
            () = tokio::time::sleep(LOOK) => false,
        };
        let now = look(config.config_file.clone()).await;
        if !watch.look(now) && !is_asked {
            continue;
        }
        match read(&config).await {
            // It is being written again; the next looks will tell.
            Ok(reloaded) if !is_asked && contents(&reloaded.config.source) != now => {}
            Ok(reloaded) => {
                for warning in reloaded.warnings {
                    tracing::warn!("{warning}");
                }
                watch.take(contents(&reloaded.config.source));
                changes::apply(&shared, &config, &reloaded.config, &started);
                config = reloaded.config;
            }
            Err(problem) => {
                watch.take(now);
                tracing::error!("the configuration stays as it was: {problem}");
            }
        }
    }
}

fn contents(source: &Source) -> Option<Contents> {
    source.file.map(|file| file.contents)
}

/// The disk may be another machine's.
async fn look(file: Option<PathBuf>) -> Option<Contents> {
    let looked = spawn_blocking(move || Contents::of_file(&file?)).await;
    looked.ok().flatten()
}

/// Reads files and looks up names.
async fn read(before: &Config) -> Result<Reloaded, String> {
    let arguments = before.source.arguments.clone();
    let read = spawn_blocking(move || cli::reload(&arguments)).await;
    let reloaded = read.map_err(|panicked| panicked.to_string())??;
    let is_blank = reloaded.config.source.file.is_some_and(|file| file.is_blank);
    if is_blank && reloaded.config.workers.is_empty() && !before.workers.is_empty() {
        let file = before.config_file.clone().unwrap_or_default();
        let (file, workers) = (file.display(), before.workers.len());
        let remedy = "to take them all out, write `worker_urls = []` there";
        return Err(format!("{file} says nothing at all, and {workers} workers came from it; {remedy}"));
    }
    Ok(reloaded)
}
