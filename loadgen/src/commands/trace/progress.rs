//! Progress through big files, on standard error.

use std::cell::Cell;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::say::note;

/// Smaller files are read before anybody asks.
const BIG_BYTES: u64 = 32 << 20;
/// Redraws per second of the bar.
const REDRAWS_PER_SECOND: u8 = 10;
/// Where there is no terminal, a line is printed this often.
const PLAIN_INTERVAL: Duration = Duration::from_secs(15);

/// Shows how much of them has been read.
pub(super) enum Progress {
    Nothing,
    Bar(ProgressBar),
    Lines { name: String, total: u64, last: Cell<Instant> },
}

impl Progress {
    /// For these files, one after the other.
    pub(super) fn of(files: &[PathBuf]) -> Self {
        let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let total = files.iter().map(size).sum();
        if total < BIG_BYTES {
            return Self::Nothing;
        }
        if !std::io::stderr().is_terminal() {
            let name = files.last().map_or_else(String::new, |path| path.display().to_string());
            return Self::Lines { name, total, last: Cell::new(Instant::now()) };
        }
        let bar = ProgressBar::with_draw_target(
            Some(total),
            ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND),
        );
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes}, {eta} left") {
            bar.set_style(style);
        }
        Self::Bar(bar)
    }

    /// So many bytes have been read.
    pub(super) fn set(&self, bytes: u64) {
        match self {
            Self::Nothing => {}
            Self::Bar(bar) => bar.set_position(bytes),
            Self::Lines { name, total, last } if last.get().elapsed() >= PLAIN_INTERVAL => {
                last.set(Instant::now());
                note(format_args!("{name}: {} of {} MB read", bytes >> 20, total >> 20));
            }
            Self::Lines { .. } => {}
        }
    }

    /// All has been read.
    pub(super) fn done(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
