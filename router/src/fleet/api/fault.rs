//! What is wrong with a description of a worker, in the words of those who write one.

use serde_json::{Map, Value};

/// A member of a description.
struct Member {
    name: &'static str,
    /// What it must be.
    kind: &'static str,
    is_fit: fn(&Value) -> bool,
}

const TEXT: &str = "a text";

const MEMBERS: &[Member] = &[
    Member { name: "url", kind: "a text, http://HOST:PORT", is_fit: Value::is_string },
    Member { name: "worker_type", kind: TEXT, is_fit: is_text },
    Member {
        name: "bootstrap_port",
        kind: "a whole number from 1 to 65535",
        is_fit: |value| value.is_null() || value.as_u64().is_some_and(|port| (1..=65_535).contains(&port)),
    },
    Member { name: "runtime", kind: TEXT, is_fit: is_text },
    Member { name: "model_id", kind: TEXT, is_fit: is_text },
    Member { name: "api_key", kind: TEXT, is_fit: is_text },
    Member {
        name: "disable_health_check",
        kind: "true or false",
        is_fit: |value| value.is_null() || value.is_boolean(),
    },
    Member { name: "priority", kind: "a whole number from 0 to 4294967295", is_fit: is_priority },
    Member {
        name: "cost",
        kind: "a number of 0 or more",
        is_fit: |value| value.is_null() || value.is_number(),
    },
    Member { name: "labels", kind: "an object whose values are texts", is_fit: is_labels },
];

/// What is wrong with a body that `error` was found in.
pub(super) fn of(body: &[u8], error: &serde_json::Error) -> String {
    match serde_json::from_slice(body) {
        Err(syntax) => format!("the body is not JSON: {syntax}"),
        Ok(Value::Object(members)) => {
            wrong(&members).unwrap_or_else(|| format!("the body does not describe a worker: {error}"))
        }
        Ok(_) => r#"the body is not an object such as {"url": "http://HOST:PORT"}"#.to_owned(),
    }
}

/// The first member that is not what it must be, or is missing.
fn wrong(members: &Map<String, Value>) -> Option<String> {
    let unfit = |row: &&Member| members.get(row.name).is_some_and(|value| !(row.is_fit)(value));
    if let Some(Member { name, kind, .. }) = MEMBERS.iter().find(unfit) {
        return Some(format!("{name}: must be {kind}"));
    }
    (!members.contains_key("url")).then(|| "url: is missing; give http://HOST:PORT".to_owned())
}

fn is_text(value: &Value) -> bool {
    value.is_null() || value.is_string()
}

fn is_priority(value: &Value) -> bool {
    value.is_null() || value.as_u64().is_some_and(|number| u32::try_from(number).is_ok())
}

fn is_labels(value: &Value) -> bool {
    let is_fit = |labels: &Map<String, Value>| labels.values().all(Value::is_string);
    value.is_null() || value.as_object().is_some_and(is_fit)
}

#[cfg(test)]
mod tests {
    use super::super::change::{Addition, Change};
    use super::*;

    #[test]
    fn a_fault_is_told_by_the_members_name() {
        for (body, told) in [
            ("", "the body is not JSON: "),
            (r#"{"url": "http://a:1",}"#, "the body is not JSON: "),
            ("[]", "not an object such as {\"url\""),
            (r#""http://a:1""#, "not an object"),
            ("{}", "url: is missing"),
            (r#"{"priority": 1}"#, "url: is missing"),
            (r#"{"url": 1}"#, "url: must be a text, http://HOST:PORT"),
            (r#"{"url": "u", "priority": -1}"#, "priority: must be a whole number from 0 to 4294967295"),
            (r#"{"url": "u", "priority": 4294967296}"#, "priority: must be a whole number"),
            (r#"{"url": "u", "priority": 1.5}"#, "priority: must be a whole number"),
            (r#"{"url": "u", "cost": "1"}"#, "cost: must be a number"),
            (r#"{"url": "u", "labels": {"a": 1}}"#, "labels: must be an object whose values are texts"),
            (r#"{"url": "u", "labels": ["a"]}"#, "labels: must be"),
            (r#"{"url": "u", "disable_health_check": "yes"}"#, "disable_health_check: must be true or false"),
            (r#"{"url": "u", "model_id": 7}"#, "model_id: must be a text"),
        ] {
            let error = serde_json::from_str::<Addition>(body).map(drop).expect_err(body);
            let said = of(body.as_bytes(), &error);
            assert!(said.contains(told), "{body}: {said}");
            assert!(!said.contains("struct"), "{body}: {said}");
        }
        let error =
            serde_json::from_str::<Change>(r#"{"priority": "high"}"#).map(drop).expect_err("no number");
        assert_eq!(
            of(br#"{"priority": "high"}"#, &error),
            "priority: must be a whole number from 0 to 4294967295"
        );
    }
}
