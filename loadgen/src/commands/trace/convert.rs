//! `loadgen trace convert FILE OUT --to FORMAT`

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::progress::Progress;
use super::{Failure, Input, output};
use crate::app::Exit;
use crate::trace::convert::{self, ConvertError, Converted, Names};
use crate::trace::{Format, Rows};

/// `loadgen trace convert FILE OUT --to FORMAT …`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(super) struct Options {
    #[command(flatten)]
    input: Input,
    /// The file to write
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// The format to write
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(Format::WRITTEN.map(Format::label)))]
    to: String,
}

/// Writes the trace in another format.
pub(super) fn execute(options: &Options) -> Result<Exit, Failure> {
    let Options { input, out, to } = options;
    let rows = input.open()?;
    let from = rows.format();
    let to = Format::WRITTEN.into_iter().find(|format| format.label() == to);
    let to = to.ok_or_else(|| Failure::usage("--to: unknown format"))?;
    let converted = write(input, rows, out, to, Names::numbered())?;
    if from.tells_blocks() && !to.tells_blocks() {
        eprintln!("loadgen: {} does not say what prompts share: that is lost", to.label());
    }
    if !from.tells_blocks() && to.tells_blocks() {
        eprintln!(
            "loadgen: {} does not say what prompts share: every prompt got blocks of its own",
            from.label()
        );
    }
    if !converted.timed && to != Format::Aiperf {
        eprintln!("loadgen: the trace has no times: all are 0; replay it with an [arrival] of its own");
    }
    Ok(Exit::Done)
}

/// Writes `rows` to `out` and says how many there are.
pub(super) fn write(
    input: &Input,
    rows: Rows,
    out: &Path,
    to: Format,
    names: Names,
) -> Result<Converted, Failure> {
    let same = |a: &Path, b: &Path| matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b);
    if same(&input.file, out) {
        return Err(Failure::usage(format!("{} is the trace itself; give another file", out.display())));
    }
    let progress = Progress::of(&input.file);
    let mut converted = None;
    let written = output::write(out, |file| {
        converted = Some(convert::convert(rows, file, to, names, |bytes| progress.set(bytes))?);
        Ok(())
    });
    progress.done();
    written.map_err(|error| match error {
        ConvertError::Trace(error) => input.failure(error),
        ConvertError::Output(error) => {
            Failure::usage(format!("{}: cannot be written: {error}; choose another place", out.display()))
        }
    })?;
    let converted = converted.expect("what was written was converted");
    input.tell_skipped(converted.counts.skipped);
    println!("{}: {} rows, {}", out.display(), converted.counts.rows, to.label());
    Ok(converted)
}
