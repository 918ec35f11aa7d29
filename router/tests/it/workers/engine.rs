//! A worker that says of itself what a test wants.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::common::{Conn, Latch, Message, Worker};

/// The body of an answer that waits for the latch.
pub(super) const HOLD: &str = "hold";

/// A prompt whose connection is closed without an answer.
const LOSE: &str = "lose";

/// A scripted engine. Unless told otherwise it is well and says nothing of itself; requests are answered, as a stream
/// of two events where they want one. A prompt with the word `hold` is answered, or its stream goes on, when the latch
/// lets it; one with the word `lose` is not answered.
pub(super) struct Engine {
    pub(super) worker: Worker,
    pub(super) go: Latch,
    script: Arc<Script>,
}

#[derive(Default)]
struct Script {
    /// Status and body by path; without a status the connection is closed instead.
    answers: Mutex<HashMap<&'static str, (&'static str, String)>>,
    /// How often each path was asked for.
    asked: Mutex<HashMap<String, usize>>,
}

impl Engine {
    pub(super) fn start() -> Self {
        Self::start_at("127.0.0.1:0")
    }

    pub(super) fn start_at(address: &str) -> Self {
        let (go, script) = (Latch::default(), Arc::new(Script::default()));
        let (when, told) = (go.clone(), Arc::clone(&script));
        let worker = Worker::probed_at(address, move |conn, request| serve(conn, request, &told, &when));
        Self { worker, go, script }
    }

    /// One that is not well yet.
    pub(super) fn unwell() -> Self {
        let engine = Self::start();
        engine.say("/health", "503 Service Unavailable", "");
        engine
    }

    /// One that describes itself so.
    pub(super) fn describing(path: &'static str, description: &Value) -> Self {
        let engine = Self::start();
        engine.say(path, "200 OK", &description.to_string());
        engine
    }

    /// What a question is answered from now on.
    pub(super) fn say(&self, path: &'static str, status: &'static str, body: &str) {
        self.script.answers.lock().expect("not poisoned").insert(path, (status, body.to_owned()));
    }

    pub(super) fn get_well(&self) {
        self.say("/health", "200 OK", "");
    }

    /// How often it was asked this, questions of the router too.
    pub(super) fn asked(&self, path: &str) -> usize {
        self.script.asked.lock().expect("not poisoned").get(path).copied().unwrap_or(0)
    }

    pub(super) fn url(&self) -> String {
        self.worker.url()
    }

    /// How many requests it got.
    pub(super) fn requests(&self) -> usize {
        self.worker.count("POST")
    }

    /// The value of this header in each request and question for this path.
    pub(super) fn last_header(&self, path: &str, name: &str) -> Option<String> {
        let seen = self.worker.seen();
        let last = seen.iter().rfind(|request| request.first.split(' ').nth(1) == Some(path))?;
        last.header(name).map(str::to_owned)
    }
}

fn serve(conn: &mut Conn, request: &Message, script: &Script, go: &Latch) -> bool {
    let path = request.first.split(' ').nth(1).expect("a path").to_owned();
    *script.asked.lock().expect("not poisoned").entry(path.clone()).or_default() += 1;
    if request.first.starts_with("POST ") {
        return answer(conn, request, go);
    }
    let default = if path == "/health" { "200 OK" } else { "404 Not Found" };
    let told = script.answers.lock().expect("not poisoned").get(path.as_str()).cloned();
    match told.unwrap_or((default, String::new())) {
        ("", _) => false,
        (status, body) => {
            if body == HOLD {
                go.wait();
            }
            conn.answer(status, "Content-Type: application/json\r\n", body.as_bytes());
            true
        }
    }
}

/// Whether the connection is kept.
fn answer(conn: &mut Conn, request: &Message, go: &Latch) -> bool {
    let body = request.text();
    if body.contains(LOSE) {
        return false;
    }
    let is_held = body.contains(HOLD);
    if !body.contains("\"stream\":true") {
        if is_held {
            go.wait();
        }
        conn.answer("200 OK", "Content-Type: application/json\r\n", b"{}");
        return true;
    }
    conn.begin_stream();
    conn.chunk(b"data: {}\n\n");
    if is_held {
        go.wait();
    }
    conn.chunk(b"data: [DONE]\n\n");
    conn.end_stream();
    true
}
