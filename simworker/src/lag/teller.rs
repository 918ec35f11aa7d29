//! The line that says that workers are late.
//!
//! Lags are noted while a worker's lock is held, and whoever reads the line may stop reading. So a thread of its own
//! writes; what it has no time for is not written.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use super::window::Late;
use crate::clock::ScaledClock;

/// The least time from one line to the next.
const LINES_APART: Duration = Duration::from_secs(10);
/// Lines that wait while one is being written; who does not read what the process says still has its metrics.
const MOST_WAITING: usize = 4;

/// Tells people that workers are late, all workers of a process together.
#[derive(Debug)]
pub(crate) struct Teller {
    clock: ScaledClock,
    /// When the next line may come, in real time.
    next_ns: AtomicU64,
    lines: SyncSender<String>,
}

impl Teller {
    /// One that writes into `sink` from a thread of its own, which ends with the teller.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(clock: ScaledClock, sink: impl Write + Send + 'static) -> io::Result<Self> {
        let (lines, waiting) = sync_channel(MOST_WAITING);
        thread::Builder::new().name("late".into()).spawn(move || write(&waiting, sink))?;
        Ok(Self { clock, next_ns: AtomicU64::new(0), lines })
    }

    /// Has the line written, unless there was one a short while ago. Never waits.
    pub(super) fn tell(&self, index: u32, late: &Late) {
        if self.may_tell(self.clock.real_ns()) {
            // One that is lost is as good as one that nobody reads.
            let _ = self.lines.try_send(format!("simworker: worker {index} {late}\n"));
        }
    }

    fn may_tell(&self, now_ns: u64) -> bool {
        let next_ns = now_ns + LINES_APART.as_nanos() as u64;
        let earlier = |next: u64| (next <= now_ns).then_some(next_ns);
        self.next_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, earlier).is_ok()
    }
}

fn write(lines: &Receiver<String>, mut sink: impl Write) {
    while let Ok(line) = lines.recv() {
        let _ = sink.write_all(line.as_bytes()).and_then(|()| sink.flush());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::super::Lag;
    use super::*;

    /// Tells when it is written to, and takes nothing before it may.
    struct Pipe {
        begun: mpsc::Sender<String>,
        may: Receiver<()>,
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.begun.send(String::from_utf8_lossy(bytes).into_owned());
            // Gone means for ever free to write.
            let _ = self.may.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_ten_seconds_apart() {
        let teller = Teller::start(ScaledClock::start(1.0), io::sink()).unwrap();
        let seconds = [0.0, 0.1, 9.9, 10.0, 19.0, 20.5, 21.0];
        let told = seconds.map(|at: f64| teller.may_tell((at * 1e9) as u64));
        assert_eq!(told, [true, false, false, true, false, true, false]);
    }

    #[test]
    fn a_reader_that_stops_reading_stops_no_worker() {
        let (begun, written) = mpsc::channel();
        let (allow, may) = mpsc::channel();
        let clock = ScaledClock::start(1.0);
        let teller = Arc::new(Teller::start(clock, Pipe { begun, may }).unwrap());
        let lag = Lag::new(clock, 7, Some(Arc::clone(&teller)));
        // Far more lines than the channel holds. With a write under the lock the first would never return.
        for second in 1..=3 * MOST_WAITING as u64 {
            teller.next_ns.store(0, Ordering::Relaxed);
            let late_ns = 50_000_000;
            lag.observe(second * 1_000_000_000, |books| {
                (0..32).for_each(|_| books.window.step(late_ns, 10_000_000, 1));
            });
        }
        let line = written.recv().unwrap();
        assert!(line.starts_with("simworker: worker 7 is late"), "{line}");
        assert!(lag.report().saturated_ns > 0, "the worker goes on and counts");
        drop((allow, lag, teller));
        // The thread writes what waited and ends.
        assert!(written.iter().count() <= MOST_WAITING + 1);
    }
}
