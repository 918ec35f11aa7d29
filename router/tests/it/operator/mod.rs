//! What the router answers by itself, and what it asks its workers on an operator's behalf.

mod access;
mod engine_metrics;
mod exposition;
mod flush;
mod hanging;
mod health;
mod info;
mod loads;
mod models;
mod routes;
mod simulated;
mod surfaces;

use std::io::Read as _;

use crate::common::{Client, Conn, Message, Router, Worker, wait_until};

/// What a worker does with a request: status and body. `HANG` never answers.
type Script = &'static [(&'static str, &'static str, &'static str)];

const OK: &str = "200 OK";
const HANG: &str = "hang";

/// A worker that is healthy and answers requests that begin so; all others are not found.
fn scripted(script: Script) -> Worker {
    Worker::probed(move |conn, request| {
        let row = script.iter().find(|(first, ..)| request.first.starts_with(first));
        match row {
            Some((_, HANG, _)) => {
                until_left(conn);
                return false;
            }
            Some((_, status, body)) => conn.answer(status, "", body.as_bytes()),
            None if request.first.starts_with("GET /health ") => conn.answer(OK, "", b""),
            None => conn.answer("404 Not Found", "", b"not here"),
        }
        true
    })
}

/// Waits until whoever asked has given up.
fn until_left(conn: &mut Conn) {
    while conn.stream.read(&mut [0]).is_ok_and(|read| read > 0) {}
}

/// A router that has found all of these healthy.
fn start(workers: &[&Worker], args: &[&str]) -> Router {
    let urls: Vec<String> = workers.iter().map(|worker| worker.url()).collect();
    let router = Router::start(&urls, args);
    wait_until_ready(&router, urls.len());
    router
}

fn wait_until_ready(router: &Router, workers: usize) {
    wait_until("the workers to be healthy", || {
        let ready = router.get("/readiness");
        ready.status() == 200 && ready.json()["healthy_workers"] == workers
    });
}

/// Sends a request without a body.
fn send(router: &Router, method: &str, path: &str, headers: &str) -> Message {
    let mut client = router.client();
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: router\r\nContent-Length: 0\r\n{headers}\r\n"));
    if method == "HEAD" {
        return client.reader.head().expect("a head").expect("not the end");
    }
    client.receive()
}

/// Answers of the same router at the same time, in the order of the paths.
fn get_all(router: &Router, paths: &[&'static str]) -> Vec<Message> {
    let asking = paths.iter().map(|path| {
        let (address, path) = (router.address.clone(), *path);
        std::thread::spawn(move || Client::get(&address, path))
    });
    let asking: Vec<_> = asking.collect();
    asking.into_iter().map(|client| client.join().expect("a client")).collect()
}

fn is_json(answer: &Message) -> bool {
    answer.header("content-type") == Some("application/json")
}
