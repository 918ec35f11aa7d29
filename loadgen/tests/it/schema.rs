//! As much of JSON Schema as the schemas of this repository use. A keyword that is not known here is a mistake of the
//! schema, and so is a key of a document that the schema does not describe.

use serde_json::{Map, Value};

use crate::support::root;

/// Keywords that say nothing about a document.
const REMARKS: [&str; 5] = ["$schema", "$id", "$defs", "title", "description"];

pub(crate) struct Schema {
    root: Value,
}

impl Schema {
    /// The schema `reports/schema/NAME.schema.json`.
    pub(crate) fn committed(name: &str) -> Self {
        let path = root().join(format!("reports/schema/{name}.schema.json"));
        Self { root: serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap() }
    }

    /// What is wrong with a document, each with its place.
    pub(crate) fn mistakes(&self, document: &Value) -> Vec<String> {
        let mut mistakes = Vec::new();
        self.check(&self.root, document, "", &mut mistakes);
        mistakes
    }

    fn check(&self, schema: &Value, value: &Value, place: &str, mistakes: &mut Vec<String>) {
        let schema = schema.as_object().unwrap_or_else(|| panic!("{place}: no schema"));
        for (keyword, rule) in schema {
            match keyword.as_str() {
                "$ref" => {
                    let pointer = rule.as_str().unwrap().strip_prefix('#').unwrap();
                    self.check(self.root.pointer(pointer).expect(pointer), value, place, mistakes);
                    continue;
                }
                "properties" => self.properties(rule, schema, value, place, mistakes),
                "items" => {
                    for (at, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(rule, item, &format!("{place}/{at}"), mistakes);
                    }
                }
                "additionalProperties" if !schema.contains_key("properties") => {
                    for (key, item) in value.as_object().into_iter().flatten() {
                        self.check(rule, item, &format!("{place}/{key}"), mistakes);
                    }
                }
                _ if holds(keyword, rule, value) => {}
                _ => mistakes.push(format!("{place}: {value} breaks {keyword} {rule}")),
            }
        }
    }

    fn properties(
        &self,
        rule: &Value,
        schema: &Map<String, Value>,
        value: &Value,
        place: &str,
        mistakes: &mut Vec<String>,
    ) {
        assert!(!schema.contains_key("additionalProperties"), "{place}: not known beside properties");
        for (key, item) in value.as_object().into_iter().flatten() {
            let place = format!("{place}/{key}");
            match rule.get(key) {
                Some(schema) => self.check(schema, item, &place, mistakes),
                None => mistakes.push(format!("{place} is not described")),
            }
        }
    }
}

/// Whether a document keeps a rule that has no schemas within.
fn holds(keyword: &str, rule: &Value, value: &Value) -> bool {
    let number = |rule: &Value| rule.as_f64().unwrap();
    match keyword {
        "type" => {
            let types = rule.as_array().cloned().unwrap_or_else(|| vec![rule.clone()]);
            types.iter().any(|name| is(value, name.as_str().unwrap()))
        }
        "required" => {
            let keys = rule.as_array().unwrap();
            value
                .as_object()
                .is_none_or(|object| keys.iter().all(|key| object.contains_key(key.as_str().unwrap())))
        }
        "const" => value == rule,
        "enum" => rule.as_array().unwrap().contains(value),
        "minimum" => value.as_f64().is_none_or(|value| value >= number(rule)),
        "maximum" => value.as_f64().is_none_or(|value| value <= number(rule)),
        "minItems" => value.as_array().is_none_or(|items| items.len() as f64 >= number(rule)),
        "maxItems" => value.as_array().is_none_or(|items| items.len() as f64 <= number(rule)),
        _ => REMARKS.contains(&keyword),
    }
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => false,
    }
}
