//! Where log lines go: to standard error, and into a file a day where there is a directory for that.
//!
//! Whoever reads standard error must not hold up requests by not doing so, and neither must a file: both are written by
//! threads of their own. What does not get through in time is lost, and that is told once lines get through again.

mod outlet;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use self::outlet::Outlet;
use crate::access_log::rfc3339;

const DAY_MS: u64 = 86_400_000;

/// Between two tries at a pipe that is full and does not block.
const FULL_PAUSE: Duration = Duration::from_millis(10);

/// How long the last lines are waited for.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Of the process, as standard error is. Nothing where there cannot be a thread for it: then there will be no router.
static HEARD: LazyLock<Option<Arc<Outlet>>> = LazyLock::new(|| {
    // Where nobody is there any more, there is nobody to tell.
    let write = |lines: &[u8]| write_whole(&mut io::stderr(), lines);
    Outlet::start("nobody read standard error", write).ok()
});
static KEPT: OnceLock<Arc<Outlet>> = OnceLock::new();

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
    let mut daily = Daily::open(directory, unix_ms() / DAY_MS)?;
    // What cannot be written to a file stands on standard error.
    let write = move |lines: &[u8]| drop(daily.write(unix_ms() / DAY_MS, lines));
    // Set already when the router is not alone in its process; then the first one stands.
    let _ = KEPT.set(Outlet::start("the file was not written in time", write)?);
    Ok(())
}

/// Whether [`keep_in`] would work, as far as that can be told without a change of anything.
///
/// # Errors
/// The operating system's.
pub(crate) fn can_keep_in(directory: &Path) -> io::Result<()> {
    use rustix::fs::{Access, access};
    use rustix::io::Errno;
    let file = Daily::path(directory, unix_ms() / DAY_MS);
    if file.exists() {
        return Ok(access(&file, Access::WRITE_OK)?);
    }
    // What is not there is made.
    let there = directory.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    if !there.is_dir() {
        return Err(Errno::NOTDIR.into());
    }
    Ok(access(there, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Has a line with its end written. Never waits.
pub(crate) fn write(line: &[u8]) {
    HEARD.iter().chain(KEPT.get()).for_each(|outlet| outlet.offer(line));
}

/// Has a line with its end written to standard error alone, and waits for that if there are many of them. Not for a thread
/// that serves.
pub(crate) fn pass(line: &[u8]) {
    HEARD.iter().for_each(|outlet| outlet.pass(line));
}

/// Waits for what was said last, a moment at most. To be done before the process ends.
pub(crate) fn flush() {
    let until = Instant::now() + LAST_LINES;
    HEARD.iter().chain(KEPT.get()).for_each(|outlet| outlet.flush(until));
}

/// Writes everything, also where standard error is a pipe that somebody else has set not to block.
fn write_whole(out: &mut impl Write, mut lines: &[u8]) {
    while !lines.is_empty() {
        match out.write(lines) {
            Ok(0) => return,
            Ok(count) => lines = &lines[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(FULL_PAUSE),
            Err(_) => return,
        }
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
        let file = OpenOptions::new().create(true).append(true).open(Self::path(directory, day))?;
        Ok(Self { directory: directory.to_owned(), day, file })
    }

    fn path(directory: &Path, day: u64) -> PathBuf {
        let date: String = rfc3339(day * DAY_MS).chars().take("2026-01-31".len()).collect();
        directory.join(format!("router.{date}"))
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

    /// A pipe that takes three bytes at a time, every other time.
    #[derive(Default)]
    struct Narrow(Vec<u8>, bool);

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(3);
            self.0.extend(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_pipe_that_does_not_block_gets_whole_lines() {
        let mut pipe = Narrow::default();
        write_whole(&mut pipe, b"one line\nand another\n");
        assert_eq!(pipe.0, b"one line\nand another\n");
    }

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
