//! Workers that do one half of a request each: how they are named, what they say of themselves, and what is told of them.

mod fleet;
mod learned;
mod lines;
mod readiness;
mod registered;
mod reload;

use serde_json::{Value, json};

use crate::common::{Message, Router, Worker, wait_until};

/// A port that no worker says by itself.
const PORT: u16 = 9123;

/// An engine that is well and says this of itself; other questions it does not know.
fn engine(info: Value) -> Worker {
    Worker::probed(move |conn, request| {
        let path = request.first.split(' ').nth(1).expect("a path");
        let (status, body) = match path {
            "/health" => ("200 OK", json!({})),
            "/server_info" => ("200 OK", info.clone()),
            "/v1/models" => ("200 OK", json!({"object": "list", "data": [{"id": "m"}]})),
            _ if request.first.starts_with("POST ") => ("200 OK", json!({})),
            _ => ("404 Not Found", json!({})),
        };
        conn.answer(status, "Content-Type: application/json\r\n", body.to_string().as_bytes());
        true
    })
}

/// What SGLang says of itself in this mode.
fn in_mode(mode: &str) -> Value {
    json!({"disaggregation_mode": mode, "disaggregation_bootstrap_port": 8998, "served_model_name": "m"})
}

fn call(router: &Router, method: &str, path: &str, body: &str) -> Message {
    let mut client = router.client();
    let length = body.len();
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}"));
    client.receive()
}

/// Registers a worker; its id.
fn add(router: &Router, said: &Value) -> String {
    let answer = call(router, "POST", "/workers", &said.to_string());
    assert_eq!(answer.status(), 202, "{said}: {}", answer.text());
    answer.json()["worker_id"].as_str().expect("an id").to_owned()
}

/// What is told of the worker with this id.
fn shown(router: &Router, id: &str) -> Value {
    let answer = router.get(&format!("/workers/{id}"));
    assert_eq!(answer.status(), 200, "{}", answer.text());
    answer.json()
}

/// The same once it has come as far as this.
fn shown_when(router: &Router, id: &str, state: &str) -> Value {
    wait_until(&format!("the worker to be {state}"), || shown(router, id)["state"] == state);
    shown(router, id)
}

/// All workers: URL, role, bootstrap port and policy of each.
fn listed(router: &Router) -> Vec<[Value; 4]> {
    let list = router.get("/workers").json();
    let workers = list["workers"].as_array().expect("a list").clone();
    let row =
        |worker: &Value| ["url", "worker_type", "bootstrap_port", "policy"].map(|key| worker[key].clone());
    workers.iter().map(row).collect()
}

/// The state of each worker, in their order.
fn states(router: &Router) -> Vec<Value> {
    let list = router.get("/workers").json();
    let workers = list["workers"].as_array().expect("a list");
    workers.iter().map(|worker| worker["state"].clone()).collect()
}
