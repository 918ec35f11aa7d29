//! Calls of tools that a chat forces.

use protocol::output::carries_output;
use serde_json::{Value, json};

use crate::client::{Worker, keys, words};

const CHAT: &str = "/v1/chat/completions";

fn body(choice: Value, stream: bool) -> Value {
    let tool = |name: &str, key: &str| {
        let parameters = json!({"type": "object", "required": [key], "properties": {key: {"type": "string", "minLength": 30}}});
        json!({"type": "function", "function": {"name": name, "parameters": parameters}})
    };
    json!({
        "messages": [{"role": "user", "content": "Which weather is it?"}], "tool_choice": choice,
        "tools": [tool("weather", "city"), tool("time", "zone")], "stream": stream,
    })
}

fn named(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name}})
}

#[test]
fn a_forced_call_is_the_answer() {
    let worker = Worker::start();
    for (choice, name, key) in [
        (json!("required"), "weather", "city"),
        (named("weather"), "weather", "city"),
        (named("time"), "time", "zone"),
    ] {
        let answer = worker.post(CHAT, &body(choice.clone(), false));
        let json = answer.json();
        let whole = &json["choices"][0];
        assert_eq!(whole["finish_reason"], "tool_calls");
        assert_eq!(whole["matched_stop"], Value::Null);
        assert_eq!(
            (&whole["message"]["content"], &whole["message"]["role"]),
            (&json!(""), &json!("assistant"))
        );
        let call = &whole["message"]["tool_calls"][0];
        let (_, text) = answer.body.split_once("\"tool_calls\":[").unwrap();
        assert_eq!(keys(&text[..text.find("}}").unwrap() + 2]), words("id index type function"));
        assert!(call["id"].as_str().unwrap().starts_with("call_"), "{call}");
        assert_eq!((&call["type"], &call["index"]), (&json!("function"), &json!(0)));
        assert_eq!(call["function"]["name"], name);
        let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(arguments[key].as_str().unwrap().len(), 30);
        let again = worker.post(CHAT, &body(choice, false)).json();
        assert_eq!(again["choices"][0]["message"]["tool_calls"][0]["function"], call["function"]);
        assert_eq!(again["usage"]["completion_tokens"], json["usage"]["completion_tokens"]);
    }
}

#[test]
fn a_streamed_call_is_the_same_in_pieces() {
    let worker = Worker::at_speed(5.0, |_| ());
    let mut asked = body(json!("required"), true);
    asked["stream_options"] = json!({"include_usage": true});
    let answer = worker.post(CHAT, &asked);
    let events = answer.events();
    let [role, calls @ .., end, usage] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(role["choices"][0]["delta"]["role"], "assistant");
    let piece = |event: &Value| event["choices"][0]["delta"]["tool_calls"][0].clone();
    let first = piece(&calls[0]);
    assert_eq!(
        (&first["function"]["name"], &first["function"]["arguments"]),
        (&json!("weather"), &json!(""))
    );
    assert!(first["id"].as_str().unwrap().starts_with("call_"));
    assert!(calls.len() > 2, "in several pieces: {calls:?}");
    for later in &calls[1..] {
        let call = piece(later);
        assert_eq!(
            (&call["id"], &call["function"]["name"], &call["index"]),
            (&Value::Null, &Value::Null, &json!(0))
        );
        assert!(carries_output(later.to_string().as_bytes()));
        let delta = later["choices"][0]["delta"].as_object().unwrap();
        assert!(
            ["role", "content", "reasoning_content"].iter().all(|key| delta[*key].is_null()),
            "{delta:?}"
        );
    }
    assert!(!carries_output(role.to_string().as_bytes()) && carries_output(calls[0].to_string().as_bytes()));
    let arguments: String = calls
        .iter()
        .map(|event| piece(event)["function"]["arguments"].as_str().unwrap().to_owned())
        .collect();
    let whole = worker.post(CHAT, &body(json!("required"), false)).json();
    assert_eq!(whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], arguments);
    assert_eq!(end["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(usage["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
}

#[test]
fn a_call_that_is_cut_is_no_call() {
    let worker = Worker::start();
    let mut asked = body(json!("required"), false);
    asked["max_tokens"] = 10.into();
    let answer = worker.post(CHAT, &asked).json();
    let choice = &answer["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &answer["usage"]["completion_tokens"]),
        (&json!("length"), &json!(10))
    );
    assert!(choice["message"].get("tool_calls").is_none());
    assert!(
        choice["message"]["content"].as_str().unwrap().starts_with("[{\"name\": \"weather\""),
        "{choice}"
    );
    asked["stream"] = true.into();
    let events = worker.post(CHAT, &asked).events();
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length");
}

#[test]
fn a_call_that_may_be_made_is_not() {
    let worker = Worker::start();
    for choice in [json!("auto"), json!("none"), Value::Null] {
        let choice = worker.post(CHAT, &body(choice, false)).json()["choices"][0].clone();
        assert_eq!(choice["finish_reason"], "stop");
        assert!(!choice["message"]["content"].as_str().unwrap().is_empty());
        assert!(choice["message"].get("tool_calls").is_none());
    }
}

#[test]
fn each_answer_has_a_call_of_its_own() {
    let worker = Worker::start();
    let mut asked = body(named("time"), false);
    asked["n"] = 2.into();
    let answer = worker.post(CHAT, &asked).json();
    let [first, second] = [0, 1].map(|at| answer["choices"][at]["message"]["tool_calls"][0].clone());
    assert_ne!(first["id"], second["id"]);
    assert_eq!(first["function"], second["function"]);
}

#[test]
fn a_call_without_an_end_is_cut_like_a_reply_under_a_grammar() {
    let worker = Worker::start();
    let parameters = json!({"properties": {"next": {"$ref": "#"}}, "required": ["next"]});
    let mut asked = body(json!("required"), false);
    asked["tools"] = json!([{"type": "function", "function": {"name": "f", "parameters": parameters}}]);
    let choice = worker.post(CHAT, &asked).json()["choices"][0].clone();
    assert_eq!(choice["finish_reason"], "length");
    assert!(choice["message"].get("tool_calls").is_none(), "{choice}");
    let begins = "[{\"name\": \"f\", \"parameters\": {\"next\": {\"next\": {";
    assert!(choice["message"]["content"].as_str().unwrap().starts_with(begins), "{choice}");
    asked["max_tokens"] = 10.into();
    assert_eq!(worker.post(CHAT, &asked).json()["usage"]["completion_tokens"], 10);
}
