//! The pacer: one OS thread that releases requests at absolute deadlines.
//!
//! A timer of the async runtime is off by a millisecond or two, and a sleep per gap adds its errors up; a thread that
//! sleeps until a fixed moment is off by less than a tenth of one and never drifts. It also makes each body before its
//! deadline, so that a long prompt delays no other request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::request;
use crate::workload::PlannedRequest;

/// A request whose moment has come.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) seq: usize,
    pub(super) body: Bytes,
}

/// Releases request `i` at `start + deadlines_ns[i]` (wall time) into the returned queue, which holds all of them: a slow
/// receiver sees late sends, and never makes the pacer late.
pub(super) fn start(
    start: Instant,
    requests: Arc<[PlannedRequest]>,
    deadlines_ns: Vec<u64>,
) -> std::io::Result<mpsc::Receiver<Due>> {
    let (send, receive) = mpsc::channel(deadlines_ns.len().max(1));
    std::thread::Builder::new().name("pacer".to_owned()).spawn(move || {
        for (seq, (request, deadline_ns)) in requests.iter().zip(deadlines_ns).enumerate() {
            let body = request::body(request);
            sleep_until(start + Duration::from_nanos(deadline_ns));
            if send.try_send(Due { seq, body }).is_err() {
                return; // The driver has stopped.
            }
        }
    })?;
    Ok(receive)
}

fn sleep_until(deadline: Instant) {
    while let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        std::thread::sleep(left);
    }
}
