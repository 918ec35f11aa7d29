//! What a worker has seen: its last requests and totals over all.

use std::collections::VecDeque;

use hyper::Request;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;

use crate::clock::unix_seconds;

/// Most requests that are kept, and most aborts.
const MOST_KEPT: usize = 10_000;

/// One request.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Entry {
    /// Its number, from 0 on.
    seq: u64,
    /// The number of its connection.
    connection: u64,
    /// Seconds since the epoch.
    arrived: f64,
    method: String,
    /// With the query.
    path: String,
    /// In the order in which they came.
    headers: Vec<(String, String)>,
    /// Bytes of its body that were read.
    body_bytes: u64,
    /// Of the whole body, in hexadecimal; absent while it has not been read.
    body_sha256: Option<String>,
    /// The body ended in the middle: whatever is answered, there is nobody to read it.
    #[serde(skip)]
    body_failed: bool,
    /// Of the answer.
    status: Option<u16>,
    /// Bytes of the answer's body that were handed out.
    sent_bytes: u64,
    end: End,
    /// Which fault ended it.
    fault: Option<&'static str>,
    /// Seconds since the epoch.
    ended: Option<f64>,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum End {
    /// It has not.
    Open,
    /// The whole answer was handed out.
    Answered,
    /// The client went away before that.
    ClientLeft,
    /// A fault ended it.
    Fault,
}

/// What an abort asked for.
#[derive(Debug, Clone, Serialize)]
struct Abort {
    /// Seconds since the epoch.
    arrived: f64,
    rid: Option<String>,
    abort_all: bool,
}

/// Sums since the start or since they were cleared.
#[derive(Debug, Clone, Default, Serialize)]
struct Totals {
    requests: u64,
    answered: u64,
    client_left: u64,
    faults: u64,
    aborts: u64,
    connections_opened: u64,
    connections_closed: u64,
}

/// The books of one worker.
#[derive(Debug, Default)]
pub(crate) struct Log {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    entries: VecDeque<Entry>,
    aborts: VecDeque<Abort>,
    totals: Totals,
}

impl Log {
    /// A request has come; its number.
    pub(super) fn arrived<B>(&self, connection: u64, request: &Request<B>) -> u64 {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let headers = request.headers().iter();
        let mut entry = Entry {
            seq: 0,
            connection,
            arrived: unix_seconds(),
            method: request.method().to_string(),
            path: request.uri().to_string(),
            headers: headers.map(|(name, value)| (name.to_string(), text(value.as_bytes()))).collect(),
            body_bytes: 0,
            body_sha256: None,
            body_failed: false,
            status: None,
            sent_bytes: 0,
            end: End::Open,
            fault: None,
            ended: None,
        };
        let inner = &mut *self.inner.lock();
        entry.seq = inner.next;
        inner.next += 1;
        inner.totals.requests += 1;
        push(&mut inner.entries, entry);
        inner.next - 1
    }

    /// So much of a request's body has been read, and its hash if it was all.
    pub(super) fn body(&self, seq: u64, bytes: u64, sha256: Option<String>) {
        self.change(seq, |entry| {
            entry.body_bytes = bytes;
            entry.body_sha256 = sha256;
        });
    }

    /// A request's body has ended in the middle.
    pub(super) fn body_failed(&self, seq: u64) {
        self.change(seq, |entry| entry.body_failed = true);
    }

    /// The head of the answer is made.
    pub(super) fn status(&self, seq: u64, status: u16) {
        self.change(seq, |entry| entry.status = Some(status));
    }

    /// A request has ended.
    pub(super) fn ended(&self, seq: u64, end: End, fault: Option<&'static str>, sent_bytes: u64) {
        let inner = &mut *self.inner.lock();
        let is_unread = inner.entry(seq).is_some_and(|entry| entry.body_failed);
        let end = if is_unread && end == End::Answered { End::ClientLeft } else { end };
        match end {
            End::Open => {}
            End::Answered => inner.totals.answered += 1,
            End::ClientLeft => inner.totals.client_left += 1,
            End::Fault => inner.totals.faults += 1,
        }
        inner.change(seq, |entry| {
            (entry.end, entry.fault, entry.sent_bytes) = (end, fault, sent_bytes);
            entry.ended = Some(unix_seconds());
        });
    }

    /// The body of an abort has been read.
    pub(super) fn aborted(&self, body: &[u8]) {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let abort = Abort {
            arrived: unix_seconds(),
            rid: body["rid"].as_str().map(str::to_owned),
            abort_all: body["abort_all"].as_bool().unwrap_or_default(),
        };
        let inner = &mut *self.inner.lock();
        inner.totals.aborts += 1;
        push(&mut inner.aborts, abort);
    }

    pub(super) fn opened(&self) {
        self.inner.lock().totals.connections_opened += 1;
    }

    pub(super) fn closed(&self) {
        self.inner.lock().totals.connections_closed += 1;
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        let inner = &mut *self.inner.lock();
        inner.entries.clear();
        inner.aborts.clear();
        inner.totals = Totals::default();
    }

    /// The totals alone.
    pub(crate) fn totals(&self) -> Value {
        plain(&self.inner.lock().totals)
    }

    /// The totals, the aborts, and the kept requests from number `since` on.
    pub(crate) fn show(&self, since: u64) -> Value {
        let inner = self.inner.lock();
        let entries: Vec<&Entry> = inner.entries.iter().filter(|entry| entry.seq >= since).collect();
        serde_json::json!({
            "totals": plain(&inner.totals), "aborts": plain(&inner.aborts), "requests": plain(&entries),
        })
    }

    fn change(&self, seq: u64, act: impl FnOnce(&mut Entry)) {
        self.inner.lock().change(seq, act);
    }
}

impl Inner {
    /// An entry that is still kept.
    fn entry(&mut self, seq: u64) -> Option<&mut Entry> {
        let first = self.entries.front()?.seq;
        let place = usize::try_from(seq.checked_sub(first)?).ok()?;
        self.entries.get_mut(place)
    }

    fn change(&mut self, seq: u64, act: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entry(seq) {
            act(entry);
        }
    }
}

fn push<T>(kept: &mut VecDeque<T>, one: T) {
    if kept.len() == MOST_KEPT {
        kept.pop_front();
    }
    kept.push_back(one);
}

fn plain(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("plain data with string keys always serialises")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ten_thousand_are_kept_and_all_are_counted() {
        let log = Log::default();
        for number in 0..10_500 {
            let seq = log.arrived(1, &Request::post("/generate").body(()).unwrap());
            assert_eq!(seq, number);
            log.ended(seq, End::Answered, None, 5);
        }
        // One that is no longer kept.
        log.status(3, 200);
        let shown = log.show(0);
        let requests = shown["requests"].as_array().unwrap();
        assert_eq!((requests.len(), requests[0]["seq"].as_u64()), (10_000, Some(500)));
        assert_eq!(shown["totals"]["answered"], 10_500);
        assert_eq!(log.show(10_499)["requests"].as_array().unwrap().len(), 1);
        log.clear();
        assert_eq!(log.show(0)["totals"]["requests"], 0);
        assert_eq!(log.arrived(1, &Request::get("/x").body(()).unwrap()), 10_500);
    }
}
