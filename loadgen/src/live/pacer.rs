//! The pacer: one OS thread that releases requests at absolute deadlines.
//!
//! A timer of the async runtime is off by a millisecond or two, and a sleep per gap adds its errors up; a thread that
//! waits until a fixed moment is off by less than a tenth of one and never drifts. It also makes each body before its
//! deadline, so that a long prompt delays no other request.
//!
//! Requests that wait for others get their deadlines while the run goes on; they are handed in with their bodies.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
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

/// A request whose deadline was not known at the start.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Late {
    deadline: Instant,
    seq: usize,
    body: Bytes,
}

/// Where deadlines are handed in that were not known at the start.
#[derive(Debug)]
pub(super) struct Pacer(Sender<Late>);

impl Pacer {
    /// Releases request `seq` at `deadline`.
    pub(super) fn release(&self, seq: usize, body: Bytes, deadline: Instant) {
        // The thread ends only after the driver, which does not listen any more then.
        let _ = self.0.send(Late { deadline, seq, body });
    }
}

/// Releases request `deadlines_ns[i].0` at `start + deadlines_ns[i].1` (wall time), and those that are handed in later, into
/// the returned queue, which holds all of them: a slow receiver sees late sends, and never makes the pacer late. The thread
/// ends when either side is dropped.
pub(super) fn start(
    start: Instant,
    requests: Arc<[PlannedRequest]>,
    deadlines_ns: Vec<(usize, u64)>,
) -> std::io::Result<(Pacer, mpsc::Receiver<Due>)> {
    let (send, receive) = mpsc::channel(requests.len().max(1));
    let (hand_in, handed_in) = channel();
    std::thread::Builder::new().name("pacer".to_owned()).spawn(move || {
        let mut thread = Thread { handed_in, late: BinaryHeap::new(), send };
        for (seq, deadline_ns) in deadlines_ns {
            // Nobody's reply is in the prompt of a request that waits for nobody.
            let body = request::body(&requests[seq], |_, _| {});
            if !thread.release_until(Some(start + Duration::from_nanos(deadline_ns)))
                || thread.send.try_send(Due { seq, body }).is_err()
            {
                return;
            }
        }
        thread.release_until(None);
    })?;
    Ok((Pacer(hand_in), receive))
}

struct Thread {
    handed_in: Receiver<Late>,
    late: BinaryHeap<Reverse<Late>>,
    send: mpsc::Sender<Due>,
}

impl Thread {
    /// Waits for a moment, or for ever, and meanwhile releases what was handed in. False when the driver has stopped.
    fn release_until(&mut self, end: Option<Instant>) -> bool {
        loop {
            let next = self.late.peek().map(|Reverse(late)| late.deadline);
            let is_over = end.is_some_and(|end| next.is_none_or(|next| end <= next));
            let wake = if is_over { end } else { next };
            let left = wake.map(|wake| wake.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                if is_over {
                    return true;
                }
                let Some(Reverse(Late { seq, body, .. })) = self.late.pop() else { continue };
                if self.send.try_send(Due { seq, body }).is_err() {
                    return false;
                }
                continue;
            }
            let handed_in = match left {
                Some(left) => self.handed_in.recv_timeout(left),
                None => self.handed_in.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match handed_in {
                Ok(late) => self.late.push(Reverse(late)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_deadlines_are_kept_between_the_planned_ones() {
        let request = |seq| PlannedRequest {
            seq,
            group: None,
            session: None,
            turn: None,
            at_ns: 0,
            prompt: Box::default(),
            output_tokens: 1,
            after: None,
        };
        let requests: Arc<[PlannedRequest]> = (0..4).map(request).collect();
        let begin = Instant::now();
        let after = |ms| begin + Duration::from_millis(ms);
        let (pacer, mut due) = start(begin, requests, vec![(0, 0), (1, 60_000_000)]).unwrap();
        pacer.release(3, Bytes::new(), after(90));
        pacer.release(2, Bytes::new(), after(30));
        for (seq, ms) in [(0, 0), (2, 30), (1, 60), (3, 90)] {
            assert_eq!(due.blocking_recv().unwrap().seq, seq);
            assert!(Instant::now() >= after(ms), "{seq} is early");
        }
        drop(pacer);
        assert!(due.blocking_recv().is_none(), "the thread ends with the driver");
    }
}
