//! How far a search is, on standard error: a bar on a terminal, a line now and then elsewhere.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::say::note;

/// Where there is no terminal, this often a line is printed.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);

/// The progress of a known number of runs.
#[derive(Debug)]
pub struct Progress {
    what: String,
    total: usize,
    start: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    done: usize,
    shown: Shown,
}

#[derive(Debug)]
enum Shown {
    Nothing,
    /// When a line was last printed.
    Lines(Instant),
    Bar(ProgressBar),
}

impl Progress {
    /// Begins `total` runs of something; `quiet` shows nothing.
    #[must_use]
    pub fn new(what: &str, total: usize, quiet: bool) -> Self {
        let shown = match () {
            () if quiet || total == 0 => Shown::Nothing,
            () if std::io::stderr().is_terminal() => Shown::Bar(bar(what, total as u64)),
            () => Shown::Lines(Instant::now()),
        };
        let state = Mutex::new(State { done: 0, shown });
        Self { what: what.to_owned(), total, start: Instant::now(), state }
    }

    /// The same for runs whose end is told by other words: nothing is shown where there is no terminal.
    #[must_use]
    pub fn of_part(what: &str, total: usize, quiet: bool) -> Self {
        Self::new(what, total, quiet || !std::io::stderr().is_terminal())
    }

    /// A run has ended.
    pub(super) fn step(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.done += 1;
        let done = state.done;
        match &mut state.shown {
            Shown::Nothing => {}
            Shown::Bar(bar) => bar.set_position(done as u64),
            Shown::Lines(last) if last.elapsed() >= PLAIN_INTERVAL => {
                *last = Instant::now();
                note(line(&self.what, done, self.total, self.start.elapsed()));
            }
            Shown::Lines(_) => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Shown::Bar(bar) = &state.shown {
            bar.finish_and_clear();
        }
        if !matches!(state.shown, Shown::Nothing) {
            let seconds = self.start.elapsed().as_secs_f64();
            note(format_args!("{}: {} of {} runs in {seconds:.1} s", self.what, state.done, self.total));
        }
    }
}

/// How far it is, and how long the rest takes at the pace so far.
fn line(what: &str, done: usize, total: usize, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    let left = seconds / done.max(1) as f64 * total.saturating_sub(done) as f64;
    format!("{what}: {done} of {total} runs after {seconds:.0} s, about {left:.0} s left")
}

fn bar(what: &str, total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total).with_message(what.to_owned());
    if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} runs, {eta} left") {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_told_by_the_pace_so_far() {
        let text = line("sweep", 50, 200, Duration::from_secs(30));
        assert_eq!(text, "sweep: 50 of 200 runs after 30 s, about 90 s left");
    }
}
