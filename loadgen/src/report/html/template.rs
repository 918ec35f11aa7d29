//! Filling templates: everything is escaped, and a name the facts lack is an error.

use minijinja::value::Serde;
use minijinja::{Environment, Error, UndefinedBehavior, Value};
use serde::Serialize;

/// The filled template as markup that is not escaped again.
pub(super) fn fill(name: &str, source: &str, facts: impl Serialize) -> Result<Value, Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let text = environment.render_named_str(name, source, Serde(facts))?;
    Ok(Value::from_safe_string(text))
}

/// Markup made by hand.
pub(super) fn markup(text: String) -> Value {
    Value::from_safe_string(text)
}

/// Text made safe to stand in markup and in attributes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}
