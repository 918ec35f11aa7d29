//! Flags laid over the file: `--set`, `--policy` and `--mode`.

use super::document::{Document, Node, Origin, Value, parse_path, parse_value};
use super::error::ScenarioError;
use super::resolve::Mode;

/// Lays the flags over `document`.
pub(super) fn apply(
    document: &mut Document,
    overrides: &[(String, String)],
    policies: Option<&[String]>,
    mode: Option<Mode>,
) -> Result<(), ScenarioError> {
    for (path, value) in overrides {
        let origin = Origin::Flag(format!("--set {path}={value}").into());
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
        let origin = Origin::Flag(format!("--policy {}", policies.join(",")).into());
        let item = |name: &String| Node { value: Value::Text(name.clone()), origin: origin.clone() };
        let value = Value::List(policies.iter().map(item).collect());
        document.set(&["router", "policies"], Node { value, origin: origin.clone() });
    }
    if let Some(mode) = mode {
        let origin = Origin::Flag(format!("--mode {}", mode.label()).into());
        document.set(&["mode"], Node { value: Value::Text(mode.label().to_owned()), origin });
    }
    Ok(())
}
