//! Where log lines go: to standard error, and into a file a day where there is a directory for that.
//!
//! Whoever reads standard error must not hold up requests by not doing so: what it does not take in time is lost, and that
//! is told once it takes lines again. A file is not waited for more than any other.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::access_log::rfc3339;

const DAY_MS: u64 = 86_400_000;

/// How long a reader of standard error may be slow, in nanoseconds; from then on, it is not waited for.
const PATIENCE_NS: u32 = 100_000_000;

/// What a pipe that takes anything takes at once: `PIPE_BUF` of Linux.
const PIECE: usize = 4096;

/// Of the process, as standard error is.
static HEARD: Mutex<Hearing> = Mutex::new(Hearing { lost: 0, torn: false });
static KEPT: OnceLock<Mutex<Daily>> = OnceLock::new();

/// Takes whole lines, one per call.
#[derive(Debug)]
pub(crate) struct Writer;

/// What became of lines on their way to a reader.
#[derive(Debug, Default)]
struct Hearing {
    /// Lines in a row that it did not take.
    lost: u64,
    /// It took only the beginning of the first of them.
    torn: bool,
}

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

/// Whether [`keep_in`] would work, as far as that can be told without a change of anything.
///
/// # Errors
/// The operating system's.
pub(crate) fn can_keep_in(directory: &Path) -> io::Result<()> {
    use rustix::fs::{Access, access};
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

/// Writes a line with its end. Where it cannot be written there is nobody to tell.
pub(crate) fn write(line: &[u8]) {
    to_stderr(line);
    if let Some(daily) = KEPT.get() {
        let _ = daily.lock().write(unix_ms() / DAY_MS, line);
    }
}

/// Writes a line with its end to standard error alone.
pub(crate) fn to_stderr(line: &[u8]) {
    HEARD.lock().write(&mut io::stderr(), line);
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

// === impl Hearing ===

impl Hearing {
    fn write(&mut self, to: &mut (impl Write + AsFd), line: &[u8]) {
        let patience_ns = if self.lost == 0 { PATIENCE_NS } else { 0 };
        if !takes(to, patience_ns) {
            self.lost += 1;
            return;
        }
        if self.lost > 0 {
            let (end, lost) = (if self.torn { "\n" } else { "" }, self.lost);
            *self = Self::default();
            let _ = writeln!(to, "{end}router: lines lost because nobody read standard error: {lost}");
        }
        for piece in line.chunks(PIECE) {
            if !takes(to, PATIENCE_NS) {
                *self = Self { lost: 1, torn: true };
                return;
            }
            // Nobody is there any more, and nobody to tell.
            let _ = to.write_all(piece);
        }
    }
}

/// Whether a piece can be written without waiting, now or within this time.
fn takes(to: &impl AsFd, patience_ns: u32) -> bool {
    let patience = Timespec { tv_sec: 0, tv_nsec: patience_ns.into() };
    loop {
        match poll(&mut [PollFd::new(to, PollFlags::OUT)], Some(&patience)) {
            Err(Errno::INTR) => {}
            // What cannot be asked is written to.
            answer => return answer != Ok(0),
        }
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

    #[test]
    fn a_reader_that_does_not_read_is_told_what_it_lost() {
        let (mut from, mut to) = io::pipe().expect("a pipe");
        let mut hearing = Hearing::default();
        let line = [vec![b'x'; 99_999], vec![b'\n']].concat();
        // A pipe takes 64 KiB.
        for line in [&b"first\n"[..], &line, b"lost\n", b"lost too\n"] {
            hearing.write(&mut to, line);
        }
        assert!(hearing.torn && hearing.lost == 3, "{hearing:?}");
        let mut early = vec![0; 60_000];
        io::Read::read_exact(&mut from, &mut early).expect("the beginning");
        hearing.write(&mut to, b"heard\n");
        drop(to);
        let late = io::read_to_string(from).expect("text");
        let said = late.trim_start_matches('x');
        assert_eq!(said, "\nrouter: lines lost because nobody read standard error: 3\nheard\n");
        assert!(early.starts_with(b"first\nxxx"));
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
