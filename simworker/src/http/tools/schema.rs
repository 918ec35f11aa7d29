//! A value that fits a JSON schema, always the same for the same schema and seed. What a tool's parameters usually have
//! is looked at: types, required members, choices, bounds, lengths, references. Patterns and formats are not.
//!
//! A schema can ask for any amount, or for what never ends. Under a grammar an engine writes on until the reply has its
//! length, so what is beyond the budget here is said to be the beginning of a longer value.

use std::cell::Cell;
use std::io;

use protocol::tokenizer::{block_token, decode, mix};
use serde::Serialize;
use serde_json::ser::Formatter;
use serde_json::{Map, Serializer, Value};

use super::bounds::Bounds;
use crate::http::labels::hash;

/// How deep values may be nested, which no real schema needs.
const MAX_DEPTH: u32 = 64;
/// The most that a value may have in all: each value and name in it counts one, and one more for every four bytes of text.
const BUDGET: usize = 1 << 15;

/// A value as text, with the blanks that Python writes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Example {
    pub(super) text: String,
    /// It fits the schema. Otherwise the schema asks for more than the budget has, and the value is cut.
    pub(super) is_whole: bool,
}

/// A value for a schema.
pub(super) fn example(schema: &Value, seed: u64) -> Example {
    let maker = Maker { root: schema, left: Cell::new(Some(BUDGET)) };
    let value = maker.make(schema, seed, 0);
    let mut text = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut text, Blanks);
    value.serialize(&mut serializer).expect("plain data always serialises");
    let text = String::from_utf8(text).expect("JSON text is UTF-8");
    Example { text, is_whole: maker.left.get().is_some() }
}

struct Maker<'a> {
    /// References begin there.
    root: &'a Value,
    /// What is left of the budget; none once more was asked for.
    left: Cell<Option<usize>>,
}

impl Maker<'_> {
    /// Takes a value with so many bytes of text from the budget; false when there is too little left of it.
    fn take(&self, bytes: usize) -> bool {
        self.left.set(self.left.get().and_then(|left| left.checked_sub(1 + bytes / 4)));
        self.left.get().is_some()
    }

    fn make(&self, schema: &Value, seed: u64, depth: u32) -> Value {
        if depth > MAX_DEPTH {
            self.left.set(None);
        }
        if !self.take(0) {
            return Value::Null;
        }
        let deeper = |schema: &Value| self.make(schema, seed, depth + 1);
        if let Some(value) = schema.get("const").or_else(|| first(schema, "enum")) {
            return if self.take(size(value)) { value.clone() } else { Value::Null };
        }
        if let Some(place) = schema.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix('#')) {
            return self.root.pointer(place).map_or(Value::Null, deeper);
        }
        if let Some(one) = ["anyOf", "oneOf", "allOf"].into_iter().find_map(|key| first(schema, key)) {
            return deeper(one);
        }
        match kind(schema) {
            "object" => self.object(schema, seed, depth),
            "array" => self.array(schema, seed, depth),
            "integer" => Bounds::read(schema).integer(seed).into(),
            "number" => Bounds::read(schema).number(seed).into(),
            "boolean" => Value::Bool(seed.is_multiple_of(2)),
            "null" => Value::Null,
            _ => self.text(schema, seed),
        }
    }

    fn object(&self, schema: &Value, seed: u64, depth: u32) -> Value {
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let mut members = Map::new();
        for name in required.filter_map(Value::as_str) {
            if !self.take(name.len()) {
                break;
            }
            let inner = schema.get("properties").and_then(|all| all.get(name)).unwrap_or(&Value::Null);
            members.insert(name.to_owned(), self.make(inner, hash(seed, name), depth + 1));
        }
        Value::Object(members)
    }

    fn array(&self, schema: &Value, seed: u64, depth: u32) -> Value {
        let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
        let items = bound("minItems").unwrap_or(1).min(bound("maxItems").unwrap_or(u64::MAX));
        let inner = schema.get("items").unwrap_or(&Value::Null);
        let made = (0..items).map(|at| self.make(inner, mix(seed ^ at), depth + 1));
        // The first that is beyond the budget is the last.
        made.take_while(|_| self.left.get().is_some()).collect()
    }

    fn text(&self, schema: &Value, seed: u64) -> Value {
        let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
        let most = bound("maxLength").unwrap_or(u64::MAX);
        let least = bound("minLength").unwrap_or(0).max(3).min(most);
        let Some(length) = usize::try_from(least).ok().filter(|length| self.take(*length)) else {
            self.left.set(None);
            return Value::Null;
        };
        // A token is a blank and three letters.
        let tokens = (length / 3 + 1) as u32;
        let mut text: String = (0..tokens).map(|at| decode(&[block_token(seed, at)]).split_off(1)).collect();
        text.truncate(length);
        Value::String(text)
    }
}

/// Bytes of a value that is given.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| 4 + size(item)).sum(),
        Value::Object(members) => members.iter().map(|(name, value)| 4 + name.len() + size(value)).sum(),
    }
}

/// The first entry of the list `key`.
fn first<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    schema.get(key)?.get(0)
}

/// The type; of several the first that is something.
fn kind(schema: &Value) -> &str {
    let given = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
        Some(one) => one.as_str(),
        None => None,
    };
    given.unwrap_or(if schema.get("properties").is_some() { "object" } else { "string" })
}

/// `json.dumps`: a blank after each comma and colon.
struct Blanks;

impl Formatter for Blanks {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { to.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { to.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn whole(schema: &Value, seed: u64) -> Value {
        let made = example(schema, seed);
        assert!(made.is_whole, "{schema}");
        serde_json::from_str(&made.text).unwrap()
    }

    #[test]
    fn values_fit_their_schema() {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 5},
                "short": {"type": ["null", "string"], "maxLength": 2},
                "unit": {"enum": ["C", "F"]},
                "days": {"type": "integer", "minimum": 3, "maximum": 4},
                "share": {"type": "number", "exclusiveMaximum": 0},
                "is": {"type": "boolean"},
                "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2},
                "none": {"type": "array", "maxItems": 0},
                "place": {"$ref": "#/$defs/place"},
                "either": {"anyOf": [{"const": 7}, {"type": "string"}]},
                "optional": {"type": "string"},
            },
            "required": ["name", "short", "unit", "days", "share", "is", "tags", "none", "place", "either", "what"],
            "$defs": {"place": {"properties": {"x": {"type": "integer"}}, "required": ["x"]}},
        });
        for seed in 0..20 {
            let value: Value = whole(&schema, seed);
            assert_eq!(value.as_object().unwrap().len(), 11, "what is required and nothing else: {value}");
            assert_eq!(value["name"].as_str().unwrap().len(), 5);
            assert_eq!(value["short"].as_str().unwrap().len(), 2);
            assert_eq!((&value["unit"], &value["either"]), (&json!("C"), &json!(7)));
            assert!((3..=4).contains(&value["days"].as_i64().unwrap()));
            assert!(value["share"].as_f64().unwrap() < 0.0 && value["is"].is_boolean());
            assert_eq!((value["tags"].as_array().unwrap().len(), &value["none"]), (2, &json!([])));
            assert!(value["place"]["x"].is_i64() && value["what"].is_string());
        }
        assert_eq!(example(&schema, 1), example(&schema, 1));
        assert_ne!(example(&schema, 1), example(&schema, 2));
    }

    #[test]
    fn long_lists_and_texts_are_as_long_as_they_must_be() {
        let schema = json!({"type": "array", "minItems": 300, "items": {"type": "array", "minItems": 20,
            "items": {"type": "integer"}}});
        let lists = whole(&schema, 1);
        assert_eq!(lists.as_array().unwrap().len(), 300);
        assert!(lists.as_array().unwrap().iter().all(|list| list.as_array().unwrap().len() == 20));
        let text = whole(&json!({"type": "string", "minLength": 50_000}), 1);
        assert_eq!(text.as_str().unwrap().len(), 50_000);
        assert_eq!(whole(&json!({"type": "string", "maxLength": 0}), 1), "");
        let nested =
            (0..50).fold(json!({"type": "integer"}), |inner, _| json!({"type": "array", "items": inner}));
        assert!(whole(&nested, 1).to_string().starts_with(&"[".repeat(50)));
    }

    #[test]
    fn a_schema_without_an_end_has_a_beginning() {
        let names: Vec<String> = (0..64).map(|at| format!("member_{at}")).collect();
        let members: Map<_, _> = names.iter().map(|name| (name.clone(), json!({"$ref": "#"}))).collect();
        let long = "x".repeat(10_000);
        let cases = [
            json!({"properties": {"next": {"$ref": "#"}}, "required": ["next"]}),
            json!({"$ref": "#"}),
            json!({"properties": members, "required": names}),
            json!({"type": "array", "minItems": 8, "items": {"$ref": "#"}}),
            json!({"type": "array", "minItems": u64::MAX, "items": {"type": "null"}}),
            json!({"type": "array", "minItems": u64::MAX, "items": {"const": long}}),
            json!({"type": "string", "minLength": u64::MAX}),
            json!({"type": "object", "required": vec![long; 100]}),
        ];
        for schema in cases {
            let made = example(&schema, 1);
            assert!(!made.is_whole, "{schema}");
            // Names and blanks around small values are more than these.
            assert!(made.text.len() < 20 * BUDGET, "{}", made.text.len());
        }
    }

    #[test]
    fn text_has_the_blanks_of_python() {
        let schema = json!({"const": {"a": [1, 2], "b": {}}});
        assert_eq!(example(&schema, 0).text, r#"{"a": [1, 2], "b": {}}"#);
    }
}
