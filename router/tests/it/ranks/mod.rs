//! Engines whose ranks are chosen one by one.

mod changes;
mod found;
mod pairs;
mod removal;
mod sent;
mod told;

use serde_json::{Value, json};

use crate::common::{Client, Message, RankedEngine, Router, wait_until};

/// A router that chooses among ranks, in front of these engines.
fn router(engines: &[&RankedEngine], args: &[&str]) -> Router {
    let urls: Vec<String> = engines.iter().map(|engine| engine.url()).collect();
    let router = Router::start(&urls, &[&["--dp-aware"], args].concat());
    let count = |list: &[Value]| list.iter().filter(|worker| worker["state"] == "ready").count();
    wait_until("the engines to be ready", || count(&workers(&router)) >= engines.len());
    router
}

fn call(router: &Router, method: &str, path: &str, body: &str) -> Message {
    let mut client = router.client();
    let length = body.len();
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}"));
    client.receive()
}

/// Registers an engine; its id.
fn add(router: &Router, url: &str) -> String {
    let answer = call(router, "POST", "/workers", &json!({"url": url}).to_string());
    assert_eq!(answer.status(), 202, "{}", answer.text());
    answer.json()["worker_id"].as_str().expect("an id").to_owned()
}

/// The rows of `/workers`.
fn workers(router: &Router) -> Vec<Value> {
    let list = router.get("/workers").json();
    let workers = list["workers"].as_array().expect("a list").clone();
    assert_eq!(list["total"], workers.len());
    workers
}

/// The URLs of all workers, in their order.
fn listed(router: &Router) -> Vec<String> {
    workers(router).iter().map(|worker| worker["url"].as_str().expect("a URL").to_owned()).collect()
}

/// What is told of the worker of this name.
fn shown(router: &Router, name: &str) -> Value {
    let answer = router.get(&format!("/workers/{}", encoded(name)));
    assert_eq!(answer.status(), 200, "{name}: {}", answer.text());
    answer.json()
}

/// A text for one path segment (RFC 3986, section 2.1).
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// The lines of `/metrics` that begin so.
fn series(router: &Router, name: &str) -> Vec<String> {
    let text = Client::get(&router.metrics, "/metrics").text();
    text.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect()
}
