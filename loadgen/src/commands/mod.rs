//! What the program can do: a file for each command, with its flags.

pub mod run;

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
}

impl Command {
    /// Does what was asked.
    ///
    /// # Errors
    /// What is to be told, and the code to exit with.
    pub fn execute(&self) -> Result<Exit, Failure> {
        match self {
            Self::Run(options) => run::execute(options),
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
