//! Values that are not on the command line: those of the environment and of the file. They become the defaults of their
//! flags, so that reading, ranges and messages are the flags' own.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use super::sections;
use super::stop::Stop;

/// Environment variables, and the flags that they stand for. A new one is a new row.
pub(super) const ENVIRONMENT: &[(&str, &str)] =
    &[("SGLANG_ROUTER_P2C_LOAD_METRIC", "load_metric"), ("CONTROL_PLANE_API_KEYS", "control_plane_api_keys")];

/// How a variable of the environment is read; `None`: it is not set.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    Line { file: Arc<str>, line: usize },
    Environment(&'static str),
}

/// The value of one flag.
#[derive(Clone)]
pub(super) struct Given {
    /// As the flag takes them.
    pub(super) values: Vec<String>,
    pub(super) origin: Origin,
}

/// Values by the flags' ids.
#[derive(Clone, Default)]
pub(super) struct Layer(pub(super) BTreeMap<String, Given>);

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { file, line } => write!(f, "{file}:{line}"),
            Self::Environment(name) => f.write_str(name),
        }
    }
}

impl Given {
    /// Reads the value as its flag would, by itself, so that a mistake has its place.
    ///
    /// # Errors
    /// The flag's, after the value's place.
    pub(super) fn check(&self, id: &str, command: &mut Command) -> Result<(), Stop> {
        let flag = sections::flag(id);
        let is_switch = command.get_arguments().any(|arg| arg.get_id() == id && is_switch(arg));
        let values: Vec<String> = match &self.values[..] {
            _ if is_switch => Vec::new(),
            [] => vec![flag],
            values => values.iter().map(|value| format!("{flag}={value}")).collect(),
        };
        let typed = std::iter::once("router".to_owned()).chain(values);
        let read = command.try_get_matches_from_mut(typed);
        read.map(drop).map_err(|error| Stop::from(error).at(&self.origin))
    }
}

impl Layer {
    /// What the environment says; an empty variable says nothing.
    ///
    /// # Errors
    /// What is no text.
    pub(super) fn of_environment(environment: Environment<'_>) -> Result<Self, Stop> {
        let mut layer = Self::default();
        for (name, id) in ENVIRONMENT {
            let Some(value) = environment(name).filter(|value| !value.is_empty()) else { continue };
            let value = value.into_string().map_err(|_| Stop::Wrong(format!("{name}: not UTF-8")))?;
            let given = Given { values: vec![value], origin: Origin::Environment(name) };
            layer.0.insert((*id).to_owned(), given);
        }
        Ok(layer)
    }

    /// Checks every value by itself.
    ///
    /// # Errors
    /// See [`Given::check`].
    pub(super) fn check(&self, command: &mut Command) -> Result<(), Stop> {
        self.0.iter().try_for_each(|(id, given)| given.check(id, command))
    }

    /// Makes the values the defaults of their flags.
    pub(super) fn apply(&self, command: Command) -> Command {
        self.0.iter().fold(command, |command, (id, given)| {
            command.mut_arg(id, |arg| arg.default_values(given.values.clone()))
        })
    }

    /// Leaves out what the command line says otherwise.
    pub(super) fn retain_used(&mut self, matches: &ArgMatches) {
        self.0.retain(|id, _| matches.value_source(id) != Some(ValueSource::CommandLine));
    }

    /// Whether anybody has said something about a flag.
    pub(super) fn is_given(&self, matches: &ArgMatches, id: &str) -> bool {
        matches.value_source(id) == Some(ValueSource::CommandLine) || self.origin(id).is_some()
    }

    pub(super) fn origin(&self, id: &str) -> Option<&Origin> {
        self.0.get(id).map(|given| &given.origin)
    }

    /// Puts its place before a refusal of a value that did not come from the command line.
    pub(super) fn locate(&self, stop: Stop) -> Stop {
        let Stop::Flag { flag, problem } = &stop else { return stop };
        // Of several flags that do not fit together the blame may lie with one that is only named.
        let words = problem.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        let mut named = std::iter::once(flag.as_str()).chain(words.filter(|word| word.starts_with("--")));
        let origin = named.find_map(|flag| self.origin(&flag.trim_start_matches('-').replace('-', "_")));
        match origin {
            Some(origin) => stop.at(origin),
            None => stop,
        }
    }
}

/// Whether a flag stands by itself, without a value.
fn is_switch(arg: &Arg) -> bool {
    !arg.get_action().takes_values()
}
