//! Canned replies.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::Worker;

fn chat(tokens: u32, more: Value) -> Value {
    let mut body =
        json!({"model": "mock", "messages": [{"role": "user", "content": "hi"}], "max_tokens": tokens});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn a_stream_has_a_chunk_for_each_token() {
    let worker = Worker::instant(0);
    for tokens in [1, 2, 70] {
        let more = json!({"stream": true, "stream_options": {"include_usage": true}});
        let mut events = worker.post("/v1/chat/completions", &chat(tokens, more)).events();
        assert_eq!(events.pop().unwrap()["usage"]["completion_tokens"], tokens);
        assert_eq!(events.len(), tokens as usize);
        assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
        let reasons: Vec<bool> = events.iter().map(|e| !e["choices"][0]["finish_reason"].is_null()).collect();
        assert_eq!(reasons.iter().position(|ends| *ends), Some(tokens as usize - 1));
        assert!(events.iter().all(|e| e["object"] == "chat.completion.chunk"));
    }
    let completion = json!({"prompt": "x", "max_tokens": 3, "stream": true});
    let texts: Vec<Value> = worker.post("/v1/completions", &completion).events();
    let texts: Vec<&Value> = texts.iter().map(|event| &event["choices"][0]["text"]).collect();
    assert_eq!(texts, [" t00", " t01", " t02"]);
    let generate = json!({"text": "x", "sampling_params": {"max_new_tokens": 3}, "stream": true});
    let counts: Vec<Value> = worker.post("/generate", &generate).events();
    let counts: Vec<&Value> = counts.iter().map(|event| &event["meta_info"]["completion_tokens"]).collect();
    assert_eq!(counts, [1, 2, 3]);
}

#[test]
fn an_interval_spaces_chunks() {
    let worker = Worker::instant(15_000_000);
    let start = Instant::now();
    let events = worker.post("/v1/chat/completions", &chat(4, json!({"stream": true}))).events();
    assert_eq!(events.len(), 4);
    assert!(start.elapsed() >= Duration::from_millis(45));
}

#[test]
fn whole_answers_have_the_shape_of_their_route() {
    let worker = Worker::instant(0);
    let answer = worker.post("/v1/chat/completions", &chat(9, json!({}))).json();
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["choices"][0]["message"]["role"], "assistant");
    let counts = [
        ("/v1/embeddings", json!({"input": ["a", "b"]}), "/data/1/embedding/0", "/data/2"),
        ("/v1/embeddings", json!({"input": [1, 2, 3]}), "/data/0", "/data/1"),
        ("/v1/classify", json!({"input": "a"}), "/data/0/label", "/data/1"),
        ("/v1/rerank", json!({"query": "q", "documents": ["a", "b", "c"]}), "/2/score", "/3"),
        ("/rerank", json!({"query": "q", "documents": ["a"]}), "/0/index", "/1"),
        ("/v1/score", json!({"query": "q", "items": ["a", "b"]}), "/scores/1/0", "/scores/2"),
        ("/generate", json!({"text": "a"}), "/meta_info/finish_reason", "/1"),
        ("/v1/completions", json!({"prompt": "a"}), "/choices/0/text", "/choices/1"),
    ];
    for (path, body, there, absent) in counts {
        let answer = worker.post(path, &body).json();
        assert!(answer.pointer(there).is_some(), "{path}: {answer}");
        assert!(answer.pointer(absent).is_none(), "{path}: {answer}");
    }
}

#[test]
fn whole_answers_have_the_tokens_asked_for_but_at_most_16() {
    let worker = Worker::instant(0);
    for (asked, tokens, reason) in [
        (0, 1, "length"),
        (1, 1, "length"),
        (9, 9, "length"),
        (16, 16, "length"),
        (17, 16, "stop"),
        (900, 16, "stop"),
    ] {
        let answer = worker.post("/v1/chat/completions", &chat(asked, json!({}))).json();
        let choice = &answer["choices"][0];
        let words = choice["message"]["content"].as_str().unwrap().split_whitespace().count() as u32;
        let usage = &answer["usage"];
        assert_eq!((words, &choice["finish_reason"]), (tokens, &json!(reason)), "{asked}");
        assert_eq!(
            (&usage["completion_tokens"], &usage["total_tokens"]),
            (&json!(tokens), &json!(tokens + 32))
        );
        let body = json!({"text": "x", "sampling_params": {"max_new_tokens": asked}});
        let answer = worker.post("/generate", &body).json();
        assert_eq!(answer["output_ids"].as_array().unwrap().len(), tokens as usize);
        let meta = &answer["meta_info"];
        assert_eq!(
            (&meta["completion_tokens"], &meta["finish_reason"]["type"]),
            (&json!(tokens), &json!(reason))
        );
        let answer = worker.post("/v1/completions", &json!({"prompt": "x", "max_tokens": asked})).json();
        assert_eq!(answer["usage"]["completion_tokens"], tokens);
    }
    let unasked = worker.post("/v1/completions", &json!({"prompt": "x"})).json();
    assert_eq!(unasked["usage"]["completion_tokens"], 16);
}

#[test]
fn a_response_is_known_only_where_it_was_created() {
    let worker = Worker::instant(0);
    let id = worker.post("/v1/responses", &json!({"input": "x"})).json()["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/responses/{id}");
    assert_eq!(worker.get(&path).json()["id"], id.as_str());
    assert_eq!(worker.post(&format!("{path}/cancel"), &json!({})).json()["status"], "cancelled");
    let never = path.trim_end_matches('0').to_owned() + "1";
    assert_eq!(worker.get(&never).status, 404);
    let other = worker.second();
    assert_eq!(other.get(&path).status, 404);
    assert_eq!(other.post(&format!("{path}/cancel"), &json!({})).status, 404);
}

#[test]
fn other_routes_are_those_of_an_idle_worker() {
    let worker = Worker::instant(0);
    for path in ["/health", "/health_generate", "/model_info", "/server_info", "/metrics", "/v1/loads"] {
        assert_eq!(worker.get(path).status, 200, "{path}");
    }
    assert_eq!(worker.get("/v1/models").json()["data"][0]["id"], "mock");
    assert_eq!(worker.post("/flush_cache", &json!({})).status, 200);
    assert_eq!(worker.post("/abort_request", &json!({"rid": "x"})).status, 200);
    assert_eq!(worker.get("/nothing").status, 404);
}

#[test]
fn both_modes_know_their_tokens() {
    for worker in [Worker::instant(0), Worker::start()] {
        let tokens = worker.post("/tokenize", &json!({"prompt": "abcd efg"})).json();
        assert_eq!(tokens["count"], 2);
        let text = worker.post("/detokenize", &json!({"tokens": tokens["tokens"]})).json();
        assert_eq!(text["text"], "abcd efg");
        let several = worker.post("/v1/tokenize", &json!({"prompt": ["abcd", "a b"]})).json();
        assert_eq!(several["count"], json!([1, 2]));
        assert_eq!(worker.post("/detokenize", &json!({"tokens": []})).json()["text"], "");
        assert_eq!(worker.post("/detokenize", &json!({"tokens": [[1], []]})).json()["text"][1], "");
        let chat = json!({"messages": [{"role": "user", "content": "hi"}], "prompt": null});
        assert!(worker.post("/tokenize", &chat).json()["count"].as_u64().unwrap() > 0);
        let none = worker.post("/tokenize", &json!({}));
        assert_eq!(
            none.json()["message"],
            "Invalid prompt type: <class 'NoneType'>. Expected str or List[str]."
        );
        assert_eq!(worker.post_text("/tokenize", "text/plain", "{\"prompt\":\"x\"}").status, 400);
        assert_eq!(worker.post("/tokenize", &json!({"prompt": 3})).status, 400);
        assert_eq!(worker.post("/detokenize", &json!({})).status, 400);
    }
}
