//! What each form of body means, case by case.

use std::borrow::Cow;

use protocol::view::{Dialect, First, Prompt};

use crate::read;

fn text(text: &str) -> Prompt<'_> {
    Prompt::Text(Cow::Borrowed(text))
}

fn texts<'a>(texts: &[&'a str]) -> Prompt<'a> {
    Prompt::Texts(texts.iter().map(|&text| text.into()).collect())
}

#[test]
fn prompts_of_every_form() {
    use Dialect::{Chat, Completions, Generate};
    let cases = [
        ("text", Completions, r#"{"prompt":"a b"}"#, text("a b")),
        ("escapes", Completions, r#"{"prompt":"a\n\u00e9"}"#, text("a\né")),
        ("half a pair", Completions, r#"{"prompt":"a\ud800b"}"#, text("a\u{fffd}b")),
        ("escaped key", Completions, r#"{"pr\u006fmpt":"a"}"#, text("a")),
        ("byte order mark", Completions, "\u{feff}{\"prompt\":\"a\"}", text("a")),
        ("blanks", Completions, " {\r\n\t\"prompt\" : \"a\" } \n", text("a")),
        ("ids", Completions, r#"{"prompt":[1,2,4294967295]}"#, Prompt::Tokens(vec![1, 2, u32::MAX])),
        ("texts", Completions, r#"{"prompt":["a","b\t"]}"#, texts(&["a", "b\t"])),
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
        ("generate texts", Generate, r#"{"text":["1+1=",""],"rid":["r-0","r-1"]}"#, texts(&["1+1=", ""])),
        ("ids as text", Generate, r#"{"text":[7]}"#, Prompt::Unreadable),
        ("both", Generate, r#"{"text":"a","input_ids":[7]}"#, Prompt::Unreadable),
        ("chat of ids", Chat, r#"{"messages":[{"role":"user"}],"input_ids":[7]}"#, Prompt::Tokens(vec![7])),
        ("chat of nothing", Chat, r#"{"messages":[]}"#, Prompt::Unreadable),
        ("chat of a text", Chat, r#"{"messages":"hi"}"#, Prompt::Unreadable),
        ("message of a wrong type", Chat, r#"{"messages":["hi"]}"#, Prompt::Unreadable),
        ("not JSON", Chat, "{\"messages\":[", Prompt::Unreadable),
        ("not an object", Chat, "[1,2]", Prompt::Unreadable),
        ("nothing", Chat, "", Prompt::Unreadable),
    ];
    for (case, dialect, body, expected) in cases {
        assert_eq!(read(dialect, body).prompt, expected, "{case}");
    }
}

#[test]
fn prompts_of_the_lesser_endpoints() {
    use Dialect::{Classify, Embeddings, Opaque, Rerank, Responses, Score};
    let ids = |lists: &[&[u32]]| Prompt::TokenLists(lists.iter().map(|ids| ids.to_vec()).collect());
    let parts = r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#;
    let rerank = format!(r#"{{"query":{parts},"documents":["c",{parts}]}}"#);
    let cases = [
        ("embedding", Embeddings, r#"{"input":"a"}"#, text("a")),
        ("embeddings", Embeddings, r#"{"input":["a","b"]}"#, texts(&["a", "b"])),
        ("embedding of ids", Embeddings, r#"{"input":[1,2]}"#, Prompt::Tokens(vec![1, 2])),
        ("embeddings of ids", Embeddings, r#"{"input":[[1],[2]]}"#, ids(&[&[1], &[2]])),
        ("classify", Classify, r#"{"input":"a","text":"b"}"#, text("a")),
        ("classify by its other name", Classify, r#"{"input":null,"text":"b"}"#, text("b")),
        ("rerank", Rerank, r#"{"documents":["a","b"],"query":"q"}"#, texts(&["q", "a", "b"])),
        ("rerank of parts", Rerank, &rerank, texts(&["a b", "c", "a b"])),
        ("rerank of nothing", Rerank, r#"{"query":"q"}"#, text("q")),
        ("rerank without a query", Rerank, r#"{"documents":["a"]}"#, Prompt::Unreadable),
        ("score", Score, r#"{"query":"q","items":["a","b"]}"#, texts(&["q", "a", "b"])),
        ("score of one", Score, r#"{"query":"q","items":"a"}"#, texts(&["q", "a"])),
        ("score of ids", Score, r#"{"query":[1],"items":[[2],[3]]}"#, ids(&[&[1], &[2], &[3]])),
        ("score of both kinds", Score, r#"{"query":"q","items":[[2]]}"#, text("q")),
        ("response", Responses, r#"{"input":"a"}"#, text("\n<|user|>a\n<|assistant|>")),
        (
            "response with instructions",
            Responses,
            r#"{"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]}],"instructions":"i"}"#,
            text("\n<|system|>i\n<|user|>a\n<|assistant|>"),
        ),
        (
            "response with a call",
            Responses,
            r#"{"input":[{"type":"function_call","name":"f"}, {"role":"user","content":"a"}]}"#,
            text("\n<||>{\"type\":\"function_call\",\"name\":\"f\"}\n<|user|>a\n<|assistant|>"),
        ),
        ("response to nothing", Responses, r#"{"instructions":"i"}"#, Prompt::Unreadable),
        ("opaque", Opaque, r#"{"prompt":"a","text":"a","input":"a"}"#, Prompt::Unreadable),
    ];
    for (case, dialect, body, expected) in cases {
        assert_eq!(read(dialect, body).prompt, expected, "{case}");
    }
}

#[test]
fn every_endpoint_may_name_a_model_and_an_id() {
    for dialect in crate::DIALECTS {
        let view = read(dialect, r#"{"model":"m","stream":true,"rid":"r"}"#);
        assert_eq!((view.model.as_deref(), view.stream, view.rid.as_deref()), (Some("m"), true, Some("r")));
    }
}

#[test]
fn a_wrong_field_spoils_only_itself() {
    let body = r#"{"prompt":{},"stream":true,"model":"m","n":"x","max_tokens":3.0,"rid":["a"],"seed":1e400}"#;
    let view = read(Dialect::Completions, body);
    assert_eq!(view.prompt, Prompt::Unreadable);
    assert_eq!(
        (view.stream, view.model.as_deref(), view.n, view.output_budget),
        (true, Some("m"), 1, Some(3))
    );
    assert_eq!(view.rid, None);
    let view =
        read(Dialect::Completions, r#"{"prompt":"a","stream":1,"model":7,"max_tokens":1e400,"x":NaN}"#);
    assert_eq!((view.prompt, view.stream, view.model, view.output_budget), (text("a"), false, None, None));
}

#[test]
fn the_last_duplicate_counts() {
    let view = read(Dialect::Completions, r#"{"prompt":"a","model":"x","prompt":"b","\u006dodel":"y"}"#);
    assert_eq!((view.prompt, view.model.as_deref()), (text("b"), Some("y")));
    let view = read(Dialect::Completions, r#"{"prompt":"a","model":"x","prompt":null,"model":1}"#);
    assert_eq!((view.prompt, view.model), (Prompt::Unreadable, None));
}

#[test]
fn what_comes_before_a_break_is_still_read_except_the_prompt() {
    let view = read(Dialect::Completions, r#"{"model":"m","prompt":"a","stream":true,"x":[1,"#);
    assert_eq!((view.model.as_deref(), view.stream, view.prompt), (Some("m"), true, Prompt::Unreadable));
}

#[test]
fn budgets_have_the_names_of_their_dialect() {
    let body = r#"{"max_tokens":1,"max_completion_tokens":2,"max_output_tokens":6,"n":4,
        "sampling_params":{"x":[],"n":5,"max_new_tokens":3}}"#;
    let seen = |dialect| (read(dialect, body).output_budget, read(dialect, body).n);
    assert_eq!(seen(Dialect::Completions), (Some(1), 4));
    assert_eq!(seen(Dialect::Chat), (Some(2), 4));
    assert_eq!(seen(Dialect::Generate), (Some(3), 5));
    assert_eq!(seen(Dialect::Responses), (Some(6), 1));
    assert_eq!(seen(Dialect::Embeddings), (None, 1));
}

#[test]
fn plain_strings_are_borrowed() {
    let view = read(Dialect::Completions, r#"{"prompt":"no copies here"}"#);
    assert!(matches!(view.prompt, Prompt::Text(Cow::Borrowed(_))));
    assert_eq!(view.prompt.first(), First::Text("no copies here"));
    assert_eq!(view.prompt.estimated_tokens(), 4);
}

/// Bodies as agents and SDKs send them, with all that the reader must pass over.
#[test]
fn bodies_from_the_field_have_a_prompt() {
    use Dialect::{Chat, Completions, Generate};
    let cases = [
        (
            "reasoning",
            Chat,
            r#"{"messages":[{"role":"assistant","reasoning_content":"a","content":[{"type":"thinking","thinking":"b"},
                {"type":"text","text":"c"}]}],"chat_template_kwargs":{"flag":[1,{"deep":null}]},"reasoning_effort":0.35}"#,
        ),
        (
            "a schema",
            Chat,
            r##"{"response_format":{"type":"json_schema","json_schema":{"schema":{"pattern":"^\\d{4}\"]}$",
                "items":{"$ref":"#/$defs/x"}}}},"messages":[{"role":"user","content":"a"}]}"##,
        ),
        (
            "sampling",
            Chat,
            r#"{"messages":[{"role":"user","content":"a"}],"logit_bias":{"50256":-100,"1917":2.5},"stop":["\n\n","\u00a7"],
                "seed":9223372036854775807,"presence_penalty":1e-1,"frequency_penalty":-0.0,"user":"\u00fc"}"#,
        ),
        (
            "calls with and without arguments",
            Chat,
            r#"{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"a\": \"caf\\u00e9\"}"}},
                {"function":{"name":"f","arguments":null}}]},{"role":"tool","content":""}],"tools":[],"tool_choice":"auto"}"#,
        ),
        (
            "a batch with its own parameters",
            Generate,
            r#"{"text":["1+1=","","\u6771\u4eac"],"sampling_params":[{"max_new_tokens":4},{},{}],"lora_path":["a",null,"a"]}"#,
        ),
        (
            "text after the prompt",
            Completions,
            r#"{"prompt":"def f():\n\treturn ","suffix":"\r\n","best_of":1}"#,
        ),
    ];
    for (case, dialect, body) in cases {
        assert!(read(dialect, body).prompt.is_text(), "{case}");
    }
}
