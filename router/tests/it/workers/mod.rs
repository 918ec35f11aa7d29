//! Workers that come and go while the router runs.

mod api;
mod churn;
mod cold;
mod drain;
mod engine;
mod facts;
mod full;
mod joining;
mod listed;
mod many;
mod outage;
mod restart;
mod secrets;
mod spellings;
mod succession;
mod terms;
mod traffic;

use serde_json::{Value, json};

use self::engine::Engine;
use self::traffic::Traffic;
use crate::common::{Client, Message, Router, wait_until};

const BODY: &[u8] = br#"{"text":"hello"}"#;

/// A router that begins without workers.
fn router(args: &[&str]) -> Router {
    Router::start(&[], args)
}

/// Any call, on a connection of its own.
fn call(router: &Router, method: &str, path: &str, body: &str) -> Message {
    call_with(router, "", method, path, body)
}

/// The same with further header fields, each with its line end.
fn call_with(router: &Router, headers: &str, method: &str, path: &str, body: &str) -> Message {
    let mut client = router.client();
    let length = body.len();
    client.send(format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    ));
    client.receive()
}

/// Registers a worker; its id.
fn add(router: &Router, url: &str) -> String {
    add_as(router, &json!({"url": url}))
}

/// The same with all that is to be said of it.
fn add_as(router: &Router, said: &Value) -> String {
    let answer = call(router, "POST", "/workers", &said.to_string());
    assert_eq!(answer.status(), 202, "{said}: {}", answer.text());
    answer.json()["worker_id"].as_str().expect("an id").to_owned()
}

/// Registers a worker that is well, and waits until it gets requests; its id.
fn add_ready(router: &Router, url: &str) -> String {
    let id = add(router, url);
    wait_until("the worker to be ready", || state(router, &id) == "ready");
    id
}

/// Sends a worker away.
fn remove(router: &Router, id: &str) {
    let answer = call(router, "DELETE", &format!("/workers/{id}"), "");
    assert_eq!(answer.status(), 202, "{}", answer.text());
}

/// What is told of a worker.
fn shown(router: &Router, id: &str) -> Value {
    let answer = router.get(&format!("/workers/{id}"));
    assert_eq!(answer.status(), 200, "{}", answer.text());
    answer.json()
}

/// How far a worker has come; `gone` if there is none of this id.
fn state(router: &Router, id: &str) -> String {
    let answer = router.get(&format!("/workers/{id}"));
    if answer.status() == 404 {
        return "gone".to_owned();
    }
    answer.json()["state"].as_str().expect("a state").to_owned()
}

fn is_gone(router: &Router, id: &str) -> bool {
    state(router, id) == "gone"
}

/// The URLs of all workers, in their order.
fn listed(router: &Router) -> Vec<String> {
    let list = router.get("/workers").json();
    let workers = list["workers"].as_array().expect("a list");
    assert_eq!(list["total"], workers.len());
    workers.iter().map(|worker| worker["url"].as_str().expect("a URL").to_owned()).collect()
}

/// The lines of `/metrics` that name this.
fn series(router: &Router, name: &str) -> Vec<String> {
    let text = Client::get(&router.metrics, "/metrics").text();
    text.lines().filter(|line| line.contains(name)).map(str::to_owned).collect()
}

/// A text for one path segment (RFC 3986, section 2.1).
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// A request whose prompt is long enough for the prefix index, and begins like no other of another topic.
fn prompt(topic: &str) -> String {
    json!({"text": format!("{topic} ").repeat(80)}).to_string()
}
