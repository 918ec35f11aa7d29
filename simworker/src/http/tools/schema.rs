//! A value that fits a JSON schema, always the same for the same schema and seed. What a tool's parameters usually have
//! is looked at: types, required members, choices, bounds, lengths, references. Patterns and formats are not.

use std::cell::Cell;
use std::io;

use protocol::tokenizer::{block_token, decode, mix};
use serde::Serialize;
use serde_json::ser::Formatter;
use serde_json::{Map, Serializer, Value};

/// How deep values may be nested; deeper ones are `null`.
const MAX_DEPTH: u32 = 16;
/// The most members of a list that a schema asks for.
const MAX_ITEMS: u64 = 8;
/// The most values in all; further ones are `null`. References and nested lists could ask for any number.
const MAX_VALUES: u32 = 1024;
/// Numbers are within so much of their bound.
const SPAN: u64 = 100;

/// A fitting value as text, with the blanks that Python writes.
pub(super) fn example(schema: &Value, seed: u64) -> String {
    let value = Maker { root: schema, left: Cell::new(MAX_VALUES) }.make(schema, seed, 0);
    let mut text = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut text, Blanks);
    value.serialize(&mut serializer).expect("plain data always serialises");
    String::from_utf8(text).expect("JSON text is UTF-8")
}

struct Maker<'a> {
    /// References begin there.
    root: &'a Value,
    /// Values that may still be made.
    left: Cell<u32>,
}

impl Maker<'_> {
    fn make(&self, schema: &Value, seed: u64, depth: u32) -> Value {
        let Some(left) = self.left.get().checked_sub(1) else { return Value::Null };
        self.left.set(left);
        if depth > MAX_DEPTH {
            return Value::Null;
        }
        let deeper = |schema: &Value| self.make(schema, seed, depth + 1);
        if let Some(value) = schema.get("const").or_else(|| first(schema, "enum")) {
            return value.clone();
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
            "integer" => Value::from(number(schema, seed)),
            "number" => Value::from(number(schema, seed) as f64),
            "boolean" => Value::Bool(seed.is_multiple_of(2)),
            "null" => Value::Null,
            _ => Value::String(text(schema, seed)),
        }
    }

    fn object(&self, schema: &Value, seed: u64, depth: u32) -> Value {
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let member = |name: &str| {
            let inner = schema.get("properties").and_then(|all| all.get(name)).unwrap_or(&Value::Null);
            let seed = name.bytes().fold(seed, |hash, byte| mix(hash ^ u64::from(byte)));
            (name.to_owned(), self.make(inner, seed, depth + 1))
        };
        let required = required.filter_map(Value::as_str).take_while(|_| self.left.get() > 0);
        Value::Object(required.map(member).collect::<Map<_, _>>())
    }

    fn array(&self, schema: &Value, seed: u64, depth: u32) -> Value {
        let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
        let most = bound("maxItems").unwrap_or(MAX_ITEMS).min(MAX_ITEMS);
        let items = bound("minItems").unwrap_or(1).min(most);
        let inner = schema.get("items").unwrap_or(&Value::Null);
        let items = (0..items).take_while(|_| self.left.get() > 0);
        items.map(|at| self.make(inner, mix(seed ^ at), depth + 1)).collect()
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

fn number(schema: &Value, seed: u64) -> i64 {
    let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
    let least =
        bound("minimum").map(f64::ceil).or(bound("exclusiveMinimum").map(|bound| bound.floor() + 1.0));
    let most = bound("maximum").map(f64::floor).or(bound("exclusiveMaximum").map(|bound| bound.ceil() - 1.0));
    let (least, most) = (least.map(|bound| bound as i64), most.map(|bound| bound as i64));
    let draw = (mix(seed) % SPAN) as i64;
    match (least, most) {
        (Some(least), most) => least.saturating_add(draw).min(most.unwrap_or(i64::MAX)),
        (None, Some(most)) => most.saturating_sub(draw),
        (None, None) => draw,
    }
}

fn text(schema: &Value, seed: u64) -> String {
    let bound = |key: &str, usual: u64| schema.get(key).and_then(Value::as_u64).unwrap_or(usual).min(4096);
    let least = bound("minLength", 0);
    // A token is a blank and three letters.
    let tokens = (least / 3 + 1) as u32;
    let mut text: String = (0..tokens).map(|at| decode(&[block_token(seed, at)]).split_off(1)).collect();
    text.truncate(least.max(3).min(bound("maxLength", 4096)) as usize);
    text
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
            let value: Value = serde_json::from_str(&example(&schema, seed)).unwrap();
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
    fn a_schema_that_refers_to_itself_ends() {
        let schema = json!({"properties": {"next": {"$ref": "#"}}, "required": ["next"]});
        assert!(example(&schema, 1).len() < 1000);
        let names: Vec<String> = (0..64).map(|at| format!("member_{at}")).collect();
        let members: Map<_, _> = names.iter().map(|name| (name.clone(), json!({"$ref": "#"}))).collect();
        let wide = json!({"properties": members, "required": names});
        let list = json!({"type": "array", "minItems": 8, "items": {"$ref": "#"}});
        for schema in [wide, list] {
            assert!(example(&schema, 1).len() < 100_000, "many branches at each depth");
        }
    }

    #[test]
    fn text_has_the_blanks_of_python() {
        let schema = json!({"const": {"a": [1, 2], "b": {}}});
        assert_eq!(example(&schema, 0), r#"{"a": [1, 2], "b": {}}"#);
    }
}
