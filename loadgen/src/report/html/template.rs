//! Filling templates: everything is escaped, and a name the facts lack is an error.

use minijinja::value::Serde;
use minijinja::{Environment, Error, UndefinedBehavior, Value};
use serde::Serialize;

/// The filled template as markup that is not escaped again.
pub(super) fn fill(name: &str, source: &str, facts: impl Serialize) -> Result<Value, Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_filter("breaks", |text: String| markup(breaks(&text)));
    environment.add_filter("unbroken", |text: String| unbroken(&text));
    let text = environment.render_named_str(name, source, Serde(facts))?;
    Ok(Value::from_safe_string(text))
}

/// A name that may go on in the next line behind an underscore, and nowhere else within a word.
fn breaks(name: &str) -> String {
    escape(name).replace('_', "_<wbr>")
}

/// Text in which no figure stands apart from its unit.
fn unbroken(text: &str) -> String {
    [" %", " ms", " s;", " s."]
        .into_iter()
        .fold(text.to_owned(), |text, unit| text.replace(unit, &unit.replace(' ', "\u{a0}")))
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
