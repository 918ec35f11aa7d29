//! The channel from requests to the thread that writes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::line::{Line, Look};
use super::salt::Salt;

/// Lines that may wait.
pub(super) const MOST_LINES: usize = 32_768;

/// Bytes of what the lines about prompts hold that may wait.
pub(super) const MOST_BYTES: u64 = 64 << 20;

/// See the module's description. Never waits.
#[derive(Debug)]
pub(crate) struct Tape {
    sender: SyncSender<Item>,
    state: Counters,
    pub(super) salt: Salt,
    /// Looks so far.
    looks: AtomicU64,
}

/// A line, and how many are missing before it.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) missing: u64,
    pub(super) line: Line,
}

/// What is counted, by both sides.
#[derive(Debug, Default)]
struct Counters {
    /// Lines that found no room and are not told in the file yet.
    missing: AtomicU64,
    dropped: AtomicU64,
    written: AtomicU64,
    /// Waiting bytes.
    bytes: AtomicU64,
}

/// How much was recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Lines in the file.
    pub(crate) written: u64,
    /// Lines that are missing there.
    pub(crate) dropped: u64,
}

impl Tape {
    pub(super) fn new(salt: Salt, most_lines: usize) -> (Self, Receiver<Item>) {
        let (sender, receiver) = sync_channel(most_lines);
        (Self { sender, state: Counters::default(), salt, looks: AtomicU64::new(0) }, receiver)
    }

    /// Puts a line on its way, or drops it. To be called under the lock that orders what it tells.
    pub(crate) fn put(&self, line: Line) {
        let bytes = weight(&line);
        if bytes > 0 && self.state.bytes.fetch_add(bytes, Ordering::Relaxed) > MOST_BYTES {
            self.state.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.drop_one(0);
            return;
        }
        // Usually nothing is missing, and a look costs less than an exchange.
        let missing = match self.state.missing.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.state.missing.swap(0, Ordering::Relaxed),
        };
        if self.sender.try_send(Item { missing, line }).is_err() {
            self.state.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.drop_one(missing);
        }
    }

    /// A line is missing, and so many before it.
    fn drop_one(&self, missing: u64) {
        self.state.missing.fetch_add(missing + 1, Ordering::Relaxed);
        self.state.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of the next look, from 1.
    pub(super) fn next_look(&self) -> u64 {
        self.looks.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A line was taken out.
    pub(super) fn taken(&self, line: &Line) {
        self.state.bytes.fetch_sub(weight(line), Ordering::Relaxed);
    }

    /// A line was written, or could not be.
    pub(super) fn wrote(&self, is_written: bool) {
        let counter = if is_written { &self.state.written } else { &self.state.dropped };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Lines that were dropped and that no line told of so far.
    pub(super) fn take_missing(&self) -> u64 {
        self.state.missing.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts { written: read(&self.state.written), dropped: read(&self.state.dropped) }
    }
}

/// Bytes that count.
fn weight(line: &Line) -> u64 {
    match line {
        Line::Look(look) => {
            let Look { tags, starts, .. } = &**look;
            (tags.len() + starts.as_ref().map_or(0, |starts| starts.len())) as u64
        }
        _ => 0,
    }
}
