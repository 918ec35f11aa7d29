//! Chats: what is a prefix of what.

use proptest::collection::vec;
use proptest::prelude::*;
use protocol::chat;
use protocol::view::{Dialect, Prompt};
use serde_json::{Value, json};

use crate::read;

fn rendering(body: &Value) -> String {
    match read(Dialect::Chat, &body.to_string()).prompt {
        Prompt::Text(text) => text.into_owned(),
        other => panic!("{other:?} of {body}"),
    }
}

fn messages(messages: &Value) -> String {
    rendering(&json!({ "messages": messages }))
}

fn tool(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})
}

fn picture(url: &str) -> Value {
    json!([{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}}, {"type": "text", "text": "What is it?"}]}])
}

/// Where two texts part.
fn common(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

#[test]
fn messages_of_every_form_are_rendered_in_order() {
    let calls = json!([{"id": "c1", "type": "function", "function": {"name": "f", "arguments": null}}]);
    let cases = [
        ("plain", json!([{"role": "user", "content": "hi"}]), "\n<|user|>hi"),
        (
            "parts",
            json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}},
                {"text": "b"}, "c", 7, {"type": "thinking", "thinking": "x"}, {"text": ""}, {"text": 1}]}]),
            "\n<|user|>a b c ",
        ),
        ("null content", json!([{"role": "tool", "content": null}]), "\n<|tool|>"),
        ("a number", json!([{"role": "user", "content": 7.5}]), "\n<|user|>7.5"),
        ("an object", json!([{"role": "user", "content": {"a": [1]}}]), "\n<|user|>{\"a\":[1]}"),
        ("unknown role", json!([{"role": "developer", "content": "a"}]), "\n<|developer|>a"),
        ("no role", json!([{"content": "hi"}]), "\n<||>hi"),
        ("a role that is none", json!([{"role": 7, "content": "hi"}]), "\n<||>hi"),
        (
            "calls and their results",
            json!([
                {"role": "assistant", "content": null, "tool_calls": calls},
                {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "r"}]},
                {"role": "assistant", "content": "done", "tool_calls": []},
                {"role": "user", "content": ""},
            ]),
            "\n<|assistant|>\n<|tool_calls|>[CALLS]\n<|tool|>r\n<|assistant|>done\n<|user|>",
        ),
    ];
    for (case, list, expected) in cases {
        let expected = expected.replace("[CALLS]", &calls.to_string());
        assert_eq!(messages(&list), expected + "\n<|assistant|>", "{case}");
    }
}

#[test]
fn tools_come_first() {
    let chat = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]);
    let with = |tools: Value| rendering(&json!({"messages": chat, "tools": tools}));
    let (plain, one, other) = (messages(&chat), with(json!([tool("f")])), with(json!([tool("g")])));
    assert!(one.ends_with(&plain) && other.ends_with(&plain), "the messages stay as they are");
    assert!(common(&one, &other) < one.len() - plain.len(), "they part within the tools");
    assert!(common(&one, &plain) < 6, "with tools is unlike without");
    assert_eq!(with(json!([])), plain);
    assert_eq!(with(Value::Null), plain);
    // The place of the field in the body does not matter.
    let spread =
        format!(r#"{{"tools":{},"messages":{chat},"tools":{}}}"#, json!([tool("x")]), json!([tool("f")]));
    assert_eq!(read(Dialect::Chat, &spread).prompt, Prompt::Text(one.clone().into()));
}

#[test]
fn the_choice_of_tools_is_part_of_the_prompt_where_the_template_shows_it() {
    let chat = json!([{"role": "user", "content": "hi"}]);
    let tools = json!([tool("f"), tool("g")]);
    let with = |choice: Value| rendering(&json!({"messages": chat, "tools": tools, "tool_choice": choice}));
    assert_eq!(with(json!("none")), messages(&chat));
    assert_eq!(with(json!("required")), with(json!("auto")));
    let forced = |name: &str| with(json!({"type": "function", "function": {"name": name}}));
    assert_ne!(forced("f"), forced("g"));
    assert!(common(&forced("f"), &with(json!("auto"))) < 20);
}

#[test]
fn pictures_are_told_apart() {
    let data = |fill: &str| format!("data:image/png;base64,{}", fill.repeat(100_000));
    let mut all: Vec<String> =
        ["https://a.example/1.png", "https://a.example/2.png", &data("A"), &data("B"), &data("AA")]
            .map(|url| messages(&picture(url)))
            .into();
    assert_eq!(all[0], messages(&picture("https://a.example/1.png")));
    assert!(all.iter().all(|text| text.len() < 100 && text.contains("What is it?")));
    assert!(common(&all[2], &all[3]) < all[2].find("What").unwrap(), "they part before what follows");
    let audio = |data: &str| {
        messages(
            &json!([{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}]}]),
        )
    };
    all.extend([audio("AAAA"), audio("BBBB"), messages(&picture(""))]);
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count);
}

#[test]
fn a_response_is_the_chat_it_is_short_for() {
    let response = |body: Value| read(Dialect::Responses, &body.to_string()).prompt.first_text();
    let turns = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]);
    let short = json!({"instructions": "Be brief.", "input": "hi", "tools": [tool("f")]});
    let long = json!({"input": turns, "tools": [tool("f")]});
    let chat = rendering(&json!({"messages": turns, "tools": [tool("f")]}));
    assert_eq!((response(short), response(long)), (chat.clone(), chat));
}

trait FirstText {
    fn first_text(&self) -> String;
}

impl FirstText for Prompt<'_> {
    fn first_text(&self) -> String {
        if let Prompt::Text(text) = self { text.to_string() } else { panic!("{self:?}") }
    }
}

/// A message with the text in one of the forms that the template makes the same of.
fn message(role: &str, text: &str, form: u8) -> Value {
    match form {
        0 => json!({"role": role, "content": text}),
        1 => json!({"content": [{"type": "text", "text": text}], "name": "n", "role": role}),
        _ => json!({"content": [text], "role": role, "tool_calls": null}),
    }
}

proptest! {
    #[test]
    fn text_is_rendered_as_by_the_template_in_any_form(
        turns in vec(("user|assistant|system|tool", ".{0,40}", 0..3_u8), 1..6),
    ) {
        let list: Vec<Value> = turns.iter().map(|(role, text, form)| message(role, text, *form)).collect();
        let plain = chat::render(turns.iter().map(|(role, text, _)| (role, text)));
        prop_assert_eq!(messages(&list.into()), plain);
    }

    #[test]
    fn a_conversation_is_a_strict_prefix_of_its_continuation(
        turns in vec(("user|system|tool", ".{0,20}", 0..3_u8, 0..4_u8), 1..6),
        reply in ".{0,20}",
        question in ".{0,20}",
        forms in (0..3_u8, 0..3_u8),
        calls in any::<bool>(),
    ) {
        let list = |shift: u8| -> Vec<Value> {
            let form = |(role, text, form, extra): &(String, String, u8, u8)| match extra {
                0 => picture(text)[0].clone(),
                1 => json!({"role": "assistant", "content": null, "tool_calls": [tool(text)]}),
                _ => message(role, text, (form + shift) % 3),
            };
            turns.iter().map(form).collect()
        };
        let before = rendering(&json!({"model": "m", "messages": list(0), "tools": [tool("f")]}));
        let mut more = list(1);
        more.push(message("assistant", &reply, forms.0));
        if calls {
            more[turns.len()]["tool_calls"] = json!([tool("f")]);
        }
        more.push(message("user", &question, forms.1));
        let after = rendering(&json!({"tools": [tool("f")], "messages": more, "stream": true}));
        prop_assert!(after.len() > before.len() && after.starts_with(&before), "{:?} {:?}", before, after);
    }
}
