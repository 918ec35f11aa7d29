//! Why there is nothing to run.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::absent;
use super::given::Origin;
use crate::server::ServeError;
use crate::upstream::without_userinfo;

/// What ends the program before it begins.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Help or version was asked for.
    Show(String),
    /// One line about what is wrong with the command line, or with what it names.
    Wrong(String),
    /// What is wrong with the value of a flag (with its dashes).
    Flag { flag: String, problem: String },
    /// One line about why there can be no start now.
    Failed(String),
}

impl Stop {
    /// A refusal of what was given for `flag` (with its dashes).
    pub(super) fn wrong(flag: &str, problem: impl std::fmt::Display) -> Self {
        Self::Flag { flag: flag.to_owned(), problem: problem.to_string() }
    }

    /// What is to be said.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Show(text) | Self::Wrong(text) | Self::Failed(text) => text.clone(),
            Self::Flag { flag, problem } => format!("{flag}: {problem}"),
        }
    }

    /// The same with other names for the flags in it.
    pub(crate) fn renamed(self, rename: impl Fn(&str) -> String) -> Self {
        match self {
            Self::Show(text) => Self::Show(text),
            Self::Failed(text) => Self::Failed(rename(&text)),
            wrong => Self::Wrong(rename(&wrong.message())),
        }
    }

    /// The same about a value from elsewhere than the command line.
    pub(super) fn at(self, origin: &Origin) -> Self {
        Self::Wrong(format!("{origin}: {}", self.message()))
    }
}

impl Stop {
    /// What is wrong with a command line. Of options that the gateway has and the router has not, all are told at once.
    pub(super) fn of_line(error: clap::Error, arguments: &[OsString]) -> Self {
        if let Some((flag, form, word)) = word_apart(&error, arguments) {
            let problem =
                format!("`{}` stands behind a value that was given with `=`", without_userinfo(&word));
            return Self::wrong(flag, format!("{problem}; write {flag} {form}"));
        }
        let unknown = match (error.kind(), error.get(ContextKind::InvalidArg)) {
            (ErrorKind::UnknownArgument, Some(ContextValue::String(argument))) => argument.as_str(),
            _ => return Self::from(error),
        };
        if absent::of_gateway([unknown]).is_none() {
            return Self::from(error);
        }
        let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
        absent::of_gateway(words.iter().map(AsRef::as_ref)).map_or_else(|| Self::from(error), Self::Wrong)
    }
}

/// The flags that take several values, and how these are written.
const SEVERAL: [(&str, &str); 3] =
    [("--prefill", "URL PORT"), ("--decode", "URL URL"), ("--worker-urls", "URL URL")];

/// The word behind `--flag=VALUE`, which takes no second one, with the flag and how its values are written.
fn word_apart(error: &clap::Error, arguments: &[OsString]) -> Option<(&'static str, &'static str, String)> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    words.windows(2).find_map(|pair| {
        let (name, _) = pair[0].split_once('=')?;
        let (flag, form) = SEVERAL.iter().find(|(flag, _)| *flag == name)?;
        (!pair[1].starts_with('-')).then(|| (*flag, *form, pair[1].to_string()))
    })
}

/// A file that is of no use is a mistake of who named it.
impl From<ServeError> for Stop {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::File(_) | ServeError::Record(_) => Self::Wrong(error.to_string()),
            ServeError::Listen { .. } | ServeError::Policy(_) | ServeError::Start(_) => {
                Self::Failed(error.to_string())
            }
        }
    }
}

impl From<clap::Error> for Stop {
    fn from(error: clap::Error) -> Self {
        if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
            return Self::Show(error.to_string());
        }
        let text = error.to_string();
        let parts = text.lines().take_while(|line| !line.starts_with("Usage:")).map(str::trim);
        let line = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        let line = line.replace(" tip:", "; tip:");
        // What was typed in the wrong place may be a URL with a password.
        let line: Vec<_> = line.split(' ').map(without_userinfo).collect();
        let line = line.join(" ");
        Self::Wrong(line.trim_start_matches("error: ").replace(" For more information, try '--help'.", ""))
    }
}
