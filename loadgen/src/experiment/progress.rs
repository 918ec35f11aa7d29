//! Progress on standard error: a bar per cell on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::seconds_since;
use crate::say::note;

/// Redraws per second of a bar; drawing for every request would itself be measurable.
const REDRAWS_PER_SECOND: u8 = 10;
/// Where there is no terminal, a cell that takes long says so this often.
const PLAIN_INTERVAL: Duration = Duration::from_secs(15);

/// Where progress is shown.
pub(super) enum Display {
    Quiet,
    Plain,
    Bars(MultiProgress),
}

/// The progress of one cell.
pub(super) struct Task {
    label: String,
    total: u64,
    start: Instant,
    shown: Shown,
}

enum Shown {
    Nothing,
    /// When a line was last printed.
    Lines(Mutex<Instant>),
    Bar(ProgressBar, MultiProgress),
}

impl Display {
    pub(super) fn new(quiet: bool) -> Self {
        if quiet {
            return Self::Quiet;
        }
        if !std::io::stderr().is_terminal() {
            return Self::Plain;
        }
        Self::Bars(MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND)))
    }

    /// Begins a cell of about `total` requests.
    pub(super) fn task(&self, label: &str, total: u64) -> Task {
        let shown = match self {
            Self::Quiet => Shown::Nothing,
            Self::Plain => Shown::Lines(Mutex::new(Instant::now())),
            Self::Bars(bars) => Shown::Bar(bars.add(bar(label, total)), bars.clone()),
        };
        Task { label: label.to_owned(), total, start: Instant::now(), shown }
    }
}

impl Task {
    /// `finished` requests have ended.
    pub(super) fn set(&self, finished: u64) {
        match &self.shown {
            Shown::Nothing => {}
            Shown::Bar(bar, _) => bar.set_position(finished),
            Shown::Lines(last) => {
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                if last.elapsed() >= PLAIN_INTERVAL {
                    *last = Instant::now();
                    let (label, total, so_far) = (&self.label, self.total, seconds_since(self.start));
                    note(format_args!("{label}: {finished} of {total} requests after {so_far:.0} s"));
                }
            }
        }
    }

    /// The cell has ended with `result`.
    pub(super) fn done(&self, result: &str) {
        let line = format!("{}: {result} ({:.1} s)", self.label, seconds_since(self.start));
        match &self.shown {
            Shown::Nothing => {}
            Shown::Lines(_) => note(line),
            Shown::Bar(bar, bars) => {
                bar.finish_and_clear();
                // Written by us and not by the bars, which leave the cursor at the end of their last line.
                bars.suspend(|| note(line));
            }
        }
    }
}

fn bar(label: &str, total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total).with_message(label.to_owned());
    if let Ok(style) = ProgressStyle::with_template("{msg:40} {bar:30} {pos}/{len} requests, {eta} left") {
        bar.set_style(style);
    }
    bar
}
