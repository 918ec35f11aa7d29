//! What was said, and where: for `router check`, and to tell what a file that is read again has changed.

use std::ffi::OsString;
use std::fmt;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

use super::given::Layer;
use super::sections::{self, POLICY, Shape};

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
}

impl Source {
    /// The flags of which another one says something else, in the order of the help; without those of workers and policy.
    pub(crate) fn changes(&self, other: &Self) -> Vec<String> {
        let said = |values: &Values, id: &str| {
            values.0.iter().find(|value| value.id == id).map(|value| value.texts.clone())
        };
        let is_elsewhere = |value: &&Value| value.section != POLICY && value.id != "worker_urls";
        let values = other.values.0.iter().filter(is_elsewhere);
        let changed = values.filter(|value| said(&self.values, &value.id) != Some(value.texts.clone()));
        changed.map(|value| sections::flag(&value.id)).collect()
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
