//! What one body may ask for at most, and URLs that ask in unusual ways.

use serde_json::{Value, json};

use crate::client::{Worker, prompt};

fn refused(worker: &Worker, path: &str, body: &Value) -> String {
    let answer = worker.post(path, body);
    assert_eq!(answer.status, 400, "{path}: {}", answer.body);
    let json = answer.json();
    let message = if path == "/generate" { &json["error"]["message"] } else { &json["message"] };
    message.as_str().unwrap_or_else(|| panic!("{path}: {json}")).to_owned()
}

#[test]
fn no_body_asks_for_more_than_there_may_be() {
    let worker = Worker::start();
    let chat = |more: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "a"}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let many: Vec<[u32; 1]> = vec![[1]; 8193];
    let cases = [
        ("/generate", json!({"input_ids": many}), "at most 8192 requests in a body are allowed, got 8193"),
        ("/v1/embeddings", json!({"input": many}), "This model does not appear to be an embedding model"),
        (
            "/generate",
            json!({"input_ids": many[..100], "sampling_params": {"n": 100}}),
            "at most 8192 requests in a body are allowed, got 10000",
        ),
        (
            "/v1/completions",
            json!({"prompt": "a", "n": 129}),
            "at most 128 answers to a prompt are allowed, got 129",
        ),
        (
            "/generate",
            json!({"text": "a", "return_logprob": true, "top_logprobs_num": 65_535}),
            "at most 1024 alternatives to a token are allowed, got 65535",
        ),
        (
            "/generate",
            json!({"text": "a", "return_logprob": true, "token_ids_logprob": vec![7; 1025]}),
            "at most 1024 tokens in token_ids_logprob are allowed, got 1025",
        ),
        (
            "/v1/completions",
            json!({"prompt": "a", "logprobs": 70_000}),
            "at most 1024 alternatives to a token are allowed, got 70000",
        ),
        (
            "/v1/chat/completions",
            chat(json!({"logprobs": true, "top_logprobs": 1000, "max_tokens": 5000})),
            "at most 4194304 log-probabilities in the answers to a body are allowed, got 5005000",
        ),
        (
            "/v1/score",
            json!({"query": "a", "items": vec!["b"; 5000], "label_token_ids": (0..1000).collect::<Vec<_>>()}),
            "at most 4194304 log-probabilities in the answers to a body are allowed, got 5000000",
        ),
        (
            "/v1/score",
            json!({"query": "a".repeat(10_000), "items": vec!["b"; 8000], "label_token_ids": [1]}),
            "at most 67108864 tokens of queries and texts are allowed, got 80008000",
        ),
        (
            "/v1/completions",
            json!({"prompt": "a", "stop": "x".repeat(4097)}),
            "at most 4096 bytes of a stop string are allowed, got 4097",
        ),
        (
            "/v1/completions",
            json!({"prompt": "a", "n": 100, "max_tokens": 100_000, "stop": "#"}),
            "at most 4194304 tokens of replies that may end with a stop are allowed, got 10000000",
        ),
    ];
    for (path, body, message) in cases {
        let told = refused(&worker, path, &body);
        assert!(told.starts_with(message), "{told}");
    }
    worker.wait_until_idle();
    // What is usual is far from all of it.
    let usual = chat(json!({"logprobs": true, "top_logprobs": 20, "n": 4, "stop": ["#", "%"]}));
    assert_eq!(worker.post("/v1/chat/completions", &usual).status, 200);
}

#[test]
fn a_body_that_is_too_long_is_refused_in_the_form_of_its_route() {
    let worker = Worker::start();
    let body = format!("{{\"text\":\"{}\"}}", "a".repeat(64 << 20));
    for path in ["/generate", "/v1/completions", "/v1/responses"] {
        let answer = worker.post_text(path, "application/json", &body);
        let json = answer.json();
        let error = if path == "/v1/responses" { &json["error"] } else { &json };
        assert_eq!((answer.status, &error["code"]), (413, &json!(413)), "{path}: {}", answer.body);
        let kind = if path == "/v1/responses" { "Request Entity Too Large" } else { "413" };
        assert_eq!(error["type"], kind, "{path}");
    }
}

#[test]
fn urls_are_read_as_the_framework_reads_them() {
    let worker = Worker::start();
    let twice = worker.get("/v1/loads?include=core&include=memory").json();
    let entry = &twice["loads"][0];
    assert!(entry["memory"].is_object() && entry["queues"].is_null(), "the last one counts: {entry}");
    assert_eq!(worker.get("/v1/loads?include=%ff").status, 400, "no section has that name");
    for query in ["timeout=x", "timeout=-1", "timeout=nan", "timeout"] {
        let answer = worker.get(&format!("/flush_cache?{query}"));
        let json = answer.json();
        assert_eq!(
            (answer.status, &json["type"], &json["code"]),
            (400, &json!("Bad Request"), &json!(400)),
            "{query}"
        );
    }
    assert_eq!(worker.get("/flush_cache?timeout=1&other=%zz").status, 200);
    let model = worker.get("/v1/models/%ff");
    let error = json!({"message": "The model '\u{fffd}' does not exist", "type": "invalid_request_error",
        "param": "model", "code": "model_not_found"});
    assert_eq!((model.status, model.json()), (404, json!({"error": error})));
    assert_eq!(worker.get("/v1/models/m%6Fck").json()["id"], "mock");
    let response = worker.get("/v1/responses/%ff");
    assert_eq!(response.status, 404);
    assert_eq!(response.json()["error"]["message"], "Response with id '\u{fffd}' not found.");
}

#[test]
fn log_probabilities_cannot_begin_after_the_prompt() {
    let worker = Worker::start();
    let text = prompt(1, 20);
    let body = |start: i64, more: Value| {
        let mut body = json!({"text": text, "return_logprob": true, "logprob_start_len": start,
            "sampling_params": {"max_new_tokens": 2}});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let message = |start: i64| {
        format!(
            "req.logprob_start_len={start} is higher than the number of input tokens len(req.origin_input_ids)=20. \
             Please use a smaller logprob_start_len."
        )
    };
    assert_eq!(worker.post("/generate", &body(20, json!({}))).status, 200);
    for start in [21, 5_000_000_000] {
        assert_eq!(refused(&worker, "/generate", &body(start, json!({}))), message(start));
    }
    let two = json!({"sampling_params": {"max_new_tokens": 2, "n": 2}});
    assert_eq!(refused(&worker, "/generate", &body(21, two)), message(21));
    assert_eq!(
        worker.post("/generate", &body(21, json!({"return_logprob": false}))).status,
        200,
        "nobody asks"
    );
    // The scheduler says so, when a stream has begun; the other prompt of the batch has its answer.
    let batch = json!({"text": [text, prompt(2, 30)], "stream": true, "rid": ["a", "b"]});
    let events = worker.post("/generate", &body(25, batch)).events();
    let last = |rid: &str| events.iter().rfind(|event| event["meta_info"]["id"] == rid).unwrap();
    let reason =
        json!({"type": "abort", "message": message(25), "status_code": 400, "err_type": "BadRequestError"});
    assert_eq!(last("a")["meta_info"]["finish_reason"], reason);
    assert_eq!(last("b")["meta_info"]["finish_reason"], json!({"type": "length", "length": 2}));
    worker.wait_until_idle();
}
