//! Where log lines go: to standard error, and into a file a day where there is a directory for that.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::access_log::rfc3339;

const DAY_MS: u64 = 86_400_000;

/// Of the process, as standard error is.
static KEPT: OnceLock<Mutex<Daily>> = OnceLock::new();

/// Takes whole lines, one per call.
#[derive(Debug)]
pub(crate) struct Writer;

/// `router.2026-01-31`, by the date in UTC.
#[derive(Debug)]
struct Daily {
    directory: PathBuf,
    day: u64,
    file: File,
}

/// Keeps all lines from now on in `directory` too, which is made if it is not there.
///
/// # Errors
/// The operating system refuses.
pub(crate) fn keep_in(directory: &Path) -> io::Result<()> {
    let daily = Daily::open(directory, unix_ms() / DAY_MS)?;
    // Set already when the router is not alone in its process; then the first one stands.
    let _ = KEPT.set(Mutex::new(daily));
    Ok(())
}

/// Writes a line with its end. Where it cannot be written there is nobody to tell.
pub(crate) fn write(line: &[u8]) {
    let _ = io::stderr().lock().write_all(line);
    if let Some(daily) = KEPT.get() {
        let _ = daily.lock().write(unix_ms() / DAY_MS, line);
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

// === impl Writer ===

impl Write for Writer {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        write(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// === impl Daily ===

impl Daily {
    fn open(directory: &Path, day: u64) -> io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        let date: String = rfc3339(day * DAY_MS).chars().take("2026-01-31".len()).collect();
        let path = directory.join(format!("router.{date}"));
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { directory: directory.to_owned(), day, file })
    }

    /// Where a new day's file cannot be opened, the old one goes on.
    fn write(&mut self, day: u64, line: &[u8]) -> io::Result<()> {
        if day != self.day
            && let Ok(next) = Self::open(&self.directory, day)
        {
            *self = next;
        }
        self.file.write_all(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_day_has_its_file_and_old_lines_stay() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("made/for/it");
        let mut daily = Daily::open(&path, 0).expect("a file");
        for (day, line) in [(0, "a\n"), (0, "b\n"), (1, "c\n")] {
            daily.write(day, line.as_bytes()).expect("written");
        }
        let mut again = Daily::open(&path, 1).expect("the same file");
        again.write(1, b"d\n").expect("written");
        let read = |name: &str| std::fs::read_to_string(path.join(name)).expect(name);
        assert_eq!(read("router.1970-01-01"), "a\nb\n");
        assert_eq!(read("router.1970-01-02"), "c\nd\n");
    }
}
