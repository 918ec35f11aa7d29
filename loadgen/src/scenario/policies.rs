//! The only place where scenarios meet the router's policy table.

use router_core::{OptionError, OptionValue, POLICIES, PolicyConfig};

use super::document::{Node, Value};
use super::error::{ScenarioError, suggest};
use super::section::{Field, Section};

/// The policies that "*" stands for: all that need no header of the client.
pub(super) fn without_headers() -> Vec<String> {
    POLICIES.iter().filter(|row| !row.needs_header).map(|row| row.name.to_owned()).collect()
}

/// Whether a policy says how much of a prompt it expects to be cached.
pub(super) fn predicts(name: &str) -> bool {
    PolicyConfig::new(name).is_ok_and(|config| config.signals().prefix_index.is_some())
}

/// The name of a policy that exists.
pub(super) fn known_name(field: &Field<'_>) -> Result<String, ScenarioError> {
    known_key(field.text()?, field)
}

/// The name of a policy that exists, typed as `name` where `field` is.
pub(super) fn known_key(name: &str, field: &Field<'_>) -> Result<String, ScenarioError> {
    let names = || POLICIES.iter().map(|row| row.name);
    if names().any(|known| known == name) {
        return Ok(name.to_owned());
    }
    Err(field.error(format!("\"{name}\" is not a policy"), suggest(name, names())))
}

/// The policy `name` with the options of its table, `[router.options.NAME]`.
pub(super) fn configure(name: &str, options: Option<&Node>) -> Result<PolicyConfig, ScenarioError> {
    let mut config = PolicyConfig::new(name)
        .map_err(|unknown| ScenarioError::at("router.policies", unknown.to_string(), ""))?;
    let Some(options) = options else { return Ok(config) };
    let path = format!("router.options.{name}");
    for (key, field) in Section::unchecked(options, &path)?.fields() {
        let value = option_value(&field)?;
        config.set(key, value).map_err(|error| refuse(&field, error))?;
    }
    Ok(config)
}

fn option_value(field: &Field<'_>) -> Result<OptionValue, ScenarioError> {
    Ok(match &field.node.value {
        Value::Bool(value) => OptionValue::Bool(*value),
        Value::Integer(value) => OptionValue::Integer(*value),
        Value::Float(value) => OptionValue::Float(*value),
        Value::Text(value) => OptionValue::Text(value.clone().into()),
        Value::Date(_) | Value::List(_) | Value::Table(_) => {
            return Err(field.wrong_kind("a number or a word"));
        }
    })
}

fn refuse(field: &Field<'_>, error: OptionError) -> ScenarioError {
    match error {
        OptionError::Unknown { policy, key, known, .. } => {
            field.error(format!("policy \"{policy}\" has no option \"{key}\""), suggest(&key, known))
        }
        OptionError::NotAllowed { value, allowed, .. } => {
            field.error(format!("{value} is not allowed"), format!("it takes {allowed}"))
        }
    }
}
