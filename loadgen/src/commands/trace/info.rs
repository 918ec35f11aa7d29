//! `loadgen trace info FILE`

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;

use super::{Failure, Input};
use crate::app::Exit;
use crate::commands::shared::{refuse_input, write_json};
use crate::say::say;
use crate::trace::info::{self, Fleet, Width};

/// `loadgen trace info FILE …`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(super) struct Options {
    #[command(flatten)]
    input: Input,
    /// Write the figures to a file too
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Tokens of KV of one worker: show what its cache would serve too
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    kv_tokens: Option<u64>,
    /// How many such workers: show what the caches of all together would serve too
    #[arg(long, value_name = "N", requires = "kv_tokens", value_parser = clap::value_parser!(u32).range(1..))]
    workers: Option<u32>,
}

/// Shows what the trace is like.
pub(super) fn execute(options: &Options) -> Result<Exit, Failure> {
    let Options { input, json, kv_tokens, workers } = options;
    let fleet = kv_tokens.map(|kv_tokens| Fleet { kv_tokens, workers: workers.unwrap_or(1) });
    let rows = input.open()?;
    refuse_input(json, "the trace itself", rows.files())?;
    let progress = input.progress(&rows);
    let info =
        info::analyse(rows, &input.file.display().to_string(), fleet, |bytes| progress.set(bytes >> 20));
    drop(progress);
    let info = info.map_err(|error| input.failure(error))?;
    let width = if std::io::stdout().is_terminal() { Width::Unicode } else { Width::Ascii };
    say(info.render(width));
    json.as_deref().map_or(Ok(()), |path| write_json(path, &info))?;
    Ok(Exit::Done)
}
