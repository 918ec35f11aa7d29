//! The groups of flags: a heading of `--help` each, and a section of the configuration file.

use clap::Arg;
use router_core::{OptionKind, POLICIES};

use super::observe::LogLevel;
use crate::config::{AccessLog, RankField};

/// The section of the policy and its options.
pub(super) const POLICY: &str = "policy";

/// The tables with one worker each.
pub(super) const WORKER_TABLES: &str = "workers";

/// What the policy is called within its section; elsewhere that is `policy`.
pub(super) const POLICY_NAME: &str = "name";

/// Headings and sections, in the order of the help.
pub(super) const SECTIONS: &[(&str, &str)] = &[
    ("Traffic", "traffic"),
    // `workers` are the tables of single workers.
    ("Workers", "fleet"),
    ("Prefill and decode", "disaggregation"),
    ("Policy options", POLICY),
    ("Limits", "limits"),
    ("Retries", "retries"),
    ("Breakers", "breakers"),
    ("Health", "health"),
    ("Time limits", "time_limits"),
    ("Security", "security"),
    ("Metrics and logs", "metrics_and_logs"),
    ("Process", "process"),
];

/// Flags whose values are shown to nobody.
const SECRETS: &[&str] = &["api_key", "worker_api_key", "control_plane_api_keys"];

/// What kind of TOML value a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Bool,
    Number,
    Text,
    /// Numbers or texts, any number of them.
    List,
}

/// The section of a flag; `None`: a file cannot set it.
pub(super) fn section(arg: &Arg) -> Option<&'static str> {
    let heading = arg.get_help_heading().filter(|_| arg.get_id() != "config")?;
    SECTIONS.iter().find(|(known, _)| *known == heading).map(|(_, section)| *section)
}

/// The key of a flag within its section.
pub(super) fn key(arg: &Arg) -> &str {
    let id = arg.get_id().as_str();
    if id == "policy" { POLICY_NAME } else { id }
}

/// The flag as it is typed.
pub(super) fn flag(id: &str) -> String {
    format!("--{}", id.replace('_', "-"))
}

pub(super) fn is_secret(id: &str) -> bool {
    SECRETS.contains(&id)
}

/// What kind of value a flag takes.
pub(super) fn shape(arg: &Arg) -> Shape {
    use std::any::TypeId;
    let kind = arg.get_value_parser().type_id();
    if !arg.get_action().takes_values() || kind == TypeId::of::<bool>() {
        return Shape::Bool;
    }
    if matches!(arg.get_action(), clap::ArgAction::Append) {
        return Shape::List;
    }
    let texts = [
        TypeId::of::<std::path::PathBuf>(),
        TypeId::of::<http::Uri>(),
        TypeId::of::<LogLevel>(),
        TypeId::of::<AccessLog>(),
        TypeId::of::<RankField>(),
    ];
    let id = arg.get_id().as_str();
    let option = POLICIES.iter().flat_map(|row| row.options).find(|spec| spec.key == id);
    let is_text = match option {
        Some(spec) => matches!(spec.kind, OptionKind::Choice(_)),
        None => kind == TypeId::of::<String>() || texts.iter().any(|text| kind == *text),
    };
    if is_text { Shape::Text } else { Shape::Number }
}
