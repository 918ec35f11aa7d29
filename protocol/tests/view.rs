//! The shallow reader agrees with a full parse, whatever the order of keys and whatever else is in the body.

use std::borrow::Cow;

use proptest::prelude::*;
use protocol::chat;
use protocol::view::{Dialect, First, Prompt, RequestView};
use serde_json::{Value, json};

fn read(dialect: Dialect, body: &str) -> RequestView<'_> {
    RequestView::read(dialect, body.as_bytes())
}

fn text(text: &str) -> Prompt<'_> {
    Prompt::Text(Cow::Borrowed(text))
}

#[test]
fn prompts_of_every_form() {
    use Dialect::{Chat, Completions, Generate};
    let cases = [
        ("text", Completions, r#"{"prompt":"a b"}"#, text("a b")),
        ("escapes", Completions, r#"{"prompt":"a\n\u00e9"}"#, text("a\né")),
        ("ids", Completions, r#"{"prompt":[1,2,4294967295]}"#, Prompt::Tokens(vec![1, 2, u32::MAX])),
        ("texts", Completions, r#"{"prompt":["a","b\t"]}"#, Prompt::Texts(vec!["a".into(), "b\t".into()])),
        (
            "id lists",
            Completions,
            r#"{"prompt":[[1],[],[2,3]]}"#,
            Prompt::TokenLists(vec![vec![1], vec![], vec![2, 3]]),
        ),
        ("mixed", Completions, r#"{"prompt":["a",1]}"#, Prompt::Unreadable),
        ("empty list", Completions, r#"{"prompt":[]}"#, Prompt::Unreadable),
        ("negative id", Completions, r#"{"prompt":[-1]}"#, Prompt::Unreadable),
        ("null", Completions, r#"{"prompt":null}"#, Prompt::Unreadable),
        ("absent", Completions, r#"{"model":"m"}"#, Prompt::Unreadable),
        ("of another dialect", Completions, r#"{"text":"a"}"#, Prompt::Unreadable),
        ("generate text", Generate, r#"{"text":"a","input_ids":null}"#, text("a")),
        ("generate ids", Generate, r#"{"input_ids":[7]}"#, Prompt::Tokens(vec![7])),
        ("ids as text", Generate, r#"{"text":[7]}"#, Prompt::Unreadable),
        ("both", Generate, r#"{"text":"a","input_ids":[7]}"#, Prompt::Unreadable),
        (
            "chat",
            Chat,
            r#"{"messages":[{"role":"user","content":"hi"}]}"#,
            text("\n<|user|>hi\n<|assistant|>"),
        ),
        (
            "chat parts",
            Chat,
            r#"{"messages":[{"content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{}},{"text":"b"}],"role":"user"}]}"#,
            text("\n<|user|>a b\n<|assistant|>"),
        ),
        (
            "chat without content",
            Chat,
            r#"{"messages":[{"role":"tool","content":null}]}"#,
            text("\n<|tool|>\n<|assistant|>"),
        ),
        ("chat of nothing", Chat, r#"{"messages":[]}"#, Prompt::Unreadable),
        ("chat without role", Chat, r#"{"messages":[{"content":"hi"}]}"#, Prompt::Unreadable),
        ("chat of a wrong type", Chat, r#"{"messages":[{"role":"user","content":7}]}"#, Prompt::Unreadable),
        ("not JSON", Chat, "{\"messages\":[", Prompt::Unreadable),
        ("not an object", Chat, "[1,2]", Prompt::Unreadable),
    ];
    for (case, dialect, body, expected) in cases {
        assert_eq!(read(dialect, body).prompt, expected, "{case}");
    }
}

#[test]
fn a_wrong_field_spoils_only_itself() {
    let body = r#"{"prompt":"\ud800","stream":true,"model":"m","n":"x","max_tokens":3.0,"rid":["a"]}"#;
    let view = read(Dialect::Completions, body);
    assert_eq!(view.prompt, Prompt::Unreadable);
    assert_eq!(
        (view.stream, view.model.as_deref(), view.n, view.output_budget),
        (true, Some("m"), 1, Some(3))
    );
    assert_eq!(view.rid, None);
}

#[test]
fn the_last_duplicate_counts() {
    let view = read(Dialect::Completions, r#"{"prompt":"a","model":"x","prompt":"b","model":"y"}"#);
    assert_eq!((view.prompt, view.model.as_deref()), (text("b"), Some("y")));
}

#[test]
fn budgets_have_the_names_of_their_dialect() {
    let body = r#"{"max_tokens":1,"max_completion_tokens":2,"n":4,"sampling_params":{"x":[],"n":5,"max_new_tokens":3}}"#;
    let seen = |dialect| (read(dialect, body).output_budget, read(dialect, body).n);
    assert_eq!(seen(Dialect::Completions), (Some(1), 4));
    assert_eq!(seen(Dialect::Chat), (Some(2), 4));
    assert_eq!(seen(Dialect::Generate), (Some(3), 5));
}

#[test]
fn plain_strings_are_borrowed() {
    let view = read(Dialect::Completions, r#"{"prompt":"no copies here"}"#);
    assert!(matches!(view.prompt, Prompt::Text(Cow::Borrowed(_))));
    assert_eq!(view.prompt.first(), First::Text("no copies here"));
    assert_eq!(view.prompt.estimated_tokens(), 4);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-z_]{1,9}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Writes an object with its members in the order given.
fn write(members: &[(String, Value)]) -> String {
    let members: Vec<String> =
        members.iter().map(|(k, v)| format!("{}:{v}", Value::from(k.as_str()))).collect();
    format!("{{{}}}", members.join(","))
}

proptest! {
    #[test]
    fn neither_order_nor_unknown_fields_matter(
        turns in proptest::collection::vec(("user|assistant|system", ".{0,12}"), 1..5),
        budget in any::<u32>(),
        stream in any::<bool>(),
        model in ".{0,8}",
        unknown in proptest::collection::vec(("x_[a-z]{1,6}", any_json()), 0..5),
        order in any::<u64>(),
    ) {
        let messages: Vec<Value> = turns.iter().map(|(r, c)| json!({"content": c, "role": r, "name": "n"})).collect();
        let mut members: Vec<(String, Value)> = vec![
            ("messages".into(), messages.into()),
            ("max_tokens".into(), budget.into()),
            ("stream".into(), stream.into()),
            ("model".into(), model.clone().into()),
        ];
        members.extend(unknown);
        members.sort_by_key(|(key, _)| protocol::tokenizer::mix(order ^ key.len() as u64 ^ u64::from(key.as_bytes()[2])));
        let body = write(&members);
        let view = read(Dialect::Chat, &body);
        prop_assert_eq!(view.prompt, Prompt::Text(chat::render(turns).into()));
        prop_assert_eq!(view.output_budget, Some(u64::from(budget)));
        prop_assert_eq!((view.stream, view.model.as_deref()), (stream, Some(model.as_str())));
    }

    #[test]
    fn any_json_and_any_bytes_are_read_without_an_error(json in any_json(), bytes in any::<Vec<u8>>(), cut in any::<prop::sample::Index>()) {
        let wrapped = json!({"prompt": json, "messages": json, "text": json, "n": json, "sampling_params": json, "model": json});
        let body = wrapped.to_string();
        for dialect in [Dialect::Chat, Dialect::Completions, Dialect::Generate] {
            let whole = RequestView::read(dialect, body.as_bytes());
            prop_assert_eq!(whole.model.as_deref(), json.as_str());
            let _ = RequestView::read(dialect, &bytes);
            let part = RequestView::read(dialect, &body.as_bytes()[..cut.index(body.len())]);
            prop_assert_eq!(part.prompt, Prompt::Unreadable);
        }
    }
}
