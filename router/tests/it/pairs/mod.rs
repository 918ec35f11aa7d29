//! Requests that a prefill and a decode worker serve together.

mod again;
mod bodies;
mod counted;
mod failing;
mod given_up;
mod hung;
mod kinds;
mod leaving;
mod limit;
mod logprobs;
mod order;
mod ranks;

use crate::common::Client;
use crate::common::legs::{self, QUICK};

const BODY: &[u8] = br#"{"text":"hello"}"#;
const STREAM: &[u8] = br#"{"text":"hello","stream":true}"#;
const TOKEN: &[u8] = b"data: {\"text\":\"a\"}\n\n";
const DONE: &[u8] = b"data: [DONE]\n\n";

/// The first failure counts, and is the client's.
const ONCE: [&str; 3] = ["--disable-retries", "--cb-failure-threshold", "1"];

/// The router's flags with these besides.
fn flags<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&QUICK, more].concat()
}

/// A request whose answer is awaited later.
fn sent(router: &crate::common::Router, body: &[u8]) -> Client {
    let mut client = router.client();
    client.send_post("/generate", "Content-Type: application/json\r\n", body);
    client
}

/// So many streams, whose answers are awaited later.
fn many(router: &crate::common::Router, count: usize) -> Vec<Client> {
    (0..count).map(|_| sent(router, STREAM)).collect()
}

/// Nothing is in flight at any worker.
fn is_idle(router: &crate::common::Router) -> bool {
    router.loads().iter().all(|load| *load == 0)
}
