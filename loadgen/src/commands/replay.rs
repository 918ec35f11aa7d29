//! `loadgen replay`: what a router has recorded, decided again.

use std::path::PathBuf;

use clap::Args;

use super::shared::{refuse_input, write_json};
use super::{Failure, assignment};
use crate::app::Exit;
use crate::decisions::{self, Change, LEAST_SHARE, Replayed};
use crate::say::{note, say};

/// `loadgen replay …`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Options {
    /// What `router --record-trace FILE` wrote; of FILE and FILE.1 one is enough. Files that were kept from earlier are given
    /// with them, in any order
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
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
    let read: Vec<PathBuf> = options.files.iter().flat_map(|path| decisions::kept(path)).collect();
    refuse_input(&options.json, "one of the recordings", &read)?;
    let change = Change { policy: options.policy.clone(), set: options.set.clone() };
    let replayed = decisions::replay(&options.files, &change).map_err(Failure::usage)?;
    say(&replayed);
    if let Some(path) = &options.json {
        write_json(path, &replayed)?;
    }
    Ok(judge(&replayed))
}

/// A whole recording under its own policies must give its own decisions, as far as these rest on what is recorded.
fn judge(replayed: &Replayed) -> Exit {
    let is_bound = replayed.same_policy && replayed.whole && replayed.unplaced == 0;
    if !is_bound || replayed.identical_share >= LEAST_SHARE {
        return Exit::Done;
    }
    note(format_args!("loadgen: fewer than {} % of the decisions are identical", LEAST_SHARE * 100.0));
    Exit::AssertFailed
}
