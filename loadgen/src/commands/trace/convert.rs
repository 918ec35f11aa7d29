//! `loadgen trace convert FILE OUT --to FORMAT`

use std::path::PathBuf;

use clap::Args;

use super::{Failure, Input};
use crate::app::Exit;
use crate::commands::shared::refuse_input;
use crate::say::{note, say};
use crate::trace::Rows;
use crate::trace::convert::{self, ConvertError, Converted, Names, Written};
use crate::whole::write_whole;

/// `loadgen trace convert FILE OUT --to FORMAT …`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(super) struct Options {
    #[command(flatten)]
    input: Input,
    /// The file to write
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// The format to write
    #[arg(long, value_name = "NAME")]
    to: Written,
}

/// Writes the trace in another format.
pub(super) fn execute(options: &Options) -> Result<Exit, Failure> {
    let Options { input, out, to } = options;
    let told = to.format();
    let rows = input.open()?;
    let from = rows.format();
    let converted = write(input, rows, out, *to, Names::numbered())?;
    if from.tells_blocks() && !told.tells_blocks() {
        note(format_args!("loadgen: {} does not say what prompts share: that is lost", told.label()));
    }
    if !from.tells_blocks() && told.tells_blocks() {
        note(format_args!(
            "loadgen: {} does not say what prompts share: every prompt got blocks of its own",
            from.label()
        ));
    }
    if !converted.timed && *to != Written::Aiperf {
        note("loadgen: the trace has no times: all are 0; replay it with an [arrival] of its own");
    }
    Ok(Exit::Done)
}

/// Writes `rows` to `out` and says how many there are.
pub(super) fn write(
    input: &Input,
    rows: Rows,
    out: &PathBuf,
    to: Written,
    names: Names,
) -> Result<Converted, Failure> {
    refuse_input([out], "the trace itself", rows.files())?;
    input.tell_other(&rows);
    let progress = input.progress(&rows);
    let mut converted = None;
    let written = write_whole(out, |file| {
        converted = Some(convert::convert(rows, file, to, names, |bytes| progress.set(bytes >> 20))?);
        Ok(())
    });
    drop(progress);
    written.map_err(|error| match error {
        ConvertError::Trace(error) => input.failure(error),
        ConvertError::Output(error) => {
            Failure::usage(format!("{}: cannot be written: {error}; choose another place", out.display()))
        }
    })?;
    let converted = converted.expect("what was written was converted");
    input.tell_skipped(&converted);
    say(format_args!("{}: {} rows, {}\n", out.display(), converted.counts.rows, to.format().label()));
    Ok(converted)
}
