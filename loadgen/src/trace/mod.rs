//! Recorded requests: reading them in every public form, looking at them, and writing them for others.
//!
//! A file per format under `formats`, all behind one `Reader`: it gives rows one at a time and holds no more of the file
//! than one row (a conversation, where that is what the file is made of). [`Rows`] adds what all formats have in common:
//! bad rows that are tolerated and counted, the limit, the place in the message. What does not fit is refused with its
//! row: a trace that is silently bent gives figures that nobody can compare.

mod blocks;
pub mod convert;
mod detect;
mod error;
mod fields;
mod format;
mod formats;
mod grid;
pub mod info;
mod rows;
mod source;
mod stamp;
mod write;

#[cfg(test)]
mod mistakes;
#[cfg(test)]
mod real;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

pub use error::TraceError;
pub use format::Format;
pub use grid::Grid;
pub(crate) use grid::ROUNDING_NS;
pub use rows::{Counts, Rows};

use crate::decisions;

/// How a trace is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Options {
    /// The format; absent, it is found by the content.
    pub format: Option<Format>,
    /// How many bad rows are passed over; the next one is an error.
    pub skip_bad: u64,
    /// How many good rows are read.
    pub most: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { format: None, skip_bad: 0, most: u64::MAX }
    }
}

/// A trace in memory; it has at least one row.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The rows, ordered by time.
    pub rows: Vec<Row>,
    /// Prompt tokens per block of [`Row::blocks`].
    pub block_tokens: u32,
    /// The format it was read in.
    pub format: Format,
    /// Whether the rows have times; without, every [`Row::at_ns`] is 0.
    pub timed: bool,
    /// Bad rows that were passed over.
    pub skipped: u64,
}

impl Trace {
    /// How many rows wait for no other row.
    #[must_use]
    pub fn starts(&self) -> u64 {
        self.rows.iter().filter(|row| row.parent.is_none()).count() as u64
    }
}

/// One request of a trace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row {
    /// When it came, in nanoseconds on the trace's own clock.
    pub at_ns: u64,
    /// Length of the prompt, in tokens; at least 1.
    pub input_tokens: u32,
    /// Length of the reply, in tokens; at least 1. An engine always gives a token, so a recorded 0 is read as 1.
    pub output_tokens: u32,
    /// The content of each block of the prompt, by name; a name means the same content wherever it stands in the trace.
    /// What the last block leaves over is content of the row's own, and so is all of the prompt when there are no blocks.
    pub blocks: Box<[u64]>,
    /// The session it belongs to.
    pub session: Option<u64>,
    /// The row (counted from 0) whose reply it waited for.
    pub parent: Option<u32>,
    /// How long the client waited after that reply, in nanoseconds, where the trace says.
    pub think_ns: Option<u64>,
}

/// Opens the trace at `path`; the rows are read as they are asked for. Of a router's recording both files are read that it keeps.
///
/// # Errors
/// The file cannot be read, or is of no known format.
pub fn open(path: &Path, options: &Options) -> Result<Rows, TraceError> {
    let (files, read) = (decisions::kept(path), Arc::default());
    let sources = files.iter().map(|path| source::open(path, &read)).collect::<Result<_, _>>()?;
    Rows::new(sources, read, files, options)
}

/// Reads the trace at `path`.
///
/// # Errors
/// As [`open`], and the first row that is wrong beyond those that are passed over.
pub fn read(path: &Path, options: &Options) -> Result<Trace, TraceError> {
    open(path, options)?.collect_trace()
}
