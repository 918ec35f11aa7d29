//! Lines on their way to one place, written by a thread of its own: whoever has something to say is never held up by who
//! reads it, or does not. What finds no room is lost, and that is told once there is room again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use memchr::memrchr;
use parking_lot::{Condvar, Mutex};

/// Bytes that may wait; as many again are being written.
const CAPACITY: usize = 1 << 20;

/// What may be waiting for the lines of [`Outlet::pass`] to come in: the rest is for who cannot wait.
const SHARE: usize = CAPACITY / 2;

/// Lines go out together up to this many bytes: what Linux writes to a pipe in one piece, whoever else writes there
/// (`PIPE_BUF`).
const TOGETHER: usize = 4096;

/// How long a place may take for one write before those who can wait for it do so no longer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Lines that wait for the thread that writes them to one place.
#[derive(Debug)]
pub(super) struct Outlet {
    state: Mutex<State>,
    /// Lines have come, or some have been written.
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<u8>,
    /// Lines that there was no room for, since that was last told.
    lost: u64,
    /// Something is being written.
    is_busy: bool,
    /// Writes that are done.
    written: u64,
    /// Somebody has waited in vain, and nothing has been written since.
    is_stuck: bool,
}

impl Outlet {
    /// Whole lines, ended, are written by `write`, one or more in a call. `reason` says why some may be lost.
    pub(super) fn start(
        reason: &'static str,
        write: impl FnMut(&[u8]) + Send + 'static,
    ) -> std::io::Result<Arc<Self>> {
        let outlet = Arc::new(Self { state: Mutex::default(), news: Condvar::new() });
        let own = Arc::clone(&outlet);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || own.run(reason, write))?;
        Ok(outlet)
    }

    /// Takes a line if there is room for it. Never waits.
    pub(super) fn offer(&self, line: &[u8]) {
        self.state.lock().take(line, CAPACITY);
        self.news.notify_all();
    }

    /// Takes a line, and waits for room as long as there is hope for it.
    pub(super) fn pass(&self, line: &[u8]) {
        let mut state = self.state.lock();
        let (mut written, mut until) = (state.written, Instant::now() + PATIENCE);
        while !state.has_room(line, SHARE) && !state.is_stuck {
            let timed_out = self.news.wait_until(&mut state, until).timed_out();
            if state.written != written {
                (written, until) = (state.written, Instant::now() + PATIENCE);
            } else if timed_out {
                state.is_stuck = true;
            }
        }
        state.take(line, SHARE);
        self.news.notify_all();
    }

    /// Waits until everything is written, but not longer than until then.
    pub(super) fn flush(&self, until: Instant) {
        let mut state = self.state.lock();
        while !state.is_done() && !self.news.wait_until(&mut state, until).timed_out() {}
    }

    fn run(&self, reason: &str, mut write: impl FnMut(&[u8])) {
        let mut lines = Vec::new();
        loop {
            let mut state = self.state.lock();
            while state.is_done() {
                self.news.wait(&mut state);
            }
            std::mem::swap(&mut lines, &mut state.waiting);
            let lost = std::mem::take(&mut state.lost);
            state.is_busy = true;
            drop(state);
            for piece in pieces(&lines) {
                write(piece);
                self.state.lock().note_written();
                self.news.notify_all();
            }
            lines.clear();
            if lost > 0 {
                write(format!("router: lines lost because {reason}: {lost}\n").as_bytes());
            }
            self.state.lock().is_busy = false;
            self.news.notify_all();
        }
    }
}

impl State {
    fn has_room(&self, line: &[u8], capacity: usize) -> bool {
        self.waiting.len() + line.len() <= capacity
    }

    fn take(&mut self, line: &[u8], capacity: usize) {
        if self.has_room(line, capacity) {
            self.waiting.extend_from_slice(line);
        } else {
            self.lost += 1;
        }
    }

    fn note_written(&mut self) {
        self.written += 1;
        self.is_stuck = false;
    }

    fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.lost == 0 && !self.is_busy
    }
}

/// Whole lines, as many together as may be; a line that is longer comes alone.
fn pieces(mut lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let fitting = memrchr(b'\n', &lines[..lines.len().min(TOGETHER)]);
        let end = fitting.or_else(|| memchr::memchr(b'\n', lines)).map_or(lines.len(), |end| end + 1);
        let (piece, rest) = lines.split_at(end);
        lines = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    /// A place whose every write waits until the test takes it.
    fn outlet() -> (Arc<Outlet>, Receiver<String>) {
        let (give, take) = std::sync::mpsc::sync_channel(0);
        let write = move |bytes: &[u8]| {
            // Nobody takes what comes after the test.
            let _ = give.send(String::from_utf8(bytes.to_vec()).expect("text"));
        };
        (Outlet::start("of the test", write).expect("a thread"), take)
    }

    /// Has the writer hold one line in its hands, and the queue empty.
    fn occupy(outlet: &Outlet) {
        outlet.offer(b"first\n");
        let is_held = |state: &State| state.is_busy && state.waiting.is_empty();
        while !is_held(&outlet.state.lock()) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_says_something_is_not_held_up_and_what_is_lost_is_told() {
        let (outlet, taken) = outlet();
        occupy(&outlet);
        let long = format!("{}\n", "x".repeat(CAPACITY - 1));
        for line in [long.as_str(), "lost\n", "lost too\n"] {
            outlet.offer(line.as_bytes());
        }
        let next = || taken.recv_timeout(SOON).expect("a line");
        assert_eq!(
            [next(), next(), next()],
            ["first\n", &long, "router: lines lost because of the test: 2\n"]
        );
        outlet.offer(b"heard\n");
        assert_eq!(next(), "heard\n");
    }

    #[test]
    fn who_can_wait_does_so_until_it_is_in_vain() {
        let (outlet, taken) = outlet();
        occupy(&outlet);
        let line = format!("{}\n", "x".repeat(TOGETHER - 1));
        let (told, passed) = channel();
        let passing = Arc::clone(&outlet);
        let speaker = std::thread::spawn(move || {
            for _ in 0..2 * SHARE / TOGETHER {
                passing.pass(line.as_bytes());
            }
            told.send(()).expect("the test");
        });
        // Slow as the reader is, it gets everything.
        let mut lines = 0;
        while lines < 1 + 2 * SHARE / TOGETHER {
            let line = taken.recv_timeout(SOON).expect("a line");
            assert!(!line.starts_with("router:"), "{line}");
            lines += 1;
        }
        passed.recv_timeout(SOON).expect("an end");
        speaker.join().expect("no panic");
        // Nobody reads: what comes is dropped, and there is room for who cannot wait.
        occupy(&outlet);
        let half = format!("{}\n", "x".repeat(SHARE - 1));
        outlet.pass(half.as_bytes());
        for _ in 0..3 {
            outlet.pass(b"lost\n");
        }
        outlet.offer(b"own\n");
        let state = outlet.state.lock();
        assert!(state.is_stuck && state.lost == 3 && state.waiting.len() == SHARE + 4, "{}", state.lost);
    }

    #[test]
    fn the_last_lines_are_waited_for_but_not_for_ever() {
        let (outlet, taken) = outlet();
        outlet.offer(b"a\n");
        outlet.flush(Instant::now());
        assert!(!outlet.state.lock().is_done());
        let reader = std::thread::spawn(move || taken.recv_timeout(SOON).expect("a line"));
        outlet.flush(Instant::now() + SOON);
        assert!(outlet.state.lock().is_done());
        assert_eq!(reader.join().expect("no panic"), "a\n");
    }

    #[test]
    fn lines_go_out_whole() {
        let long = format!("{}\n", "x".repeat(TOGETHER));
        let short = "y\n".repeat(TOGETHER / 2 + 1);
        let lines = format!("{long}{short}z");
        let lengths: Vec<usize> = pieces(lines.as_bytes()).map(<[u8]>::len).collect();
        assert_eq!(lengths, [TOGETHER + 1, TOGETHER, 2, 1]);
        assert_eq!(pieces(b"").count(), 0);
    }
}
