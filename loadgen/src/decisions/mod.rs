//! Replaying what a router has recorded (`--record-trace`; `docs/router-trace.md`).
//!
//! A fresh [`router_core::Router`] and prefix index of the same configuration are told everything that the recorded ones were
//! told, in the same order. What these decided is withheld and only compared. With the recorded policy that proves that the
//! record is whole and the core decides by its inputs alone; with another policy it shows what that would have chosen, under
//! the loads and failures that the recorded one has met. Where a part of the record is missing, books and index follow the
//! recorded decisions, so that what is not known is forgotten in time.

mod belief;
mod choice;
mod file;
mod machine;
#[cfg(test)]
mod oracle;
mod policies;
mod prompt;
mod settled;
#[cfg(test)]
mod sweep;
mod tally;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub use file::{Recording, kept};
use machine::Machine;
pub use policies::Change;
pub use settled::Settled;
pub use tally::{Difference, Replayed, Side};

/// Least share of decisions that a replay with the recorded policy must find the same.
pub const LEAST_SHARE: f64 = 0.99;

/// Why there is no replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be read.
    #[error("{}: {error}; give the path of a file that `router --record-trace` wrote", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A line is none of a recording.
    #[error("{}:{line}: {problem}; {remedy}", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// What is wrong.
        problem: String,
        /// What helps.
        remedy: &'static str,
    },
    /// The files do not belong together.
    #[error("{0}")]
    Set(String),
    /// The policy or one of its options cannot be.
    #[error("{0}")]
    Policy(String),
}

/// Replays the recording whose files are at `paths`, under its own policies or under other ones; see [`Recording::open`].
///
/// # Errors
/// [`ReplayError`]
pub fn replay(paths: &[PathBuf], change: &Change) -> Result<Replayed, ReplayError> {
    let mut recording = Recording::open(paths)?;
    let mut machine = Machine::new(recording.header(), change)?;
    while let Some((line, number)) = recording.advance()? {
        machine.feed(line).map_err(|problem| recording.wrong(number, problem))?;
    }
    Ok(machine.end(recording.is_cut()))
}
