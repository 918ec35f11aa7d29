//! The pacer: one OS thread that releases requests at absolute deadlines.
//!
//! A timer of the async runtime is off by a millisecond or two and a sleep per gap adds its errors up; a thread that
//! sleeps until a fixed moment is off by less than a tenth of one and never drifts.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;

/// Releases `0, 1, …` at `start + deadlines_ns[i]` into the returned queue, which holds all of them: a slow
/// receiver sees late sends, and never makes the pacer late.
pub(super) fn start(start: Instant, deadlines_ns: Vec<u64>) -> std::io::Result<mpsc::Receiver<usize>> {
    let (send, receive) = mpsc::channel(deadlines_ns.len().max(1));
    std::thread::Builder::new().name("pacer".to_owned()).spawn(move || {
        for (seq, deadline_ns) in deadlines_ns.into_iter().enumerate() {
            let deadline = start + Duration::from_nanos(deadline_ns);
            while let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) {
                std::thread::sleep(left);
            }
            if send.try_send(seq).is_err() {
                return; // The driver is gone.
            }
        }
    })?;
    Ok(receive)
}
