//! Compares a line of a trace with what came out.

use serde_json::{Map, Value};

/// Results that a line may lack: not every recorder writes them.
const OPTIONAL: &[&str] = &["expected_nodes"];

/// Whether a field is a result, rather than a part of the question.
pub(crate) fn is_result(name: &str) -> bool {
    name.starts_with("expected_")
        || matches!(name, "rejected" | "failed_check" | "ext" | "end" | "need" | "steps")
}

/// The first field in which `got` is not what `line` says.
pub(crate) fn lines(line: &Value, got: &Value) -> Result<(), String> {
    let fail = |why: String| Err(format!("op {}, {why}", line["op"]));
    let (Some(line_fields), Some(got_fields)) = (line.as_object(), got.as_object()) else {
        return fail("not an object".into());
    };
    if let Err(why) = objects(line_fields, got_fields) {
        return fail(why);
    }
    let none = Vec::new();
    let requests = |value: &Value| value["reqs"].as_array().unwrap_or(&none).clone();
    for (line, got) in requests(line).iter().zip(&requests(got)) {
        if let (Some(line_fields), Some(got)) = (line.as_object(), got.as_object())
            && let Err(why) = objects(line_fields, got)
        {
            return fail(format!("request {}, {why}", line["rid"]));
        }
    }
    Ok(())
}

fn objects(line: &Map<String, Value>, got: &Map<String, Value>) -> Result<(), String> {
    for (name, expected) in line.iter().filter(|(name, _)| is_result(name)) {
        match got.get(name) {
            None => return Err(format!("field {name}: expected {expected}, got nothing of that name")),
            Some(got) if got != expected => {
                return Err(format!("field {name}: expected {expected}, got {got}"));
            }
            Some(_) => {}
        }
    }
    let missing = got.iter().find(|(name, _)| is_result(name) && !line.contains_key(*name));
    match missing {
        Some((name, got)) if !OPTIONAL.contains(&name.as_str()) => {
            Err(format!("field {name}: expected nothing, got {got}"))
        }
        _ => Ok(()),
    }
}

#[test]
fn differences_are_found() {
    let got = serde_json::json!({"op": "admit", "expected_free": 3, "expected_nodes": 1,
        "reqs": [{"rid": "r1", "expected_cached": 2, "rejected": true}]});
    let cases = [
        (
            "same",
            r#"{"op":"admit","expected_free":3,"reqs":[{"rid":"r1","expected_cached":2,"rejected":true}]}"#,
            true,
        ),
        ("number", r#"{"op":"admit","expected_free":4,"reqs":[]}"#, false),
        ("unknown", r#"{"op":"admit","expected_free":3,"expected_wonder":1,"reqs":[]}"#, false),
        ("absent", r#"{"op":"admit","reqs":[]}"#, false),
        ("nodes", r#"{"op":"admit","expected_free":3,"expected_nodes":2,"reqs":[]}"#, false),
        (
            "not rejected",
            r#"{"op":"admit","expected_free":3,"reqs":[{"rid":"r1","expected_cached":2}]}"#,
            false,
        ),
        (
            "cached",
            r#"{"op":"admit","expected_free":3,"reqs":[{"rid":"r1","expected_cached":1,"rejected":true}]}"#,
            false,
        ),
    ];
    for (case, line, same) in cases {
        assert_eq!(lines(&serde_json::from_str(line).unwrap(), &got).is_ok(), same, "{case}");
    }
}
