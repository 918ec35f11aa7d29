//! `/v1/completions` and `/v1/chat/completions`.

use std::io::Read;

use protocol::chat;
use protocol::tokenizer::{block_token, decode, encode, reply_block};
use serde_json::{Value, json};
use simworker_core::Schedule;

use crate::client::{Worker, keys, prompt, words};

const CHAT: &str = "/v1/chat/completions";

fn chat_body(content: &str, tokens: u32) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": content}], "max_tokens": tokens, "ignore_eos": true})
}

fn reply(prompt: &str, tokens: u32) -> String {
    let block = reply_block(&encode(prompt));
    decode(&(0..tokens).map(|i| block_token(block, i)).collect::<Vec<_>>())
}

#[test]
fn a_completion() {
    let worker = Worker::start();
    let body = json!({"model": "m", "prompt": "Hello, world", "max_tokens": 5, "rid": "mine"});
    let answer = worker.post("/v1/completions", &body);
    assert_eq!(keys(&answer.body), words("id object created model choices usage metadata"));
    let json = answer.json();
    assert_eq!(
        (&json["id"], &json["object"], &json["model"]),
        (&json!("mine"), &json!("text_completion"), &json!("m"))
    );
    let text = reply("Hello, world", 5);
    assert_eq!(
        json["choices"],
        json!([{"index": 0, "text": text, "logprobs": null, "finish_reason": "length", "matched_stop": null}])
    );
    assert_eq!(
        json["usage"],
        json!({"prompt_tokens": 4, "completion_tokens": 5, "total_tokens": 9, "reasoning_tokens": 0,
            "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": null})
    );
    assert_eq!(json["metadata"], json!({"weight_version": "default"}));
    let short = worker.post("/v1/completions", &json!({"prompt": "Hello, world"})).json();
    assert_eq!(short["usage"]["completion_tokens"], 16, "the default");
    assert_eq!(short["model"], "mock");
}

#[test]
fn completions_of_many_forms() {
    let worker = Worker::start();
    let cases = [
        (json!(["a b", "c d"]), 1, 2),
        (json!([[1, 2, 3], [4, 5]]), 1, 2),
        (json!([7, 8, 9]), 1, 1),
        (json!("a b"), 3, 3),
    ];
    for (prompt, n, choices) in cases {
        let answer =
            worker.post("/v1/completions", &json!({"prompt": prompt, "n": n, "max_tokens": 2})).json();
        assert_eq!(answer["choices"].as_array().unwrap().len(), choices, "{prompt}");
        assert_eq!(answer["usage"]["completion_tokens"], 2 * choices, "{prompt}");
    }
    let counted = worker.post("/v1/completions", &json!({"prompt": "x y z", "n": 4, "max_tokens": 1})).json();
    assert_eq!(counted["usage"]["prompt_tokens"], 3, "a prompt counts once");
}

#[test]
fn a_streamed_completion() {
    let worker = Worker::start();
    let body = json!({"prompt": "Hello", "max_tokens": 20, "stream": true, "stream_options": {"include_usage": true}});
    let mut events = worker.post("/v1/completions", &body).events();
    let usage = events.pop().unwrap();
    assert_eq!((&usage["choices"], &usage["usage"]["completion_tokens"]), (&json!([]), &json!(20)));
    let text: String = events.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(text, reply("Hello", 20));
    let (end, before) = events.split_last().unwrap();
    assert_eq!(end["choices"][0]["finish_reason"], "length");
    assert!(before.iter().all(|event| event["choices"][0]["finish_reason"].is_null()));
    assert!(events.iter().all(|event| event.get("usage") == Some(&Value::Null)), "null, and not absent");
    let plain = Worker::with(|config| config.enable_cache_report = false);
    let usage = plain.post("/v1/completions", &body).events().pop().unwrap()["usage"].clone();
    assert_eq!(
        usage,
        json!({"prompt_tokens": 2, "total_tokens": 22, "completion_tokens": 20, "reasoning_tokens": 0})
    );
}

#[test]
fn a_chat_answer() {
    let worker = Worker::start();
    let answer = worker.post(CHAT, &chat_body("Why?", 6));
    assert_eq!(keys(&answer.body), words("id object created model choices usage metadata"));
    let json = answer.json();
    assert_eq!(json["object"], "chat.completion");
    let text = reply(&chat::render([("user", "Why?")]), 6);
    assert_eq!(
        json["choices"],
        json!([{"index": 0, "logprobs": null, "finish_reason": "length", "matched_stop": null,
            "message": {"role": "assistant", "content": text, "reasoning_content": null}}])
    );
}

#[test]
fn a_chat_stream_is_role_text_end_usage() {
    let worker = Worker::start();
    let mut body = chat_body("Why?", 30);
    body["stream"] = true.into();
    body["stream_options"] = json!({"include_usage": true});
    let answer = worker.post(CHAT, &body);
    assert!(answer.head.contains("content-type: text/event-stream"), "{}", answer.head);
    let events = answer.events();
    assert!(
        events
            .iter()
            .all(|event| event["object"] == "chat.completion.chunk" && event["id"] == events[0]["id"])
    );
    let [role, middle @ .., end, usage] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(
        role["choices"][0]["delta"],
        json!({"role": "assistant", "content": "", "reasoning_content": null})
    );
    let text: String = middle.iter().map(|e| e["choices"][0]["delta"]["content"].as_str().unwrap()).collect();
    assert_eq!(text, reply(&chat::render([("user", "Why?")]), 30));
    assert!(middle.iter().all(|event| event["choices"][0]["finish_reason"].is_null()));
    for event in &events[..events.len() - 1] {
        let delta = event["choices"][0]["delta"].as_object().unwrap();
        assert_eq!(delta.get("reasoning_content"), Some(&Value::Null), "{event}");
        assert_eq!(event.get("usage"), None, "{event}");
    }
    assert_eq!(
        (&end["choices"][0]["delta"], &end["choices"][0]["finish_reason"]),
        (&json!({"reasoning_content": null}), &json!("length"))
    );
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["completion_tokens"], 30);
    assert_eq!(usage["usage"]["prompt_tokens_details"], json!({"cached_tokens": 0}));
}

#[test]
fn without_include_usage_there_is_no_usage_chunk() {
    let worker = Worker::start();
    let mut body = chat_body("Why?", 3);
    body["stream"] = true.into();
    let events = worker.post(CHAT, &body).events();
    assert!(events.iter().all(|event| event["usage"].is_null()));
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length");
    body["stream_options"] = json!({"continuous_usage_stats": true});
    let events = worker.post(CHAT, &body).events();
    let (end, before) = events.split_last().unwrap();
    assert!(before.iter().all(|event| event["usage"]["prompt_tokens"].is_u64()));
    assert_eq!(end.get("usage"), None, "the chunk that only ends a choice has none");
}

#[test]
fn the_cache_report_is_an_option() {
    let body = chat_body(&prompt(1, 200), 2);
    let details = |worker: &Worker| worker.post(CHAT, &body).json()["usage"]["prompt_tokens_details"].clone();
    let with = Worker::start();
    let tokens = with.post(CHAT, &body).json()["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(details(&with), json!({"cached_tokens": tokens - 1}));
    let without = Worker::with(|config| config.enable_cache_report = false);
    assert_eq!(details(&without), Value::Null);
}

#[test]
fn a_conversation_hits_its_own_past() {
    let worker = Worker::start();
    let mut messages = vec![json!({"role": "user", "content": prompt(1, 50)})];
    let ask = |messages: &[Value]| worker.post(CHAT, &json!({"messages": messages, "max_tokens": 10})).json();
    let first = ask(&messages);
    messages.push(first["choices"][0]["message"].clone());
    messages.push(json!({"role": "user", "content": "And then?"}));
    let second = ask(&messages);
    let past = first["usage"]["total_tokens"].as_u64().unwrap();
    assert_eq!(second["usage"]["prompt_tokens_details"]["cached_tokens"], past - 1);
}

#[test]
fn an_open_chat_ends_by_itself() {
    let worker = Worker::start();
    let mut body = chat_body("Why?", 1);
    for key in ["max_tokens", "ignore_eos"] {
        body.as_object_mut().unwrap().remove(key);
    }
    let answer = worker.post(CHAT, &body).json();
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert!(answer["choices"][0]["matched_stop"].is_u64());
    assert!((64..512).contains(&answer["usage"]["completion_tokens"].as_u64().unwrap()), "{answer}");
}

#[test]
fn null_is_no_wrong_value() {
    let worker = Worker::start();
    let mut body = chat_body("Why?", 2);
    for key in ["ignore_eos", "stream", "n", "rid", "priority", "stream_options", "routed_dp_rank"] {
        body[key] = Value::Null;
    }
    assert_eq!(worker.post(CHAT, &body).status, 200);
    body["stream"] = true.into();
    body["stream_options"] = json!({"include_usage": null, "continuous_usage_stats": null});
    let events = worker.post(CHAT, &body).events();
    assert!(events.iter().all(|event| event.get("usage").is_none()), "null counts as false");
}

#[test]
fn the_header_for_the_rank_overrides_the_body() {
    let worker = Worker::start();
    let completion = json!({"prompt": "a", "max_tokens": 1, "routed_dp_rank": 7});
    for (path, body) in [(CHAT, chat_body("a", 1)), ("/v1/completions", completion)] {
        for (value, status) in [("0", 200), ("1", 400), ("-1", 400), ("x", 400)] {
            let answer = worker.post_with(path, &format!("X-Data-Parallel-Rank: {value}"), &body);
            assert_eq!(answer.status, status, "{path} {value}: {}", answer.body);
            let wrong =
                if value == "x" { "Invalid X-Data-Parallel-Rank header" } else { "out of range [0, 1)" };
            assert!(status == 200 || answer.body.contains(wrong), "{}", answer.body);
        }
    }
}

#[test]
fn errors_are_400_with_a_flat_body_also_for_streams() {
    let worker = Worker::with(|config| config.engine.context_len = 100);
    let long = prompt(1, 100);
    let cases = [
        ("empty messages", CHAT, json!({"messages": []})),
        ("an empty prompt", "/v1/completions", json!({"prompt": ""})),
        ("empty prompts", "/v1/completions", json!({"prompt": ["", ""]})),
        ("too long", "/v1/completions", json!({"prompt": long, "max_tokens": 1})),
        ("too long, streamed", "/v1/completions", json!({"prompt": long, "max_tokens": 1, "stream": true})),
        (
            "too long a chat, streamed",
            CHAT,
            json!({"messages": [{"role": "user", "content": long}], "stream": true}),
        ),
    ];
    for (case, path, body) in cases {
        let answer = worker.post(path, &body);
        assert_eq!(answer.status, 400, "{case}: {}", answer.body);
        assert_eq!(keys(&answer.body), words("object message type param code"), "{case}");
        let json = answer.json();
        assert_eq!((&json["object"], &json["type"]), (&json!("error"), &json!("BadRequestError")), "{case}");
        assert_eq!((&json["param"], &json["code"]), (&Value::Null, &json!(400)), "{case}");
    }
    let text = worker.post_text("/v1/completions", "text/plain", r#"{"prompt":"a"}"#);
    assert_eq!(text.status, 400);
    let charset = worker.post_text("/v1/completions", "application/json; charset=utf-8", r#"{"prompt":"a"}"#);
    assert_eq!(charset.status, 200);
}

#[test]
fn the_name_of_a_model_may_ask_for_an_adapter() {
    let worker = Worker::start();
    let text = prompt(9, 100);
    let cached = |more: Value| {
        let mut body = json!({"prompt": text, "max_tokens": 1});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = worker.post("/v1/completions", &body).json();
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    assert_eq!(cached(json!({"lora_path": "tuned"})), 0);
    assert_eq!(cached(json!({"model": "mock:tuned"})), 99, "the same adapter");
    assert_eq!(cached(json!({"model": "mock:tuned", "lora_path": "other"})), 99, "the name counts");
    assert_eq!(cached(json!({"model": "other/name:tuned"})), 99);
    assert_eq!(cached(json!({"model": "mock"})), 0, "no adapter");
    assert_eq!(cached(json!({"extra_key": "", "cache_salt": ""})), 99, "empty names are none");
    assert_eq!(cached(json!({"extra_key": "tenant"})), 0);
    assert_eq!(cached(json!({"cache_salt": "tenant"})), 0);
}

#[test]
fn a_routing_key_reaches_the_schedule() {
    let worker = Worker::with(|config| {
        config.engine.schedule = Schedule::RoutingKey;
        config.engine.max_running = 2;
    });
    let long = |seed: u64, more: Value| {
        let mut body = json!({"text": prompt(seed, 20), "stream": true,
            "sampling_params": {"max_new_tokens": 100_000, "ignore_eos": true}});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let first = worker.send("/generate", &long(1, json!({"routing_key": "mine"})));
    let leaving = worker.send("/generate", &long(2, json!({})));
    worker.wait_until_running(2);
    let waits = |count: u64| {
        worker.wait_for("they wait", |load| load["num_waiting_reqs"] == count);
    };
    let other = worker.send("/generate", &long(3, json!({"routing_key": "another"})));
    waits(1);
    let body = json!({"prompt": prompt(4, 20), "max_tokens": 100_000, "stream": true}).to_string();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: a\r\nx-smg-routing-key: mine\r\n\
        content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut same = worker.send_raw(head.as_bytes());
    waits(2);
    drop(leaving);
    same.read_exact(&mut [0; 12]).unwrap();
    assert_eq!(worker.load()["num_waiting_reqs"], 1, "the one with another key, though it came first");
    drop((first, other, same));
    worker.wait_until_idle();
}

#[test]
fn the_choices_of_a_chat_end_together() {
    let worker = Worker::start();
    let mut body = chat_body("Why?", 8);
    body["n"] = 3.into();
    body["stream"] = true.into();
    body["stream_options"] = json!({"include_usage": true});
    let events = worker.post(CHAT, &body).events();
    let (usage, chunks) = events.split_last().unwrap();
    let ends = |event: &Value| event["choices"][0]["finish_reason"] == "length";
    assert_eq!(chunks.iter().filter(|event| ends(event)).count(), 3);
    assert!(chunks[chunks.len() - 3..].iter().all(ends), "after all text: {events:?}");
    let text = |index: u32| -> String {
        let of = chunks.iter().map(|event| &event["choices"][0]).filter(|choice| choice["index"] == index);
        of.filter_map(|choice| choice["delta"]["content"].as_str()).collect()
    };
    assert!((0..3).all(|index| text(index) == reply(&chat::render([("user", "Why?")]), 8)));
    assert_eq!(usage["usage"]["completion_tokens"], 24);
}

#[test]
fn the_usage_can_be_told_in_every_stream() {
    let bodies = [
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 2, "stream": true}),
        ),
        ("/v1/completions", json!({"prompt": "a", "max_tokens": 2, "stream": true})),
    ];
    for by_default in [false, true] {
        let worker = Worker::with(|config| config.wire.stream_include_usage = by_default);
        for (path, mut body) in bodies.clone() {
            let tells = |body: &Value| {
                worker.post(path, body).events().last().unwrap()["usage"]["completion_tokens"] == 2
            };
            assert_eq!(tells(&body), by_default, "{path}");
            body["stream_options"] = json!({"include_usage": false});
            assert_eq!(tells(&body), by_default, "{path}: what the server does it does not undo");
            body["stream_options"] = json!({"include_usage": true});
            assert!(tells(&body), "{path}");
        }
    }
}
