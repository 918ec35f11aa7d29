//! `loadgen replay`: what a router has recorded, decided again.

use std::path::PathBuf;

use clap::Args;

use super::{Failure, assignment};
use crate::app::{Exit, uninterrupted};
use crate::decisions::{self, Change, LEAST_SHARE, Replayed};

/// `loadgen replay …`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Options {
    /// What `router --record-trace FILE` wrote; FILE.1 is read before it where that belongs to it
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Decide by this policy instead of the recorded one
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Set an option of the policy, e.g. cache_threshold=0.3; may be given several times
    #[arg(long, value_name = "OPTION=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// Write what was found as JSON
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

/// Does what was asked.
pub(super) fn execute(options: &Options) -> Result<Exit, Failure> {
    let change = Change { policy: options.policy.clone(), set: options.set.clone() };
    let replayed = decisions::replay(&options.file, &change).map_err(Failure::usage)?;
    print!("{replayed}");
    if let Some(path) = &options.json {
        let mut text = serde_json::to_string_pretty(&replayed).map_err(Failure::usage)?;
        text.push('\n');
        uninterrupted(|| std::fs::write(path, text)).map_err(|error| {
            let path = path.display();
            Failure::usage(format!("--json {path}: {error}; name a file that can be written"))
        })?;
    }
    Ok(judge(&replayed))
}

/// A whole recording under its own policies must give its own decisions.
fn judge(replayed: &Replayed) -> Exit {
    if !replayed.same_policy || !replayed.whole || replayed.identical_share >= LEAST_SHARE {
        return Exit::Done;
    }
    eprintln!("loadgen: fewer than {} % of the decisions are identical", LEAST_SHARE * 100.0);
    Exit::AssertFailed
}
