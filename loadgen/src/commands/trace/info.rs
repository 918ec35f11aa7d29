//! `loadgen trace info FILE`

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use super::progress::Progress;
use super::{Failure, Input, output};
use crate::app::Exit;
use crate::trace::info::{self, TraceInfo, Width};

/// `loadgen trace info FILE …`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(super) struct Options {
    #[command(flatten)]
    input: Input,
    /// Write the figures to a file too
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

/// Shows what the trace is like.
pub(super) fn execute(options: &Options) -> Result<Exit, Failure> {
    let Options { input, json } = options;
    let rows = input.open()?;
    let progress = Progress::of(&input.file);
    let info = info::analyse(rows, &input.file.display().to_string(), |bytes| progress.set(bytes));
    progress.done();
    let info = info.map_err(|error| input.failure(error))?;
    let width = if std::io::stdout().is_terminal() { Width::Unicode } else { Width::Ascii };
    // A reader that has gone away is no reason to fail.
    let _ = std::io::stdout().lock().write_all(info.render(width).as_bytes());
    json.as_deref().map_or(Ok(()), |path| write_json(path, &info))?;
    Ok(Exit::Done)
}

fn write_json(path: &Path, info: &TraceInfo) -> Result<(), Failure> {
    output::write(path, |to| {
        serde_json::to_writer_pretty(&mut *to, info)?;
        to.write_all(b"\n")
    })
    .map_err(|error| Failure::usage(format!("--json {}: cannot be written: {error}", path.display())))
}
