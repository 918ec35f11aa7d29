//! What who runs prefill and decode workers sees of them: in metrics, in the log, and in answers to calls.

mod api;
mod cache;
mod log;
mod metrics;

use serde_json::{Value, json};

use crate::common::{Client, Message, Router, Worker};

const BODY: &[u8] = br#"{"text":"a prompt to be remembered"}"#;

/// An engine of a pair that says this of itself, and answers what is asked of it.
fn engine(info: Value) -> Worker {
    Worker::probed(move |conn, request| {
        let (status, body) = match request.first.split(' ').nth(1).expect("a path") {
            "/health" => ("200 OK", json!({})),
            "/server_info" => ("200 OK", info.clone()),
            _ if request.first.starts_with("POST ") => ("200 OK", json!({"text": "x"})),
            _ => ("404 Not Found", json!({})),
        };
        conn.answer(status, "Content-Type: application/json\r\n", body.to_string().as_bytes());
        true
    })
}

/// What SGLang says of itself in this mode.
fn in_mode(mode: &str) -> Value {
    json!({"disaggregation_mode": mode, "served_model_name": "m"})
}

fn call(router: &Router, method: &str, path: &str, body: &str) -> Message {
    let mut client = router.client();
    let length = body.len();
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}"));
    client.receive()
}

/// Takes a worker out by its URL.
fn remove(router: &Router, worker: &Worker) {
    let name = worker.url().replace(':', "%3A").replace('/', "%2F");
    assert_eq!(call(router, "DELETE", &format!("/workers/{name}"), "").status(), 202);
}

/// The lines of `/metrics` that begin so.
fn series(router: &Router, name: &str) -> Vec<String> {
    let text = Client::get(&router.metrics, "/metrics").text();
    text.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect()
}
