//! Flags laid over the file: `--set`, `--policy` and `--mode`.

use std::path::Path;

use super::document::{Document, Node, Origin, Value, parse_path, parse_value};
use super::error::ScenarioError;
use super::resolve::Mode;

/// The flags as they were typed, in the order in which they are laid over the file.
pub(super) fn typed(
    overrides: &[(String, String)],
    policies: Option<&[String]>,
    trace: Option<&Path>,
    mode: Option<Mode>,
) -> Vec<String> {
    let mut flags: Vec<String> = overrides.iter().map(|(path, value)| set_flag(path, value)).collect();
    flags.extend(policies.map(policy_flag));
    flags.extend(trace.map(|path| format!("--trace {}", path.display())));
    flags.extend(mode.map(mode_flag));
    flags
}

fn set_flag(path: &str, value: &str) -> String {
    format!("--set {path}={value}")
}

fn policy_flag(policies: &[String]) -> String {
    format!("--policy {}", policies.join(","))
}

fn mode_flag(mode: Mode) -> String {
    format!("--mode {}", mode.label())
}

/// Lays the flags over `document`.
pub(super) fn apply(
    document: &mut Document,
    overrides: &[(String, String)],
    policies: Option<&[String]>,
    mode: Option<Mode>,
) -> Result<(), ScenarioError> {
    for (path, value) in overrides {
        let origin = Origin::Flag(set_flag(path, value).into());
        let remedy = "write --set path.to.key=value";
        let keys = parse_path(path)
            .ok_or_else(|| ScenarioError::at(&origin, format!("\"{path}\" is not a path of keys"), remedy))?;
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        if keys[0] == "assert" {
            let problem = "assertions are a list and have no path";
            return Err(ScenarioError::at(&origin, problem, "change them in the file"));
        }
        document.set(&keys, parse_value(value, &origin));
    }
    if let Some(policies) = policies {
        let origin = Origin::Flag(policy_flag(policies).into());
        let item = |name: &String| Node { value: Value::Text(name.clone()), origin: origin.clone() };
        let value = Value::List(policies.iter().map(item).collect());
        document.set(&["router", "policies"], Node { value, origin: origin.clone() });
    }
    if let Some(mode) = mode {
        let origin = Origin::Flag(mode_flag(mode).into());
        document.set(&["mode"], Node { value: Value::Text(mode.label().to_owned()), origin });
    }
    Ok(())
}
