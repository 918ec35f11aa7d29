//! A policy as the part of a configuration file that asks for it, for programs that find out which one to run.

use router_core::{OptionValue, PolicyConfig};
use toml::Value as Toml;

use super::check::line;
use super::sections::{POLICY, POLICY_NAME};

/// The section of a `--config` file under which a router runs this policy with these options. Every option is written, and a
/// remark stands behind those that were not set: the file goes on to mean the same where defaults are others.
#[must_use]
pub fn policy_section(policy: &PolicyConfig) -> String {
    let name = Toml::from(policy.name());
    let mut out = format!("[{POLICY}]\n{POLICY_NAME} = {name}\n");
    for (spec, value) in policy.options() {
        let text = format!("{} = {}", spec.key, literal(value));
        if policy.overrides().any(|(key, _)| key == spec.key) {
            out.push_str(&text);
            out.push('\n');
        } else {
            line(&mut out, &text, "the default");
        }
    }
    out
}

fn literal(value: &OptionValue) -> Toml {
    match value {
        OptionValue::Bool(value) => Toml::from(*value),
        OptionValue::Integer(value) => Toml::from(*value),
        OptionValue::Float(value) => Toml::from(*value),
        OptionValue::Text(value) => Toml::from(value.as_ref()),
    }
}
