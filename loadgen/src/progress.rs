//! How far something is, on standard error: a bar for each task on a terminal, lines elsewhere.

use std::io::IsTerminal;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::say::note;

/// Redraws per second of a bar; drawing for every request would itself be measurable.
const REDRAWS_PER_SECOND: u8 = 10;
/// Where there is no terminal, a task that takes long says so this often.
const PLAIN_INTERVAL: Duration = Duration::from_secs(15);

/// Where progress is shown.
pub(crate) enum Display {
    Quiet,
    Plain,
    Bars(MultiProgress),
}

/// The progress of one task, which says at its end what has come of it.
pub(crate) struct Task {
    what: String,
    unit: &'static str,
    total: u64,
    start: Instant,
    finished: AtomicU64,
    shown: Shown,
}

enum Shown {
    Nothing,
    /// When a line was last printed.
    Lines(Mutex<Instant>),
    Bar(ProgressBar, MultiProgress),
}

impl Display {
    pub(crate) fn new(quiet: bool) -> Self {
        if quiet {
            return Self::Quiet;
        }
        if !std::io::stderr().is_terminal() {
            return Self::Plain;
        }
        Self::Bars(MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND)))
    }

    /// The same for tasks whose end is told by other words: nothing is shown where there is no terminal.
    pub(crate) fn of_part(quiet: bool) -> Self {
        Self::new(quiet || !std::io::stderr().is_terminal())
    }

    /// Begins something of about `total` requests, runs or what its unit is; of nothing, nothing is shown.
    pub(crate) fn task(&self, what: impl Into<String>, total: u64, unit: &'static str) -> Task {
        let what = what.into();
        let shown = match self {
            Self::Bars(bars) if total > 0 => Shown::Bar(bars.add(bar(&what, total, unit)), bars.clone()),
            Self::Plain if total > 0 => Shown::Lines(Mutex::new(Instant::now())),
            _ => Shown::Nothing,
        };
        Task { what, unit, total, start: Instant::now(), finished: AtomicU64::new(0), shown }
    }
}

impl Task {
    /// So many have ended.
    pub(crate) fn set(&self, finished: u64) {
        self.finished.store(finished, Ordering::Relaxed);
        self.show();
    }

    /// One more has ended.
    pub(crate) fn step(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
        self.show();
    }

    /// All has ended, with `result`.
    pub(crate) fn done(mut self, result: &str) {
        self.close(|task| format!("{}: {result} ({:.1} s)", task.what, task.start.elapsed().as_secs_f64()));
    }

    fn show(&self) {
        match &self.shown {
            Shown::Nothing => {}
            Shown::Bar(bar, _) => bar.set_position(self.finished.load(Ordering::Relaxed)),
            Shown::Lines(last) => {
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                if last.elapsed() >= PLAIN_INTERVAL {
                    *last = Instant::now();
                    note(self.so_far(self.start.elapsed()));
                }
            }
        }
    }

    /// How far it is, and how long the rest takes at the pace so far, if there is one.
    fn so_far(&self, elapsed: Duration) -> String {
        let (finished, seconds) = (self.finished.load(Ordering::Relaxed), elapsed.as_secs_f64());
        let Self { what, unit, total, .. } = self;
        let so_far = format!("{what}: {finished} of {total} {unit} after {seconds:.0} s");
        if finished == 0 {
            return so_far;
        }
        let left = seconds / finished as f64 * total.saturating_sub(finished) as f64;
        format!("{so_far}, about {left:.0} s left")
    }

    /// Clears the bar and says one last thing, if anything is shown.
    fn close(&mut self, line: impl FnOnce(&Self) -> String) {
        match mem::replace(&mut self.shown, Shown::Nothing) {
            Shown::Nothing => {}
            Shown::Lines(_) => note(line(self)),
            Shown::Bar(bar, bars) => {
                bar.finish_and_clear();
                // Written by us and not by the bars, which leave the cursor at the end of their last line.
                bars.suspend(|| note(line(self)));
            }
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.close(|task| {
            let (finished, seconds) =
                (task.finished.load(Ordering::Relaxed), task.start.elapsed().as_secs_f64());
            format!("{}: {finished} of {} {} in {seconds:.1} s", task.what, task.total, task.unit)
        });
    }
}

fn bar(what: &str, total: u64, unit: &str) -> ProgressBar {
    let bar = ProgressBar::new(total).with_message(what.to_owned());
    let template = format!("{{msg:40}} {{bar:30}} {{pos}}/{{len}} {unit}, {{eta}} left");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_told_by_the_pace_so_far() {
        let task = Display::Quiet.task("sweep", 200, "runs");
        let text = task.so_far(Duration::from_secs(15));
        assert_eq!(text, "sweep: 0 of 200 runs after 15 s", "there is no pace yet");
        task.set(49);
        task.step();
        let text = task.so_far(Duration::from_secs(30));
        assert_eq!(text, "sweep: 50 of 200 runs after 30 s, about 90 s left");
    }
}
