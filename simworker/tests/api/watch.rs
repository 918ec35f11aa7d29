//! The control port: what was seen, and faults in JSON.

use std::io::{Read, Write};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use simworker::config::Mode;

use crate::client::Worker;

const INSTANT: Mode = Mode::Instant { interval_ns: 0 };

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn requests_are_booked() {
    for mode in [Mode::Engine, INSTANT] {
        let worker = Worker::watched(mode, &[]);
        let body = json!({"text": "x", "sampling_params": {"max_new_tokens": 2}});
        worker.post_with("/generate?a=b", "X-Trace: t1", &body);
        worker.get("/v1/models");
        let seen = worker.wait_to_see("both ended", |seen| seen["totals"]["answered"] == 2);
        let first = &seen["requests"][0];
        for (key, value) in [
            ("method", json!("POST")),
            ("path", json!("/generate?a=b")),
            ("status", json!(200)),
            ("end", json!("answered")),
            ("body_bytes", json!(body.to_string().len())),
            ("body_sha256", json!(hex(body.to_string().as_bytes()))),
        ] {
            assert_eq!(first[key], value, "{key}");
        }
        assert!(first["headers"].as_array().unwrap().contains(&json!(["x-trace", "t1"])));
        assert!(first["ended"].as_f64() >= first["arrived"].as_f64());
        assert_eq!(
            (&seen["requests"][1]["path"], &seen["requests"][1]["body_sha256"]),
            (&json!("/v1/models"), &json!(hex(b"")))
        );
        assert_eq!(
            worker.control("GET", "/workers/0/seen?since=1", "").json()["requests"].as_array().unwrap().len(),
            1
        );
        worker.wait_to_see("both connections closed", |seen| {
            seen["totals"]["connections_opened"] == 2 && seen["totals"]["connections_closed"] == 2
        });
        assert_eq!(worker.control("GET", "/workers/1/seen", "").json()["totals"]["requests"], 0);
        worker.control("DELETE", "/workers/0/seen", "");
        assert_eq!(worker.seen()["requests"], json!([]));
    }
}

#[test]
fn a_long_body_is_hashed() {
    let worker = Worker::watched(INSTANT, &[]);
    let text: String = (0..1 << 20).map(|i| format!("{i:010}")).collect();
    let body =
        format!("{{\"text\":\"{text}\",\"stream\":true,\"sampling_params\":{{\"max_new_tokens\":3}}}}");
    let answer = worker.post_text("/generate", "application/json", &body);
    assert_eq!(answer.events().len(), 3);
    let seen = worker.wait_to_see("it ended", |seen| seen["totals"]["answered"] == 1);
    assert_eq!(seen["requests"][0]["body_bytes"], body.len());
    assert_eq!(seen["requests"][0]["body_sha256"], hex(body.as_bytes()));
}

#[test]
fn a_body_that_is_cut_has_no_hash() {
    let worker = Worker::watched(INSTANT, &[]);
    let half =
        worker.send_raw(b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{\"text\":");
    worker.wait_to_see("it arrived", |seen| seen["totals"]["requests"] == 1);
    drop(half);
    let seen = worker.wait_to_see("it ended", |seen| seen["requests"][0]["end"] == "client_left");
    assert_eq!(seen["requests"][0]["body_sha256"], Value::Null);
    assert_eq!(seen["requests"][0]["body_bytes"], 8);
}

#[test]
fn clients_that_leave_and_aborts_are_booked() {
    let worker = Worker::watched_at(1.0, Mode::Engine, &[]);
    let body = json!({"text": "x", "rid": "r1", "sampling_params": {"max_new_tokens": 4000}, "stream": true});
    let mut stream = worker.send("/generate", &body);
    stream.read_exact(&mut [0; 12]).unwrap();
    drop(stream);
    worker.wait_to_see("the client left", |seen| seen["totals"]["client_left"] == 1);
    worker.post("/abort_request", &json!({"rid": "r1"}));
    let seen = worker.wait_to_see("the abort", |seen| seen["totals"]["aborts"] == 1);
    assert_eq!((&seen["aborts"][0]["rid"], &seen["aborts"][0]["abort_all"]), (&json!("r1"), &json!(false)));
}

#[test]
fn requests_of_a_connection_share_its_number() {
    let worker = Worker::watched(INSTANT, &[]);
    let mut connection = worker.send_raw(b"GET /ping HTTP/1.1\r\nhost: x\r\n\r\n");
    connection.read_exact(&mut [0; 12]).unwrap();
    connection.write_all(b"GET /ping HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    connection.read_to_end(&mut Vec::new()).unwrap();
    worker.get("/ping");
    let seen = worker.seen();
    let numbers: Vec<&Value> =
        seen["requests"].as_array().unwrap().iter().map(|r| &r["connection"]).collect();
    assert_eq!(numbers, [0, 0, 1]);
}

#[test]
fn faults_go_round() {
    let worker = Worker::watched(INSTANT, &["0:delay-head=1ms"]);
    let faults = |method: &str, body: Value| worker.control(method, "/workers/0/faults", &body.to_string());
    assert_eq!(faults("GET", Value::Null).json()["delay-head"][0]["value"], "1ms");
    let shown = faults("PATCH", json!({"status": [{"value": 503, "times": 2, "path": "/x"}, 500]})).json();
    assert_eq!(shown["status"][0]["times"], 2);
    assert_eq!(faults("PUT", shown.clone()).json(), shown);
    assert_eq!(faults("PATCH", json!({"status": null})).json(), json!({"delay-head": shown["delay-head"]}));
    assert_eq!(faults("DELETE", Value::Null).json(), json!({}));
}

#[test]
fn mistakes_are_named() {
    let worker = Worker::watched(INSTANT, &[]);
    for (method, path, body, status, words) in [
        ("PUT", "/workers/0/faults", "{\"status\":9}", 400, &["status", "9", "200 to 599"][..]),
        ("PATCH", "/workers/0/faults", "{\"slower\":1}", 400, &["slower", "delay-head"]),
        ("PATCH", "/workers/0/faults", "{\"slow\":2}", 400, &["slow", "emulated engines"]),
        ("PUT", "/workers/0/faults", "[]", 400, &["JSON object"]),
        ("GET", "/workers/2/seen", "", 404, &["worker 2", "1"]),
        ("POST", "/workers/0/restart?down=3", "", 400, &["down=3", "unit"]),
    ] {
        let answer = worker.control(method, path, body);
        assert_eq!(answer.status, status, "{path}");
        let message = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(words.iter().all(|word| message.contains(word)), "{path}: {message}");
    }
    let workers = worker.control("GET", "/workers", "").json();
    assert_eq!((&workers[1]["index"], &workers[1]["mode"]), (&json!(1), &json!("instant")));
}
