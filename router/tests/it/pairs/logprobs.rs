//! Log-probabilities of the prompt, which the prefill worker knows alone.

use serde_json::{Value, json};

use super::legs::{latched, router};
use super::{flags, is_idle, sent};
use crate::common::{Latch, Worker, wait_until};

fn answer(input: &[i64], output: &[i64]) -> Value {
    json!({"text": "a", "meta_info": {
        "id": "r",
        "input_token_logprobs": input,
        "input_top_logprobs": input,
        "input_token_ids_logprobs": input,
        "output_token_logprobs": output,
    }})
}

fn replying(body: &Value) -> Worker {
    let body = body.to_string();
    Worker::start(move |conn, _| {
        conn.answer("200 OK", "Content-Type: application/json\r\nX-Kept: yes\r\n", body.as_bytes());
        true
    })
}

fn frame(answer: &Value) -> String {
    format!("data: {answer}\n\n")
}

fn streaming(frames: Vec<String>) -> Worker {
    Worker::start(move |conn, _| {
        conn.begin_stream();
        frames.iter().for_each(|frame| assert!(conn.chunk(frame.as_bytes())));
        conn.chunk(b"data: [DONE]\n\n");
        conn.end_stream();
        true
    })
}

#[test]
fn an_answer_in_one_piece_has_the_prefill_workers_lists_in_front() {
    let prefill = replying(&answer(&[1, 2], &[90]));
    let decode = replying(&answer(&[3], &[4, 5]));
    let router = router(&[&prefill], &[&decode], &flags(&[]));
    let merged = router.post("/generate", br#"{"text":"a","return_logprob":true,"logprob_start_len":0}"#);
    assert_eq!((merged.status(), merged.header("x-kept")), (200, Some("yes")));
    assert_eq!(merged.header("content-type"), Some("application/json"));
    assert_eq!(merged.json(), answer(&[1, 2, 3], &[4, 5]));
    for body in [&br#"{"text":"a"}"#[..], br#"{"text":"a","return_logprob":false}"#] {
        assert_eq!(router.post("/generate", body).json(), answer(&[3], &[4, 5]), "not asked for");
    }
    let chat = br#"{"messages":[],"return_logprob":true,"logprobs":true}"#;
    assert_eq!(router.post("/v1/chat/completions", chat).json(), answer(&[3], &[4, 5]), "another form");
    wait_until("the leases to end", || is_idle(&router));
}

#[test]
fn a_batch_is_merged_item_by_item() {
    let prefill = replying(&json!([answer(&[1], &[]), answer(&[2, 3], &[])]));
    let decode = replying(&json!([answer(&[], &[7]), answer(&[], &[8])]));
    let router = router(&[&prefill], &[&decode], &flags(&[]));
    let merged = router.post("/generate", br#"{"text":["a","b"],"return_logprob":[true,false]}"#);
    assert_eq!(merged.json(), json!([answer(&[1], &[7]), answer(&[2, 3], &[8])]));
}

#[test]
fn a_stream_has_them_in_its_first_frame() {
    let prefill = streaming(vec![frame(&answer(&[1, 2], &[]))]);
    let decode = streaming(vec![frame(&answer(&[], &[7])), frame(&answer(&[], &[7, 8]))]);
    let router = router(&[&prefill], &[&decode], &flags(&[]));
    let merged = router.post("/generate", br#"{"text":"a","return_logprob":true,"stream":true}"#);
    let text = merged.text();
    let frames: Vec<_> =
        text.split_terminator("\n\n").map(|frame| frame.strip_prefix("data: ").expect("data")).collect();
    assert_eq!(frames.len(), 3, "{text}");
    assert_eq!(serde_json::from_str::<Value>(frames[0]).expect("JSON"), answer(&[1, 2], &[7]));
    assert_eq!(frames[1], answer(&[], &[7, 8]).to_string(), "the rest as it came");
    assert_eq!(frames[2], "[DONE]");
}

#[test]
fn the_answer_waits_for_the_prefill_worker_where_it_is_merged() {
    let held = Latch::default();
    let prefill = latched(&held, r#"{"meta_info":{"input_token_logprobs":[1]}}"#);
    let decode = replying(&json!({"meta_info": {"input_token_logprobs": [2]}}));
    let router = router(&[&prefill], &[&decode], &flags(&[]));
    let mut client = sent(&router, br#"{"text":"a","return_logprob":true}"#);
    wait_until("decode to have answered", || decode.count("POST") == 1);
    held.pass(1);
    assert_eq!(client.receive().json(), json!({"meta_info": {"input_token_logprobs": [1, 2]}}));
}

#[test]
fn what_cannot_be_merged_is_left_as_it_is() {
    let prefill = Worker::fixed("nonsense");
    let decode = replying(&answer(&[3], &[4]));
    let router = router(&[&prefill], &[&decode], &flags(&[]));
    let body = br#"{"text":"a","return_logprob":true}"#;
    let merged = router.post("/generate", body);
    assert_eq!(merged.json(), answer(&[3], &[4]));
    assert!(merged.header("content-length").is_some(), "untouched");
    let prefill = replying(&answer(&[1], &[]));
    for answer in ["", "nonsense", "[7]", "{\"error\":\"no\"}"] {
        let decode = Worker::start(move |conn, _| {
            conn.answer("200 OK", "", answer.as_bytes());
            true
        });
        let router = super::legs::router(&[&prefill], &[&decode], &flags(&[]));
        assert_eq!(router.post("/generate", body).text(), answer);
    }
}
