//! What was said, and where: for `router check`, and to tell what a file that is read again has changed.

use std::ffi::OsString;
use std::fmt;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

use super::given::Layer;
use super::policy::is_policy;
use super::sections::{self, POLICY, Shape};
use crate::reload::Contents;

/// The flags that say who the workers are.
const WORKERS: [&str; 4] = ["worker_urls", "pd_disaggregation", "prefill", "decode"];

/// The flags that say when pairs are used, and by how many decode streams.
const PAIRING: [&str; 3] = ["decode_dispatch_limit", "prefer_pd", "pd_least_uncached_tokens"];

/// The value of one flag.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) id: String,
    pub(super) section: &'static str,
    /// Its name within the section.
    pub(super) key: String,
    pub(super) shape: Shape,
    /// As the flag takes them; `None`: nothing was said and there is no default.
    pub(super) texts: Option<Vec<String>>,
    /// For people: the flag, the variable, the line, or the default.
    pub(super) source: String,
}

/// Every flag that a file could set, in the order of the help.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Values(pub(super) Vec<Value>);

/// Where a configuration comes from.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Source {
    /// The command line, the name of the program first.
    pub(crate) arguments: Vec<OsString>,
    pub(super) values: Values,
    /// What is remembered of the file; absent if there is none.
    pub(crate) file: Option<FileMark>,
}

/// What tells a file from another one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileMark {
    pub(crate) contents: Contents,
    /// It says nothing at all.
    pub(crate) is_blank: bool,
}

impl Source {
    /// The flags of which another one says something else, in the order of the help; without those of workers, policy and
    /// pairs.
    pub(crate) fn changes(&self, other: &Self) -> Vec<String> {
        let is_taken_over = |value: &Value| value.section == POLICY || PAIRING.contains(&value.id.as_str());
        let changed = self.differing(other).filter(|(_, value)| !is_taken_over(value));
        changed.map(|(_, value)| sections::flag(&value.id)).collect()
    }

    /// The options of policies of which another one says something else, each as `--flag from → to`.
    pub(crate) fn policy_changes(&self, other: &Self) -> Vec<String> {
        self.lines(other, |value| value.section == POLICY && !is_policy(&value.id))
    }

    /// The same of the flags that say when pairs are used.
    pub(crate) fn pairing_changes(&self, other: &Self) -> Vec<String> {
        self.lines(other, |value| PAIRING.contains(&value.id.as_str()))
    }

    fn lines(&self, other: &Self, which: impl Fn(&Value) -> bool) -> Vec<String> {
        let changed = self.differing(other).filter(|(_, value)| which(value));
        let line = |(before, now): (&Value, &Value)| {
            let said =
                |value: &Value| value.texts.as_ref().map_or("default".to_owned(), |texts| texts.join(" "));
            format!("{} {} → {}", sections::flag(&now.id), said(before), said(now))
        };
        changed.map(line).collect()
    }

    /// The flags that say one thing here and another one there; without that of workers, which come from elsewhere too.
    fn differing<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (&'a Value, &'a Value)> {
        // Both are all flags, in one order.
        let pairs = self.values.0.iter().zip(&other.values.0);
        pairs.filter(|(before, now)| before.texts != now.texts && !WORKERS.contains(&now.id.as_str()))
    }
}

impl Values {
    pub(super) fn new(command: &Command, matches: &ArgMatches, layer: &Layer) -> Self {
        let value = |arg: &clap::Arg| {
            let id = arg.get_id().as_str();
            let raw = matches.get_raw(id);
            let texts = raw.map(|raw| raw.map(|text| text.to_string_lossy().into_owned()).collect());
            let source = match (matches.value_source(id), layer.origin(id)) {
                (Some(ValueSource::CommandLine), _) => sections::flag(id),
                (_, Some(origin)) => origin.to_string(),
                (_, None) => "default".to_owned(),
            };
            Some(Value {
                section: sections::section(arg)?,
                key: sections::key(arg).to_owned(),
                shape: sections::shape(arg),
                id: id.to_owned(),
                texts,
                source,
            })
        };
        Self(command.get_arguments().filter_map(value).collect())
    }
}

// The values may be keys.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source(…)")
    }
}
