//! Why there is no trace.

use std::fmt;
use std::io;

use crate::scenario::ScenarioError;

/// Why there is no trace.
#[derive(Debug)]
pub enum TraceError {
    /// The file cannot be read.
    File(io::Error),
    /// A row is wrong, or the file as a whole.
    Row(ScenarioError),
}

impl TraceError {
    /// The error as a mistake of the scenario; `blame` places the mistake of naming a file that cannot be read.
    pub(crate) fn blame(self, blame: impl FnOnce(String) -> ScenarioError) -> ScenarioError {
        match self {
            Self::File(error) => blame(format!("cannot be read: {error}")),
            Self::Row(error) => error,
        }
    }

    /// The error as a mistake of the command line, on which the file stands at `place`.
    pub(crate) fn at(self, place: impl ToString, remedy: &str) -> ScenarioError {
        self.blame(|problem| ScenarioError::at(place, problem, remedy))
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => write!(f, "cannot be read: {error}"),
            Self::Row(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TraceError {}

/// A problem and its remedy.
pub(super) type Mistake = (String, &'static str);

/// Why a reader has no next row.
#[derive(Debug)]
pub(super) enum Fault {
    /// The file cannot be read.
    File(io::Error),
    /// What begins at `line` is not a row. Reading can go on behind it.
    Bad { line: u64, mistake: Mistake },
    /// What begins at `line` is no trace of this format, and there is no telling where the next row begins.
    Lost { line: u64, mistake: Mistake },
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

/// Places a mistake.
pub(super) fn bad(line: u64) -> impl Fn(Mistake) -> Fault {
    move |mistake| Fault::Bad { line, mistake }
}
