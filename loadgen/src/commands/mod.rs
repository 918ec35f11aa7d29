//! What the program can do: a file for each command, with its flags.

pub mod capacity;
pub mod compare;
pub mod replay;
pub mod run;
pub mod selfcheck;
mod shared;
mod subject;
pub mod sweep;
pub mod trace;
pub mod tune;

use std::fmt::Display;

use clap::Subcommand;
use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::app::Exit;
use crate::scenario::Mode;

/// One command and its flags.
#[derive(Debug, Clone, PartialEq, Subcommand)]
pub enum Command {
    /// Run a scenario (the word `run` may be left out)
    Run(run::Options),
    /// Look at a trace, convert it or make it anonymous
    Trace(trace::Options),
    /// Run many settings of a scenario; an interrupted sweep resumes
    Sweep(sweep::Options),
    /// Look for better settings of a policy, for a scenario or a trace
    Tune(tune::Options),
    /// Find the highest load that meets the objectives
    Capacity(capacity::Options),
    /// Compare a run with its baseline: the gate
    Compare(compare::Options),
    /// Decide again what a router has recorded, by its own policy or another one
    Replay(replay::Options),
    /// Find out what this client can measure on this machine
    Selfcheck(selfcheck::Options),
}

impl Command {
    /// Does what was asked.
    ///
    /// # Errors
    /// What is to be told, and the code to exit with.
    pub fn execute(&self) -> Result<Exit, Failure> {
        match self {
            Self::Run(options) => run::execute(options),
            Self::Trace(options) => trace::execute(options),
            Self::Sweep(options) => sweep::execute(options),
            Self::Tune(options) => tune::execute(options),
            Self::Capacity(options) => capacity::execute(options),
            Self::Compare(options) => compare::execute(options),
            Self::Replay(options) => replay::execute(options),
            Self::Selfcheck(options) => selfcheck::execute(options),
        }
    }
}

/// Why a command could not be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The code to exit with.
    pub exit: Exit,
    /// What is wrong, where, and what helps.
    pub message: String,
}

impl Failure {
    /// A failure that says `message`.
    pub fn new(exit: Exit, message: impl Display) -> Self {
        Self { exit, message: message.to_string() }
    }

    /// A mistake of the command line or of a file, or results that cannot be written.
    pub fn usage(message: impl Display) -> Self {
        Self::new(Exit::Usage, message)
    }
}

impl ValueEnum for Mode {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.label()))
    }
}

/// Reads `PATH=VALUE`.
fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((path, value)) if !path.trim().is_empty() => {
            Ok((path.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("write PATH=VALUE, for example fleet.workers=4".to_owned()),
    }
}
