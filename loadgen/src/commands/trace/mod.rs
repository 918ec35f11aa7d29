//! `loadgen trace …`: recorded requests, looked at and rewritten.

mod anonymize;
mod convert;
mod info;

use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::{Args, Subcommand, ValueEnum};

use super::Failure;
use crate::app::Exit;
use crate::progress::{Display, Task};
use crate::say::note;
use crate::trace::convert::{Converted, Written};
use crate::trace::{self, Format, Rows};

/// Smaller files are read before anybody asks how far that is.
const BIG_BYTES: u64 = 32 << 20;

/// `loadgen trace …`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
enum Action {
    /// Show load, lengths, sessions and how much of the prompts a cache can serve
    Info(info::Options),
    /// Write a trace in another format
    Convert(convert::Options),
    /// Write a trace with salted block hashes and without anything that was said
    Anonymize(anonymize::Options),
}

/// Does what was asked.
pub(super) fn execute(options: &Options) -> Result<Exit, Failure> {
    match &options.action {
        Action::Info(options) => info::execute(options),
        Action::Convert(options) => convert::execute(options),
        Action::Anonymize(options) => anonymize::execute(options),
    }
}

/// The trace, and how it is read.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
struct Input {
    /// The trace
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Its format; found by the content if not given
    #[arg(long, value_name = "NAME")]
    format: Option<Format>,
    /// Pass over this many bad rows and count them; the next one is an error
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip_bad: u64,
    /// Read only the first N rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
}

impl Input {
    fn open(&self) -> Result<Rows, Failure> {
        let most = self.limit.unwrap_or(u64::MAX);
        let options = trace::Options { format: self.format, skip_bad: self.skip_bad, most };
        trace::open(&self.file, &options).map_err(|error| self.failure(error))
    }

    fn failure(&self, error: trace::TraceError) -> Failure {
        Failure::usage(error.at(self.file.display(), "give the path of a trace"))
    }

    /// Says which file is read besides the one that was given.
    fn tell_other(&self, rows: &Rows) {
        for other in rows.files().iter().filter(|path| **path != self.file) {
            let (given, other) = (self.file.display(), other.display());
            note(format_args!("loadgen: {given} and {other} are read together: they are one recording"));
        }
    }

    /// The progress through what is read, in MB.
    fn progress(&self, rows: &Rows) -> Task {
        let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let bytes: u64 = rows.files().iter().map(size).sum();
        Display::new(bytes < BIG_BYTES).task(self.file.display().to_string(), bytes >> 20, "MB")
    }

    /// Says what was passed over.
    fn tell_skipped(&self, Converted { counts, first_skipped, .. }: &Converted) {
        if let Some(first) = first_skipped {
            let (file, skipped) = (self.file.display(), counts.skipped);
            note(format_args!("loadgen: {file}: {skipped} bad rows were passed over, the first: {first}"));
        }
    }
}

impl ValueEnum for Format {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.label()).help(self.looks()))
    }
}

impl ValueEnum for Written {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        self.format().to_possible_value()
    }
}
