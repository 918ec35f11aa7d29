//! What SGLang's front end refuses, and what a large body does to the others.

use std::io::{ErrorKind, Write};

use serde_json::{Value, json};
use simworker_core::EngineRole;

use crate::client::{Worker, read};
use crate::pair::message;

const CHAT: &str = "/v1/chat/completions";

#[test]
fn messages_are_checked_as_their_models_are() {
    let worker = Worker::start();
    let ask = |messages: Value| worker.post(CHAT, &json!({"messages": messages, "max_tokens": 1}));
    let refused = [
        (json!([{"role": "wizard", "content": "a"}]), "'role' must be one of 'system'"),
        (json!([{"content": "a"}]), "role: Field required"),
        (json!([{"role": 5, "content": "a"}]), "messages[0].role"),
        (json!([{"role": "user", "content": 5}]), "messages[0].content"),
        (json!([{"role": "user"}]), "content: Field required"),
        (json!([{"role": "User", "content": "a"}]), "'role' must be"),
        (
            json!([{"role": "system", "content": "a"}, {"role": "assistant", "content": {}}]),
            "messages[1].content",
        ),
        (json!({"role": "user", "content": "a"}), "messages"),
        (json!("abc"), "messages"),
    ];
    for (messages, words) in refused {
        let answer = ask(messages.clone());
        assert_eq!(answer.status, 400, "{messages}");
        assert!(answer.body.contains(words), "{messages}: {}", answer.body);
    }
    let taken = [
        json!([{"role": "System", "content": "a"}, {"role": "user", "content": "b"}]),
        json!([{"role": "assistant"}, {"role": "user", "content": [{"type": "text", "text": "b"}]}]),
        json!([{"role": "developer", "content": null}, {"role": "tool", "content": "c"}]),
    ];
    for messages in taken {
        assert_eq!(ask(messages.clone()).status, 200, "{messages}");
    }
}

#[test]
fn a_tool_choice_is_one_of_three_words_or_a_tool() {
    let worker = Worker::start();
    let ask = |choice: &str| {
        let tools = json!([{"type": "function", "function": {"name": "f"}}]);
        let messages = json!([{"role": "user", "content": "a"}]);
        let body = json!({"messages": messages, "tools": tools, "tool_choice": choice, "max_tokens": 2});
        worker.post(CHAT, &body).status
    };
    assert_eq!(["auto", "none", "required", "x", "AUTO"].map(ask), [200, 200, 200, 400, 400]);
}

#[test]
fn routes_for_get_take_no_head() {
    let worker = Worker::with(|config| config.wire.enable_metrics = true);
    let head = |path: &str| {
        let request = format!("HEAD {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        read(worker.send_raw(request.as_bytes())).status
    };
    let paths = ["/v1/models", "/health", "/server_info", "/v1/loads", "/generate", "/nowhere", "/metrics"];
    assert_eq!(paths.map(head), [405, 405, 405, 405, 405, 404, 200]);
    assert_eq!(worker.get("/v1/models").status, 200);
}

#[test]
fn a_body_that_is_too_large_is_read_and_refused() {
    let worker = Worker::start();
    let length = (64 << 20) + 1;
    let head = format!(
        "POST /generate HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    let mut connection = worker.send_raw(head.as_bytes());
    // Clients that write all of it first would have a broken pipe.
    connection.write_all(&vec![b' '; length]).unwrap();
    let answer = read(connection);
    assert_eq!(answer.status, 413, "{}", answer.body);
    assert!(answer.body.contains("length limit exceeded"), "{}", answer.body);
    // Who asks before it sends need not send at all.
    let head = head.replace("connection", "expect: 100-continue\r\nconnection");
    assert_eq!(read(worker.send_raw(head.as_bytes())).status, 413);
}

#[test]
fn a_large_body_does_not_stall_the_others() {
    let worker = Worker::start();
    let large = worker.send("/tokenize", &json!({"prompt": "a".repeat(30_000_000)}));
    large.set_nonblocking(true).unwrap();
    let is_answered = || match large.peek(&mut [0]) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            false
        }
    };
    for asked in 0..30 {
        assert_eq!(worker.get("/v1/loads?include=core").status, 200);
        assert!(!is_answered(), "the large one was first after {asked} small ones");
    }
    large.set_nonblocking(false).unwrap();
    let answer = read(large);
    assert_eq!(answer.status, 200);
    assert!(answer.body.contains("\"count\":"));
}

#[test]
fn a_large_request_whose_client_leaves_is_aborted() {
    let worker = Worker::start();
    let params = json!({"max_new_tokens": 100_000, "ignore_eos": true});
    let more = "x".repeat(2 << 20);
    let large = worker.send("/generate", &json!({"text": "a", "sampling_params": params, "unknown": more}));
    worker.wait_until_running(1);
    drop(large);
    worker.wait_until_idle();
}

#[test]
fn who_asks_for_no_token_gets_one_frame_without_any() {
    let worker = Worker::start();
    let mut body = json!({"text": "some words", "sampling_params": {"max_new_tokens": 0}});
    let whole = worker.post("/generate", &body).json();
    body["stream"] = true.into();
    let stream = worker.post("/generate", &body);
    let [frame] = &stream.events()[..] else { panic!("one frame: {}", stream.body) };
    for answer in [&whole, frame] {
        assert_eq!((&answer["text"], &answer["output_ids"]), (&json!(""), &json!([])));
        let meta = &answer["meta_info"];
        assert_eq!(meta["completion_tokens"], 0);
        assert_eq!(meta["finish_reason"], json!({"type": "length", "length": 0}));
    }
    assert!(frame["meta_info"]["cached_tokens"].as_u64().unwrap() > 0, "the first one is in the cache");
}

#[test]
fn a_bootstrap_server_that_is_never_found_fails_the_handshake() {
    let worker = Worker::at_speed(500.0, |config| {
        config.engine.role = EngineRole::Decode;
        config.wire.enable_metrics = true;
    });
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let body = json!({"text": "z", "sampling_params": {"max_new_tokens": 3}, "bootstrap_host": "127.0.0.1",
        "bootstrap_port": closed, "bootstrap_room": 9});
    let answer = worker.post("/generate", &body);
    assert_eq!(answer.status, 500, "{}", answer.body);
    assert!(message(&answer).contains("Decode handshake failed"), "{}", answer.body);
    let metrics = worker.get("/metrics").body;
    let counted = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(&format!("sglang:{name}{{")));
        line.map_or(0.0, |line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
    };
    let failed = ["num_bootstrap_failed_reqs_total", "num_transfer_failed_reqs_total"].map(counted);
    assert_eq!(failed, [1.0, 0.0]);
}
