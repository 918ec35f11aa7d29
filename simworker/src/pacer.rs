//! The pacer: one OS thread that drives the engines of all workers to their deadlines.
//!
//! Deadlines are absolute, so lateness of one wake-up does not add to the next. HTTP tasks change engines under the
//! worker's own lock and ring the [`Alarm`] when that made a deadline earlier than what the pacer sleeps to.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use crate::clock::ScaledClock;
use crate::worker::Worker;

/// What wakes the pacer.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    state: Mutex<AlarmState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct AlarmState {
    /// Engine time the pacer sleeps to; 0 while it is awake, because it looks at all deadlines before it sleeps.
    until_ns: u64,
    stop: bool,
}

impl Alarm {
    /// Says that something is due at `deadline_ns`.
    pub(crate) fn ring(&self, deadline_ns: u64) {
        let mut state = self.state.lock();
        if deadline_ns < state.until_ns {
            state.until_ns = deadline_ns;
            self.changed.notify_one();
        }
    }

    fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_one();
    }
}

/// The running thread; dropping it stops and joins it.
#[derive(Debug)]
pub(crate) struct Pacer {
    alarm: Arc<Alarm>,
    thread: Option<JoinHandle<()>>,
}

impl Pacer {
    /// Starts the thread.
    pub(crate) fn start(
        clock: ScaledClock,
        alarm: Arc<Alarm>,
        workers: Vec<Arc<Worker>>,
    ) -> io::Result<Self> {
        let shared = Arc::clone(&alarm);
        let thread =
            std::thread::Builder::new().name("pacer".into()).spawn(move || run(clock, &shared, &workers))?;
        Ok(Self { alarm, thread: Some(thread) })
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.alarm.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by its own hook.
            let _ = thread.join();
        }
    }
}

fn run(clock: ScaledClock, alarm: &Alarm, workers: &[Arc<Worker>]) {
    loop {
        for worker in workers {
            if worker.deadline_ns() <= clock.now_ns() {
                worker.catch_up();
            }
        }
        let mut state = alarm.state.lock();
        if state.stop {
            return;
        }
        // Read under the alarm's lock: whoever changes a deadline from now on finds `until_ns` set and rings.
        let next_ns = workers.iter().map(|worker| worker.deadline_ns()).min().unwrap_or(u64::MAX);
        if next_ns <= clock.now_ns() {
            continue;
        }
        state.until_ns = next_ns;
        match clock.instant(next_ns) {
            Some(instant) => drop(alarm.changed.wait_until(&mut state, instant)),
            None => alarm.changed.wait(&mut state),
        }
        state.until_ns = 0;
    }
}
