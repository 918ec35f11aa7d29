//! Bodies of all kinds, and all the ways to write them down.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// JSON whose objects keep their order and may have duplicate keys, and whose numbers are as written.
#[derive(Debug, Clone)]
pub(crate) enum Json {
    Literal(&'static str),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// Keys that mean something to some dialect, and some that are nearly such.
const KEYS: &[&str] = &[
    "model",
    "stream",
    "rid",
    "n",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "sampling_params",
    "messages",
    "tools",
    "tool_choice",
    "prompt",
    "text",
    "input_ids",
    "input",
    "instructions",
    "query",
    "documents",
    "items",
    "role",
    "content",
    "tool_calls",
    "max_new_tokens",
    "Model",
    "",
    "prompt ",
    "x",
];

const LITERALS: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "-0",
    "7",
    "32.0",
    "1.5",
    "-3",
    "1e3",
    "4294967295",
    "4294967296",
    "1e400",
    "18446744073709551615",
    "18446744073709551616",
    "123456789012345678901234567890",
    "9007199254740993.0",
];

fn text() -> impl Strategy<Value = Json> {
    prop_oneof![
        4 => "[a-z \"\\\\/\n\té日🦀\u{0}\u{7f}{}\\[\\]:,]{0,14}",
        1 => "[ -~]{0,60}",
        1 => Just("none".to_owned()),
    ]
    .prop_map(Json::Text)
}

fn ids() -> impl Strategy<Value = Json> {
    vec(select(&["0", "1", "42", "128000", "4294967295"][..]).prop_map(Json::Literal), 0..5)
        .prop_map(Json::List)
}

fn leaf() -> impl Strategy<Value = Json> {
    prop_oneof![select(LITERALS).prop_map(Json::Literal), text(), ids()]
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![8 => select(KEYS).prop_map(str::to_owned), 1 => "[a-z\"\\\\é]{0,4}"]
}

/// Anything.
fn any_json() -> impl Strategy<Value = Json> {
    leaf().prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Json::List),
            vec((key(), inner), 0..5).prop_map(Json::Object),
        ]
    })
}

fn pair(key: &str, value: impl Strategy<Value = Json>) -> impl Strategy<Value = (String, Json)> {
    let key = key.to_owned();
    value.prop_map(move |value| (key.clone(), value))
}

/// What a content may be, and what it may not.
fn content() -> impl Strategy<Value = Json> {
    let part = vec(prop_oneof![pair("text", text()), (key(), leaf())], 1..3).prop_map(Json::Object);
    prop_oneof![4 => text(), 2 => vec(prop_oneof![3 => part, 1 => leaf()], 0..4).prop_map(Json::List), 1 => any_json()]
}

fn messages() -> impl Strategy<Value = Json> {
    let message = vec(
        prop_oneof![
            3 => pair("content", content()),
            3 => pair("role", select(&["user", "assistant", "tool", "x"][..]).prop_map(|r| Json::Text(r.into()))),
            1 => pair("tool_calls", any_json()),
            1 => (key(), any_json()),
        ],
        0..5,
    );
    vec(message.prop_map(Json::Object), 0..5).prop_map(Json::List)
}

/// A body of some dialect, or nearly of one.
pub(crate) fn body() -> impl Strategy<Value = Json> {
    let batch = || {
        prop_oneof![
            text(),
            ids(),
            vec(text(), 0..4).prop_map(Json::List),
            vec(ids(), 0..4).prop_map(Json::List)
        ]
    };
    let prompts = select(&["prompt", "text", "input_ids", "input", "query", "items", "documents"][..]);
    let member = prop_oneof![
        3 => pair("messages", messages()),
        1 => pair("input", messages()),
        1 => pair("documents", vec(content(), 0..4).prop_map(Json::List)),
        4 => (prompts.prop_map(str::to_owned), batch()),
        4 => (key(), any_json()),
        2 => (key(), leaf()),
    ];
    vec(member, 0..8).prop_map(Json::Object)
}

/// Choices of blanks and escapes, made anew for each.
pub(crate) fn style() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![Just(vec![0]), vec(any::<u8>(), 1..40)]
}

/// Writes JSON in a style; the style `[0]` is compact.
pub(crate) fn write(json: &Json, style: &[u8]) -> String {
    let mut out = String::new();
    let mut draws = style.iter().copied().cycle();
    let mut draw = || draws.next().expect("a style is not empty");
    put(json, &mut draw, &mut out);
    out
}

fn put(json: &Json, draw: &mut impl FnMut() -> u8, out: &mut String) {
    blank(draw, out);
    match json {
        Json::Literal(literal) => out.push_str(literal),
        Json::Text(text) => put_text(text, draw, out),
        Json::List(all) => {
            out.push('[');
            for (at, element) in all.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                put(element, draw, out);
            }
            blank(draw, out);
            out.push(']');
        }
        Json::Object(all) => {
            out.push('{');
            for (at, (key, value)) in all.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                blank(draw, out);
                put_text(key, draw, out);
                blank(draw, out);
                out.push(':');
                put(value, draw, out);
            }
            blank(draw, out);
            out.push('}');
        }
    }
    blank(draw, out);
}

fn blank(draw: &mut impl FnMut() -> u8, out: &mut String) {
    let blanks = [" ", "\n", "\r\n\t", "            "];
    out.push_str(blanks.get(usize::from(draw() % 8).wrapping_sub(4)).unwrap_or(&""));
}

fn put_text(text: &str, draw: &mut impl FnMut() -> u8, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        match (char, draw() % 4) {
            ('"' | '\\', 0..3) | ('/', 1) => out.extend(['\\', char]),
            ('\n', 0..3) => out.push_str("\\n"),
            ('\0'..' ', _) | ('"' | '\\', 3) | (_, 2) => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            _ => out.push(char),
        }
    }
    out.push('"');
}
