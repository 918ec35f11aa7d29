//! Bodies made to hurt: deep, long, full of escapes, not even text. A reader that recurses would overflow on them, one
//! that looks at anything more than a few times would not come back.

use std::borrow::Cow;

use protocol::view::{Prompt, RequestView};

use crate::{DIALECTS, read};
use protocol::view::Dialect::{Chat, Completions, Generate};

const MILLION: usize = 1_000_000;

/// Values within values, to `most` levels.
fn nests(most: usize) -> Vec<(&'static str, String)> {
    let array = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let object = |depth: usize| "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
    let both = |depth: usize| "[{\"a\":".repeat(depth) + "1" + &"}]".repeat(depth);
    vec![
        ("arrays", array(10_000)),
        ("more arrays", array(most)),
        ("objects", object(10_000)),
        ("more objects", object(most)),
        ("both", both(most)),
    ]
}

#[test]
fn no_depth_is_too_deep_to_pass_over() {
    for (case, nest) in nests(MILLION) {
        let body = format!(r#"{{"x":{nest},"prompt":"a","y":{nest}}}"#);
        assert_eq!(read(Completions, &body).prompt, Prompt::Text("a".into()), "{case}");
        let cut = &body[..body.len() - 2];
        assert_eq!(read(Completions, cut).prompt, Prompt::Unreadable, "{case}");
    }
}

#[test]
fn no_depth_is_too_deep_to_look_into() {
    for (case, nest) in nests(100_000) {
        for key in
            ["prompt", "text", "input_ids", "input", "messages", "query", "sampling_params", "model", "n"]
        {
            let body = format!(r#"{{"{key}":{nest},"rid":"r"}}"#);
            for dialect in DIALECTS {
                let view = read(dialect, &body);
                assert_eq!(view.rid.as_deref(), Some("r"), "{case} as {key}");
            }
        }
        let body = format!(r#"{{"messages":[{{"role":"user","content":{nest}}}],"tools":{nest}}}"#);
        assert!(read(Chat, &body).prompt.is_text(), "{case}");
    }
}

#[test]
fn long_runs_of_one_byte() {
    let cases = [
        ("backslashes", "\\".repeat(MILLION)),
        ("an odd number of them", "\\".repeat(MILLION + 1)),
        ("quotes", "\"".repeat(MILLION)),
        ("escaped quotes", "\\\"".repeat(MILLION)),
        ("brackets", "[".repeat(MILLION)),
        ("braces", "{".repeat(MILLION)),
        ("closing brackets", "]".repeat(MILLION)),
        ("commas", ",".repeat(MILLION)),
        ("blanks", " ".repeat(MILLION)),
        ("digits", "9".repeat(MILLION)),
        ("escapes", "\\ud83e".repeat(MILLION)),
    ];
    for (case, run) in cases {
        let bodies = [
            run.clone(),
            format!(r#"{{"prompt":{run}"#),
            format!(r#"{{"prompt":"{run}"#),
            format!(r#"{{"messages":[{{"content":"{run}"}}],"prompt":["{run}"],"n":{run}}}"#),
            format!(r#"{{"messages":[{run}],"input_ids":[{run}],"n":1}}"#),
        ];
        for (body, dialect) in
            bodies.iter().flat_map(|body| [(body, Chat), (body, Completions), (body, Generate)])
        {
            assert!(read(dialect, body).n >= 1, "{case}");
        }
    }
    let quotes = format!(r#"{{"prompt":"{}"}}"#, "\\\"".repeat(MILLION));
    assert_eq!(read(Completions, &quotes).prompt, Prompt::Text("\"".repeat(MILLION).into()));
    let slashes = format!(r#"{{"prompt":"{}"}}"#, "\\".repeat(MILLION));
    assert_eq!(read(Completions, &slashes).prompt, Prompt::Text("\\".repeat(MILLION / 2).into()));
}

#[test]
fn many_members_and_many_elements() {
    let body = format!("{{{}\"prompt\":\"last\"}}", r#""prompt":"a","x":1,"#.repeat(100_000));
    assert_eq!(read(Completions, &body).prompt, Prompt::Text("last".into()));
    let ids = format!(r#"{{"input_ids":[{}9]}}"#, "123456, ".repeat(100_000));
    let Prompt::Tokens(read_ids) = read(Generate, &ids).prompt else { panic!("these are token ids") };
    assert_eq!((read_ids.len(), read_ids[99_999], read_ids[100_000]), (100_001, 123_456, 9));
}

#[test]
fn what_is_not_utf8_is_replaced() {
    let body = b"{\"model\":\"m\xFF\",\"prompt\":\"a\xE9\\n\xF0\x9F\",\"x\":\"\x80\"}";
    let view = RequestView::read(Completions, body);
    assert_eq!(view.model.as_deref(), Some("m\u{fffd}"));
    assert_eq!(view.prompt, Prompt::Text(Cow::Borrowed("a\u{fffd}\n\u{fffd}")));
    let body = b"{\"messages\":[{\"role\":\"\xFF\",\"content\":[\"\xFF\",{\"\xFF\":1}]}],\"tools\":[\xFF]}";
    assert_eq!(
        RequestView::read(Chat, body).prompt,
        Prompt::Text("\n<|tools|>[\u{fffd}]\n<|\u{fffd}|>\u{fffd}\n<|assistant|>".into())
    );
}
