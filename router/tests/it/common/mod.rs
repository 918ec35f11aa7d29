//! Harness of the router's tests: the real binary in front of workers that do exactly what a test says.
//!
//! Workers and clients are plain blocking sockets, so that a test sees every byte and decides when each is sent.

pub(crate) mod http;
pub(crate) mod latch;
pub(crate) mod legs;
pub(crate) mod ports;
pub(crate) mod process;
pub(crate) mod ranks;
pub(crate) mod tls;
pub(crate) mod worker;

use std::time::{Duration, Instant};

pub(crate) use http::{Client, Message};
pub(crate) use latch::Latch;
pub(crate) use process::{Log, Router};
pub(crate) use ranks::RankedEngine;
pub(crate) use worker::{Conn, Worker};

/// Every proxied path that needs no option.
pub(crate) const PATHS: [&str; 9] = [
    "/v1/chat/completions",
    "/generate",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/classify",
    "/v1/rerank",
    "/rerank",
    "/v1/score",
    "/v1/responses",
];

/// How long anything may take before a test gives up: on a busy machine that is long, and below a minute, after which
/// probes and limits that are as by default come to the same end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// Polls until `done` gives a value.
pub(crate) fn wait_for<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(Instant::now() < end, "gave up waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Polls until `done` holds.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    wait_for(what, || done().then_some(()));
}

/// `length` bytes of every value, the same for the same seed.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}
