//! The rows of a trace, one at a time, whatever its format.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::{Fault, Mistake, TraceError};
use super::formats;
use super::source::{self, Source};
use super::{Format, Options, Row, Trace, detect};
use crate::scenario::ScenarioError;

/// What reads one format.
pub(super) trait Reader {
    /// The next row, which gets the place `place`.
    fn next(&mut self, place: &Place) -> Result<Option<Row>, Fault>;

    /// Tokens per block. Known once a row has been read.
    fn block_tokens(&self) -> u32;

    /// Whether rows have times. Known once a row has been read.
    fn timed(&self) -> bool {
        true
    }

    /// What was left out so far because it is no request.
    fn left_out(&self) -> u64 {
        0
    }

    /// How many of its files have been read to their ends.
    fn ended_files(&self) -> usize {
        0
    }
}

/// The place that the next row gets in the trace.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    /// Its number, from 0.
    pub(super) seq: u32,
    /// The time of the row before it, in nanoseconds.
    pub(super) former_ns: u64,
}

impl Place {
    /// `at_ns`, if it does not go back in time; `show` writes a time as the trace does.
    pub(super) fn in_order(&self, at_ns: u64, show: impl Fn(u64) -> String) -> Result<u64, Mistake> {
        if at_ns >= self.former_ns {
            return Ok(at_ns);
        }
        let problem = format!("timestamp {} comes after {}", show(at_ns), show(self.former_ns));
        Err((problem, "sort the rows by timestamp"))
    }
}

/// What was met on the way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows that were given.
    pub rows: u64,
    /// Bad rows that were passed over.
    pub skipped: u64,
    /// What is in the file and is no request (see [`Format::left_out`]).
    pub left_out: u64,
}

/// The rows of a trace as they are read: ordered by time, at least one. Nothing comes after an error.
pub struct Rows {
    files: Vec<PathBuf>,
    format: Format,
    reader: Box<dyn Reader>,
    skip_bad: u64,
    most: u64,
    counts: Counts,
    place: Place,
    first_skipped: Option<String>,
    ended: bool,
    read: Arc<AtomicU64>,
}

impl Rows {
    /// The rows of `sources`, at least one, which are those of `files`; `read` counts their bytes.
    pub(super) fn new(
        mut sources: VecDeque<Source>,
        read: Arc<AtomicU64>,
        files: Vec<PathBuf>,
        options: &Options,
    ) -> Result<Self, TraceError> {
        let first = sources.pop_front().unwrap_or_else(|| Box::new(io::empty()));
        let (head, source) = source::head(first).map_err(TraceError::File)?;
        let format = match options.format {
            Some(format) => format,
            None => detect::format(&head).map_err(|(problem, remedy)| {
                TraceError::Row(ScenarioError::at(format_args!("{}:1", name(&files, 0)), problem, remedy))
            })?,
        };
        Ok(Self {
            files,
            format,
            reader: formats::reader(format, source, sources),
            skip_bad: options.skip_bad,
            most: options.most,
            counts: Counts::default(),
            place: Place::default(),
            first_skipped: None,
            ended: false,
            read,
        })
    }

    /// The format, as it was given or found.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// The files that are read, in their order.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Tokens per block; known once a row has been read.
    #[must_use]
    pub fn block_tokens(&self) -> u32 {
        self.reader.block_tokens()
    }

    /// Whether the rows have times; known once a row has been read.
    #[must_use]
    pub fn timed(&self) -> bool {
        self.reader.timed()
    }

    /// What was met so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { left_out: self.reader.left_out(), ..self.counts }
    }

    /// The first bad row that was passed over, and what is wrong with it.
    #[must_use]
    pub fn first_skipped(&self) -> Option<&str> {
        self.first_skipped.as_deref()
    }

    /// Bytes of the files that have been read.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// All that is left, in memory.
    pub(super) fn collect_trace(mut self) -> Result<Trace, TraceError> {
        let rows = self.by_ref().collect::<Result<Vec<Row>, TraceError>>()?;
        let (block_tokens, timed) = (self.block_tokens(), self.timed());
        Ok(Trace { rows, block_tokens, format: self.format, timed, skipped: self.counts.skipped })
    }

    /// The next row, or the end; bad rows are passed over as far as that is allowed.
    fn advance(&mut self) -> Result<Option<Row>, TraceError> {
        if self.counts.rows >= self.most {
            return Ok(None);
        }
        loop {
            let (line, mistake, goes_on) = match self.reader.next(&self.place) {
                Ok(Some(row)) => {
                    self.counts.rows += 1;
                    self.place = Place { seq: self.place.seq.saturating_add(1), former_ns: row.at_ns };
                    return Ok(Some(row));
                }
                Ok(None) if self.counts.rows == 0 => return Err(self.empty()),
                Ok(None) => return Ok(None),
                Err(Fault::File(error)) => return Err(TraceError::File(error)),
                Err(Fault::Bad { line, mistake }) => (line, mistake, true),
                Err(Fault::Lost { line, mistake }) => (line, mistake, false),
            };
            let error = self.bad(line, mistake);
            if !goes_on || self.counts.skipped >= self.skip_bad {
                return Err(TraceError::Row(error));
            }
            self.counts.skipped += 1;
            self.first_skipped.get_or_insert_with(|| error.to_string());
        }
    }

    fn bad(&self, line: u64, (problem, remedy): Mistake) -> ScenarioError {
        let problem = match self.counts.skipped {
            0 => problem,
            skipped => format!("{problem} (and {skipped} bad rows before it)"),
        };
        ScenarioError::at(
            format_args!("{}:{line}", name(&self.files, self.reader.ended_files())),
            problem,
            remedy,
        )
    }

    fn empty(&self) -> TraceError {
        let problem = match self.counts().left_out + self.counts.skipped {
            0 => "the trace is empty".to_owned(),
            without => format!("none of the {without} rows is a request"),
        };
        let place = format!("{}:1", name(&self.files, self.reader.ended_files()));
        TraceError::Row(ScenarioError::at(place, problem, "it needs one row per request"))
    }
}

fn name(files: &[PathBuf], at: usize) -> impl Display {
    files.get(at).map(|path| path.display().to_string()).unwrap_or_default()
}

impl Iterator for Rows {
    type Item = Result<Row, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.advance().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}
