//! Why there is nothing to run.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::absent;
use super::given::Origin;

/// What ends the program before it begins.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Help or version was asked for.
    Show(String),
    /// One line about what is wrong.
    Wrong(String),
    /// What is wrong with the value of a flag (with its dashes).
    Flag { flag: String, problem: String },
}

impl Stop {
    /// A refusal of what was given for `flag` (with its dashes).
    pub(super) fn wrong(flag: &str, problem: impl std::fmt::Display) -> Self {
        Self::Flag { flag: flag.to_owned(), problem: problem.to_string() }
    }

    /// What is to be said.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Show(text) | Self::Wrong(text) => text.clone(),
            Self::Flag { flag, problem } => format!("{flag}: {problem}"),
        }
    }

    /// The same about a value from elsewhere than the command line.
    pub(super) fn at(self, origin: &Origin) -> Self {
        Self::Wrong(format!("{origin}: {}", self.message()))
    }
}

impl From<clap::Error> for Stop {
    fn from(error: clap::Error) -> Self {
        if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
            return Self::Show(error.to_string());
        }
        if let (ErrorKind::UnknownArgument, Some(ContextValue::String(argument))) =
            (error.kind(), error.get(ContextKind::InvalidArg))
            && let Some(message) = absent::of_gateway(argument)
        {
            return Self::Wrong(message);
        }
        let text = error.to_string();
        let parts = text.lines().take_while(|line| !line.starts_with("Usage:")).map(str::trim);
        let line = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        let line = line.replace(" tip:", "; tip:");
        Self::Wrong(line.trim_start_matches("error: ").replace(" For more information, try '--help'.", ""))
    }
}
