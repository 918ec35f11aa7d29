//! Priorities of requests over HTTP. The requests that must not end before others would take minutes.

use std::net::TcpStream;

use serde_json::{Value, json};
use simworker_core::PriorityConfig;

use crate::client::{Worker, read};

const CHAT: &str = "/v1/chat/completions";

/// A worker with one place, where priorities count and a difference above this preempts.
fn worker(preempts_above: Option<i64>, default: Option<i64>) -> Worker {
    Worker::at_speed(1.0, |config| {
        config.engine.max_running = 1;
        config.engine.queue.priority = Some(PriorityConfig { low_values_first: false, preempts_above });
        config.wire.default_priority = default;
    })
}

fn generate(rid: &str, tokens: u32, priority: Option<i64>) -> Value {
    json!({"text": rid, "rid": rid, "priority": priority,
        "sampling_params": {"max_new_tokens": tokens, "ignore_eos": true}})
}

fn chat(rid: &str, tokens: u32, priority: Option<i64>) -> Value {
    json!({"messages": [{"role": "user", "content": rid}], "rid": rid, "priority": priority,
        "max_tokens": tokens, "ignore_eos": true})
}

fn send(worker: &Worker, body: &Value) -> TcpStream {
    worker.send(if body["messages"].is_null() { "/generate" } else { CHAT }, body)
}

fn wait_until_waiting(worker: &Worker, requests: u64) {
    worker.wait_for("requests wait", |load| load["num_waiting_reqs"] == requests);
}

/// With the place taken, `later` comes after `first` and runs before it once the place is free.
fn overtakes(worker: &Worker, first: &Value, later: &Value) {
    let place = send(worker, &generate("place", 100_000, Some(1000)));
    worker.wait_until_running(1);
    let first = send(worker, first);
    wait_until_waiting(worker, 1);
    let later = send(worker, later);
    wait_until_waiting(worker, 2);
    worker.post("/abort_request", &json!({"rid": "place"}));
    assert_eq!(read(place).status, 200);
    assert_eq!(read(later).status, 200, "it has run");
    worker.wait_until_running(1);
    drop(first);
    worker.wait_until_idle();
}

#[test]
fn a_more_important_request_overtakes() {
    let worker = worker(None, None);
    overtakes(&worker, &generate("low", 100_000, Some(1)), &generate("high", 3, Some(2)));
    overtakes(&worker, &generate("low", 100_000, Some(1)), &chat("high", 3, Some(2)));
    overtakes(&worker, &chat("low", 100_000, None), &generate("high", 3, Some(-5)));
}

#[test]
fn a_much_more_important_request_takes_the_place_of_another() {
    let worker = worker(Some(10), None);
    for (low, high) in [
        (generate("low", 100_000, Some(0)), generate("high", 3, Some(11))),
        (chat("low", 100_000, Some(0)), chat("high", 3, Some(11))),
    ] {
        let low = send(&worker, &low);
        worker.wait_until_running(1);
        // Not by a difference of 10, so that this one waits.
        let waiting = send(&worker, &generate("middle", 100_000, Some(10)));
        wait_until_waiting(&worker, 1);
        assert_eq!(read(send(&worker, &high)).status, 200, "there is one place only");
        drop((low, waiting));
        worker.wait_until_idle();
    }
}

#[test]
fn a_request_without_a_priority_has_the_default() {
    let worker = worker(None, Some(50));
    overtakes(&worker, &generate("low", 100_000, Some(49)), &generate("default", 3, None));
    overtakes(&worker, &generate("low", 100_000, Some(49)), &chat("default", 3, None));
    assert_eq!(worker.get("/server_info").json()["default_priority_value"], 50);
}
