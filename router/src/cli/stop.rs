//! Why there is nothing to run.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::absent;

/// What ends the program before it begins.
#[derive(Debug)]
pub(super) enum Stop {
    /// Help or version was asked for.
    Show(String),
    /// One line about what is wrong.
    Wrong(String),
}

impl Stop {
    /// A refusal of what was given for `flag` (with its dashes).
    pub(super) fn wrong(flag: &str, problem: impl std::fmt::Display) -> Self {
        Self::Wrong(format!("{flag}: {problem}"))
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
