//! Aborts, disconnects and flushes.

use std::io::{Read, Write};

use serde_json::{Value, json};

use crate::client::{Worker, prompt, read};

/// A request that would run for a quarter of a minute.
fn endless(seed: u64, rid: &str, stream: bool) -> Value {
    json!({"text": prompt(seed, 50), "rid": rid, "stream": stream,
        "sampling_params": {"max_new_tokens": 100_000, "ignore_eos": true}})
}

#[test]
fn a_client_that_goes_away_frees_the_engine() {
    let worker = Worker::start();
    let chat = json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 100_000, "stream": true});
    let cases = [
        ("buffered", "/generate", endless(1, "a", false)),
        ("streamed", "/generate", endless(2, "b", true)),
        ("chat", "/v1/chat/completions", chat),
    ];
    for (case, path, body) in cases {
        let mut connection = worker.send(path, &body);
        worker.wait_until_running(1);
        if case != "buffered" {
            connection.read_exact(&mut [0; 12]).unwrap();
        }
        drop(connection);
        worker.wait_until_idle();
    }
    assert_eq!(worker.post("/flush_cache", &json!({})).status, 200);
}

#[test]
fn bytes_after_the_body_do_not_hide_that_the_client_goes_away() {
    let worker = Worker::start();
    let body = endless(1, "x", false).to_string();
    let post = format!("POST /generate HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let next = "GET /health HTTP/1.1\r\nhost: a\r\n\r\n".repeat(1000);
    let cases = [
        ("an empty line", [post.clone() + "\r\n", String::new(), String::new()]),
        ("an empty line by itself", [post.clone(), "\r\n".into(), String::new()]),
        ("more requests", [post.clone() + &next, next.clone(), String::new()]),
        ("more requests by themselves", [post, next.clone(), next]),
    ];
    for (count, (case, [first, second, third])) in (1..).zip(cases) {
        let mut connection = worker.send_raw(first.as_bytes());
        worker.wait_until_running(1);
        for later in [second, third] {
            connection.write_all(later.as_bytes()).unwrap();
            // Lets the worker read it before it reads the end.
            assert_eq!(worker.load()["num_running_reqs"], 1, "{case}");
        }
        drop(connection);
        worker.wait_until_idle();
        assert_eq!(aborted(&worker), count, "{case}: it was not left to run to its end");
    }
}

#[test]
fn clients_that_leave_a_stray_line_behind_free_the_engine() {
    let worker = Worker::start();
    let connections: Vec<_> = (0..10)
        .map(|seed| {
            let body = endless(seed, &format!("rid {seed}"), false).to_string();
            let head = format!("POST /generate HTTP/1.1\r\nhost: a\r\ncontent-length: {}", body.len());
            worker.send_raw(format!("{head}\r\n\r\n{body}\r\n").as_bytes())
        })
        .collect();
    worker.wait_until_running(10);
    drop(connections);
    worker.wait_until_idle();
    assert_eq!(aborted(&worker), 10);
}

#[test]
fn pipelined_requests_are_answered_in_turn() {
    let worker = Worker::start();
    let body = json!({"text": prompt(1, 50), "sampling_params": {"max_new_tokens": 20}}).to_string();
    let post = format!("POST /generate HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n", body.len());
    let last = format!("{post}connection: close\r\n\r\n{body}");
    let post = format!("{post}\r\n{body}");
    let mut connection = worker.send_raw(format!("{post}{post}\r\n{post}{last}").as_bytes());
    let mut answers = String::new();
    connection.read_to_string(&mut answers).unwrap();
    assert_eq!(answers.matches("\"completion_tokens\":20").count(), 4, "{answers}");
}

fn aborted(worker: &Worker) -> u64 {
    let metrics = worker.get("/metrics").body;
    let line = metrics.lines().find(|line| line.starts_with("sglang:num_aborted_requests_total{"));
    line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_slow_reader_does_not_hold_the_engine_up() {
    let worker = Worker::start();
    let body = json!({"text": prompt(1, 50), "stream": true, "sampling_params": {"max_new_tokens": 2000}});
    let connection = worker.send("/generate", &body);
    worker.wait_for("the prompt is computed", |load| load["total_prefill_uncached_tokens"] == 50);
    // Not a byte is read meanwhile, although cumulative frames far exceed what sockets buffer.
    worker.wait_until_idle();
    let events = read(connection).events();
    assert_eq!(events.last().unwrap()["meta_info"]["completion_tokens"], 2000);
    assert!(events.len() < 2000, "frames were merged");
}

#[test]
fn aborts_match_by_prefix() {
    let worker = Worker::start();
    let of = |seed, rid| worker.send("/generate", &endless(seed, rid, false));
    let (job1, job2, other) = (of(1, "job"), of(2, "job-2"), of(3, "other"));
    worker.wait_until_running(3);
    for nobody in [json!({"rid": "nobody"}), json!({"rid": ""}), json!({})] {
        assert_eq!(worker.post("/abort_request", &nobody).status, 200);
        assert_eq!(
            worker.load()["num_running_reqs"],
            3,
            "{nobody} names no request, whatever starts with it"
        );
    }
    assert_eq!(aborted(&worker), 0);
    let answer = worker.post("/abort_request", &json!({"rid": "jo"}));
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    for connection in [job1, job2] {
        let answer = read(connection);
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json()["meta_info"]["finish_reason"]["type"], "abort");
    }
    worker.wait_until_running(1);
    worker.post("/abort_request", &json!({"abort_all": true}));
    assert_eq!(read(other).json()["meta_info"]["finish_reason"]["type"], "abort");
    worker.wait_until_idle();
    assert_eq!(aborted(&worker), 3);
}

#[test]
fn waiting_requests_are_aborted_at_once() {
    let worker = Worker::with(|config| config.engine.max_running = 1);
    let running = worker.send("/generate", &endless(1, "running", false));
    worker.wait_until_running(1);
    let waiting = worker.send("/generate", &endless(2, "waiting", false));
    worker.wait_for("one waits", |load| load["num_waiting_reqs"] == 1);
    worker.post("/abort_request", &json!({"rid": "waiting"}));
    let reason = read(waiting).json()["meta_info"]["finish_reason"].clone();
    assert_eq!(reason["message"], "Abort in waiting queue");
    assert_eq!(worker.load()["num_running_reqs"], 1);
    drop(running);
}

#[test]
fn an_abort_ends_a_stream() {
    let worker = Worker::start();
    let connection = worker.send("/generate", &endless(1, "x", true));
    worker.wait_until_running(1);
    worker.post("/abort_request", &json!({"rid": "x"}));
    let events = read(connection).events();
    assert_eq!(events.last().unwrap()["meta_info"]["finish_reason"]["type"], "abort");
}

#[test]
fn a_flush_needs_an_idle_engine() {
    let worker = Worker::start();
    let body = json!({"text": prompt(1, 100), "sampling_params": {"max_new_tokens": 1}});
    let cached = || worker.post("/generate", &body).json()["meta_info"]["cached_tokens"].clone();
    assert_eq!((cached(), cached()), (json!(0), json!(99)));
    assert_eq!(worker.get("/flush_cache").status, 200);
    assert_eq!(cached(), 0, "nothing is left");
    let running = worker.send("/generate", &endless(2, "x", false));
    worker.wait_until_running(1);
    assert_eq!(worker.get("/flush_cache").status, 400);
    assert_eq!(worker.post("/flush_cache?timeout=0.02", &json!({})).status, 400);
    assert_eq!(cached(), 99, "a refused flush changes nothing");
    drop(running);
    assert_eq!(worker.get("/flush_cache?timeout=10").status, 200, "it waits for the abort");
}
