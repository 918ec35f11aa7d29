//! How far a worker is behind its own engine time, and whether it says so.
//!
//! The engine's steps have exact times, however late they are computed, and tokens that are due while a frame is on its
//! way are merged into the next. So a machine that is too slow would show only as latencies that the engine does not
//! have. It is measured at two places: when a step has been carried to the readers (the pacer's lag), and when a frame
//! that a connection waited for is handed to it (the frame's lag, which includes the former). A frame that the
//! connection did not wait for tells of a slow reader, and counts for nothing; only the one that it waited for when the
//! reader stopped is late by the reader's pause.

mod metrics;
mod teller;
mod window;

use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::ScaledClock;
use crate::latency::Histogram;
pub(crate) use metrics::render;
pub(crate) use teller::Teller;
use window::Window;

/// Upper bounds of lags, in seconds.
const BOUNDS: &[f64] =
    &[0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];

/// What a step told about all who got a token from it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stepped {
    /// Engine time of the step.
    pub(crate) at_ns: u64,
    /// Sum of the times since the former token of each request.
    pub(crate) gaps_ns: u64,
    /// How many requests that were.
    pub(crate) tokens: u64,
}

/// The lag of one worker.
#[derive(Debug)]
pub(crate) struct Lag {
    clock: ScaledClock,
    index: u32,
    /// None for a worker that shows its lag in its metrics only.
    teller: Option<Arc<Teller>>,
    books: Mutex<Books>,
}

#[derive(Debug, Clone)]
struct Books {
    steps: Histogram,
    frames: Histogram,
    window: Window,
    saturated_ns: u64,
}

/// The lag so far.
#[derive(Debug, Clone)]
pub(crate) struct LagReport {
    pub(crate) steps: Histogram,
    pub(crate) frames: Histogram,
    /// The last second was late.
    pub(crate) is_saturated: bool,
    /// Real time that was late.
    pub(crate) saturated_ns: u64,
}

impl Lag {
    pub(crate) fn new(clock: ScaledClock, index: u32, teller: Option<Arc<Teller>>) -> Self {
        let histogram = || Histogram::new(BOUNDS);
        let books = Books {
            steps: histogram(),
            frames: histogram(),
            window: Window::new(clock.real_ns()),
            saturated_ns: 0,
        };
        Self { clock, index, teller, books: Mutex::new(books) }
    }

    /// A step has been carried to its readers.
    pub(crate) fn step(&self, step: Stepped) {
        let now_ns = self.clock.real_ns();
        let late_ns = self.late_ns(now_ns, step.at_ns);
        let gaps_ns = (step.gaps_ns as f64 / self.clock.speed()) as u64;
        self.observe(now_ns, |books| {
            books.steps.observe(late_ns, 1);
            books.window.step(late_ns, gaps_ns, step.tokens);
        });
    }

    /// A frame that was due at this engine time, and waited for, is handed to its connection.
    pub(crate) fn frame(&self, due_ns: u64) {
        let now_ns = self.clock.real_ns();
        let late_ns = self.late_ns(now_ns, due_ns);
        self.observe(now_ns, |books| {
            books.frames.observe(late_ns, 1);
            books.window.frame(late_ns);
        });
    }

    /// Real time since an engine time.
    fn late_ns(&self, now_ns: u64, engine_ns: u64) -> u64 {
        now_ns.saturating_sub((engine_ns as f64 / self.clock.speed()) as u64)
    }

    fn observe(&self, now_ns: u64, note: impl FnOnce(&mut Books)) {
        let late = {
            let mut books = self.books.lock();
            note(&mut books);
            let closed = books.window.close(now_ns);
            if let Some(late) = &closed {
                books.saturated_ns += late.lasted_ns;
            }
            closed
        };
        if let (Some(teller), Some(late)) = (&self.teller, late) {
            teller.tell(self.index, &late);
        }
    }

    /// The lag so far.
    pub(crate) fn report(&self) -> LagReport {
        let Books { steps, frames, window, saturated_ns } = self.books.lock().clone();
        let is_saturated = window.was_late(self.clock.real_ns());
        LagReport { steps, frames, is_saturated, saturated_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_real_time() {
        let clock = ScaledClock::start(0.5);
        let lag = Lag::new(clock, 0, None);
        assert_eq!(lag.late_ns(3_000, 1_000), 1_000, "half speed: engine time 1000 is real time 2000");
        assert_eq!(lag.late_ns(1_000, 1_000), 0);
        lag.frame(0);
        lag.step(Stepped::default());
        let report = lag.report();
        assert_eq!((report.frames.count(), report.steps.count(), report.saturated_ns), (1, 1, 0));
    }
}
