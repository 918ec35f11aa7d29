//! Errors as SGLang writes them: which request gets which status and which bytes.

use serde_json::{Value, json};

use crate::client::{Answer, Worker, prompt};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const RESPONSES: &str = "/v1/responses";

fn worker() -> Worker {
    Worker::with(|config| config.engine.context_len = 100)
}

fn native(message: &str) -> String {
    json!({"error": {"message": message}}).to_string()
}

fn flat(message: &str, kind: &str, code: u16) -> String {
    let message = Value::from(message);
    format!(r#"{{"object":"error","message":{message},"type":"{kind}","param":null,"code":{code}}}"#)
}

fn nested(message: &str, kind: &str) -> Value {
    json!({"error": {"message": message, "type": kind, "param": null, "code": 400}})
}

fn chat(more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

const TOO_LONG: &str = "The input (100 tokens) is longer than the model's context length (100 tokens).";
const TOO_MUCH: &str = "Requested token count exceeds the model's maximum context length of 100 tokens. You requested \
    a total of 101 tokens: 60 tokens from the input messages and 41 tokens for the completion. Please reduce the \
    number of tokens in the input messages or the completion to fit within the limit.";

#[test]
fn the_front_end_says_what_is_wrong_with_a_generation() {
    let (long, middle) = (prompt(1, 100), prompt(1, 60));
    let cases = [
        (json!({}), "Either text, input_ids or input_embeds should be provided."),
        (
            json!({"text": "a", "input_ids": [1]}),
            "Either text, input_ids or input_embeds should be provided.",
        ),
        (json!({"input_ids": []}), "input_ids cannot be empty."),
        (
            json!({"input_embeds": [[0.5]]}),
            "input_embeds is provided while disable_radix_cache is False. Please add `--disable-radix-cache` when \
             you launch the server if you want to use input_embeds as inputs.",
        ),
        (json!({"text": long}), TOO_LONG),
        (json!({"text": middle, "sampling_params": {"max_new_tokens": 41}}), TOO_MUCH),
        (json!({"text": "a", "routed_dp_rank": 3}), "routed_dp_rank=3 out of range [0, 1)"),
        (
            json!({"text": ["a", "b"], "rid": ["x"]}),
            "The specified rids length mismatch with the batch_size for batch processing.",
        ),
        (json!({"text": ["a", "b"], "rid": ["x", "x"]}), "Duplicate request ID detected: x"),
        (
            json!({"text": ["a", "b"], "sampling_params": [{"n": 1}, {"n": 2}]}),
            "The parallel_sample_num should be the same for all samples in sample params.",
        ),
        (
            json!({"text": "a", "sampling_params": {"n": 2}, "return_logprob": [true]}),
            "Cannot use list return_logprob with parallel_sample_num > 1",
        ),
        (
            json!({"text": "a", "return_logprob": true, "token_ids_logprob": ["x"]}),
            "token_ids_logprob must be a flat list of integers.",
        ),
        (
            json!({"text": "a", "return_hidden_states": true}),
            "The server is not configured to return hidden states. Please set `--return-hidden-states-mode last`, \
             `--return-hidden-states-mode full`, or the legacy `--enable-return-hidden-states` flag.",
        ),
    ];
    let worker = worker();
    for (mut body, message) in cases {
        let answer = worker.post("/generate", &body);
        assert_eq!((answer.status, answer.body), (400, native(message)));
        // In a stream the same is said after it has begun.
        body["stream"] = true.into();
        let answer = worker.post("/generate", &body);
        assert_eq!(answer.status, 200, "{message}: {}", answer.body);
        let error =
            json!({"message": message, "type": "invalid_request_error", "code": 400, "retryable": false});
        assert_eq!(answer.events(), [json!({"error": error})]);
    }
    worker.wait_until_idle();
}

#[test]
fn sampling_parameters_are_checked_on_every_route() {
    let cases = [
        ("temperature", json!(-1), "temperature must be a non-negative finite number, got -1.", "-1.0."),
        ("top_p", json!(0), "top_p must be in (0, 1], got 0.", "0.0."),
        ("top_p", json!(1.5), "top_p must be in (0, 1], got 1.5.", "1.5."),
        ("min_p", json!(2), "min_p must be in [0, 1], got 2.", "2.0."),
        ("top_k", json!(0), "top_k must be -1 (disable) or at least 1, got 0.", "0."),
        ("frequency_penalty", json!(2.5), "frequency_penalty must be in [-2, 2], got 2.5.", "2.5."),
        ("presence_penalty", json!(-3), "presence_penalty must be in [-2, 2], got -3.", "-3.0."),
        (
            "repetition_penalty",
            json!(0),
            "repetition_penalty must be in (0, 2] (1.0 = no penalty), got 0.",
            "0.0.",
        ),
        ("stop", json!(vec!["x"; 33]), "at most 32 stop strings are allowed, got 33", "33"),
    ];
    let worker = worker();
    for (key, value, message, as_float) in cases {
        let answer = worker.post("/generate", &json!({"text": "a", "sampling_params": {key: value}}));
        assert_eq!((answer.status, answer.body), (400, native(message)));
        let until_number = message.rsplit_once(' ').unwrap().0;
        let message = flat(&format!("{until_number} {as_float}"), "BadRequestError", 400);
        for (path, mut body) in [(CHAT, chat(json!({}))), (COMPLETIONS, json!({"prompt": "a"}))] {
            body[key] = value.clone();
            let answer = worker.post(path, &body);
            assert_eq!((answer.status, answer.body), (400, message.clone()), "{path}");
        }
    }
    let budgets = [
        (json!({"max_new_tokens": -1}), "max_new_tokens must be at least 0, got -1."),
        (json!({"min_new_tokens": -1}), "min_new_tokens must be in [0, max_new_tokens], got -1."),
        (
            json!({"min_new_tokens": 5, "max_new_tokens": 4}),
            "min_new_tokens must be in [0, max_new_tokens(4)], got 5.",
        ),
    ];
    for (params, message) in budgets {
        let answer = worker.post("/generate", &json!({"text": "a", "sampling_params": params}));
        assert_eq!((answer.status, answer.body), (400, native(message)));
    }
    let allowed = json!({"temperature": 0, "top_p": 1, "min_p": 0, "top_k": -1, "frequency_penalty": -2,
        "presence_penalty": 2, "repetition_penalty": 2, "stop": vec!["x"; 32], "max_new_tokens": 0,
        "skip_special_tokens": false});
    assert_eq!(worker.post("/generate", &json!({"text": "a", "sampling_params": allowed})).status, 200);
}

#[test]
fn the_openai_routes_have_a_type_for_each_cause() {
    let (long, middle) = (prompt(1, 100), prompt(1, 60));
    let tool = json!([{"type": "function", "function": {"name": "f"}}]);
    let cases = [
        (CHAT, json!({"messages": []}), "Messages cannot be empty."),
        (COMPLETIONS, json!({"prompt": ""}), "Prompt cannot be empty"),
        (COMPLETIONS, json!({"prompt": []}), "Prompt cannot be empty"),
        (COMPLETIONS, json!({"prompt": ["", ""]}), "Prompt cannot be empty"),
        (COMPLETIONS, json!({"prompt": long, "max_tokens": 1}), TOO_LONG),
        (COMPLETIONS, json!({"prompt": middle, "max_tokens": 41}), TOO_MUCH),
        (CHAT, chat(json!({"routed_dp_rank": 1})), "routed_dp_rank=1 out of range [0, 1)"),
        (CHAT, chat(json!({"max_tokens": -4})), "max_new_tokens must be at least 0, got -4."),
        (
            CHAT,
            chat(json!({"tool_choice": "required"})),
            "Tools cannot be empty if tool choice is set to required.",
        ),
        (
            CHAT,
            chat(json!({"tools": tool, "tool_choice": {"type": "function", "function": {"name": "g"}}})),
            "Tool 'g' not found in tools list.",
        ),
    ];
    let worker = worker();
    for (path, mut body, message) in cases {
        for stream in [false, true] {
            body["stream"] = stream.into();
            let answer = worker.post(path, &body);
            assert_eq!((answer.status, answer.body), (400, flat(message, "BadRequestError", 400)), "{path}");
        }
    }
    let answer = worker.post_with(CHAT, "X-Data-Parallel-Rank: x", &chat(json!({})));
    let message = "Invalid X-Data-Parallel-Rank header: must be an integer, got 'x'";
    assert_eq!((answer.status, answer.body), (400, flat(message, "400", 400)));
}

#[test]
fn what_the_framework_refuses_is_flat_on_all_routes() {
    let worker = worker();
    let of_kind = |case: &str, answer: Answer| {
        assert_eq!(answer.status, 400, "{case}: {}", answer.body);
        let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(answer.body, flat(&message, "Bad Request", 400), "{case}");
    };
    for path in ["/generate", COMPLETIONS, CHAT] {
        for body in ["{", "[1]", "3", "{} {}", r#"{"stream": "yes", "text": "a", "prompt": "a"}"#] {
            of_kind(&format!("{path} {body}"), worker.post_text(path, "application/json", body));
        }
    }
    of_kind("no prompt", worker.post(COMPLETIONS, &json!({"model": "m"})));
    of_kind("no budget", worker.post(COMPLETIONS, &json!({"prompt": "a", "max_tokens": 0})));
    of_kind("no messages", worker.post(CHAT, &json!({"model": "m"})));
    of_kind("a wrong budget", worker.post(CHAT, &chat(json!({"max_tokens": "x"}))));
    of_kind("a wrong prompt", worker.post("/generate", &json!({"text": 3})));
    for path in [COMPLETIONS, CHAT] {
        let answer = worker.post_text(path, "text/plain", "{}");
        let message = "Unsupported Media Type: Only 'application/json' is allowed";
        assert_eq!((answer.status, answer.body), (400, flat(message, "Bad Request", 400)));
    }
    let generate = json!({"text": "a", "sampling_params": {"max_new_tokens": 1}}).to_string();
    assert_eq!(worker.post_text("/generate", "text/plain", &generate).status, 200, "it does not insist");
    let upper = json!({"prompt": "a"}).to_string();
    assert_eq!(worker.post_text(COMPLETIONS, "Application/JSON; charset=utf-8", &upper).status, 200);
}

#[test]
fn the_responses_route_nests_its_errors() {
    let worker = worker();
    let text = worker.post_text(RESPONSES, "text/plain", "{}");
    let message = "Unsupported Media Type: Only 'application/json' is allowed";
    assert_eq!((text.status, text.json()), (400, nested(message, "Bad Request")));
    let answer = worker.post(RESPONSES, &json!({"input": "a", "temperature": -1}));
    let message = "temperature must be a non-negative finite number, got -1.0.";
    assert_eq!((answer.status, answer.json()), (400, nested(message, "invalid_request_error")));
}

#[test]
fn the_scheduler_speaks_inside_a_stream() {
    let worker = Worker::with(|config| config.engine.max_queued = Some(0));
    let full = "The request queue is full.";
    let whole = worker.post("/generate", &json!({"text": "a"}));
    assert_eq!((whole.status, whole.body), (503, flat(full, "503", 503)));
    for (path, mut body) in [(CHAT, chat(json!({}))), (COMPLETIONS, json!({"prompt": "a"}))] {
        let whole = worker.post(path, &body);
        assert_eq!((whole.status, whole.body), (503, flat(full, "503", 503)), "{path}");
        body["stream"] = true.into();
        let answer = worker.post(path, &body);
        assert_eq!(answer.status, 200, "{path}: the stream has begun");
        let error = flat(full, "SERVICE_UNAVAILABLE", 503);
        assert_eq!(answer.body, format!("data: {{\"error\":{error}}}\n\ndata: [DONE]\n\n"), "{path}");
        body["stream_options"] = json!({"include_usage": true});
        let events = worker.post(path, &body).events();
        assert_eq!(events.len(), 2, "the usage is told all the same");
        assert_eq!(events[1]["usage"]["completion_tokens"], 0);
    }
    let events = worker.post("/generate", &json!({"text": "a", "stream": true})).events();
    let reason = json!({"type": "abort", "message": full, "status_code": 503, "err_type": null});
    assert_eq!((events.len(), &events[0]["meta_info"]["finish_reason"]), (1, &reason));
}

#[test]
fn an_input_over_the_limit_is_the_schedulers_affair() {
    let worker = Worker::with(|config| config.engine.kv_tokens = 200);
    let (text, body) = (prompt(1, 194), |stream: bool| json!({"prompt": prompt(1, 194), "stream": stream}));
    let message = "Input length (194 tokens) exceeds the maximum allowed length (194 tokens). Use a shorter input or enable --allow-auto-truncate.";
    let native_answer = worker.post("/generate", &json!({"text": text}));
    assert_eq!((native_answer.status, native_answer.body), (400, native(message)));
    let whole = worker.post(COMPLETIONS, &body(false));
    assert_eq!((whole.status, whole.body), (400, flat(message, "BadRequestError", 400)));
    let streamed = worker.post(COMPLETIONS, &body(true));
    let error = flat(message, "BAD_REQUEST", 400);
    assert_eq!(streamed.status, 200);
    assert_eq!(streamed.body, format!("data: {{\"error\":{error}}}\n\ndata: [DONE]\n\n"));
}

#[test]
fn paths_and_methods_that_there_are_not() {
    let worker = Worker::start();
    let cases = [
        ("GET", "/version", 404, r#"{"detail":"Not Found"}"#),
        ("GET", "/generate", 405, r#"{"detail":"Method Not Allowed"}"#),
        ("POST", "/v1/models", 405, r#"{"detail":"Method Not Allowed"}"#),
    ];
    for (method, path, status, body) in cases {
        let answer = if method == "GET" { worker.get(path) } else { worker.post(path, &json!({})) };
        assert_eq!((answer.status, answer.body.as_str()), (status, body), "{method} {path}");
        assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
    }
}

#[test]
fn a_batch_with_a_taken_id_does_not_start_at_all() {
    let worker = Worker::start();
    let mut body = json!({"text": prompt(1, 20), "rid": "b",
        "sampling_params": {"max_new_tokens": 50_000, "ignore_eos": true}});
    let running = worker.send("/generate", &body);
    worker.wait_until_running(1);
    body["text"] = json!([prompt(2, 500), prompt(3, 500)]);
    body["rid"] = json!(["a", "b"]);
    let several = json!({"text": "x", "rid": "b", "sampling_params": {"n": 2}});
    for (body, rid) in [(&body, "b"), (&body, "b")] {
        let answer = worker.post("/generate", body);
        assert_eq!(answer.body, native(&format!("Duplicate request ID detected: {rid}")));
    }
    assert_eq!(worker.post("/generate", &several).status, 200, "its copies have ids of their own");
    drop(running);
    worker.wait_until_idle();
    // Nothing of the first prompt was ever computed, and its id is free.
    let first = json!({"text": prompt(2, 500), "rid": "a", "sampling_params": {"max_new_tokens": 1}});
    assert_eq!(worker.post("/generate", &first).json()["meta_info"]["cached_tokens"], 0);
    let metrics = worker.get("/metrics").body;
    let aborted =
        metrics.lines().find(|line| line.starts_with("sglang:num_aborted_requests_total{")).unwrap();
    assert!(aborted.ends_with(" 1"), "only the one whose client has left: {aborted}");
}
