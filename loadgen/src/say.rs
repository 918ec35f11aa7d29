//! What is told: results on standard output, everything else on standard error.
//!
//! A reader that has gone away is no reason to fail: the results are written to their files all the same. Standard output that
//! fails otherwise (a full device) is remembered, so that the end of the program can tell it. Nobody else prints: `print!` and its
//! like panic where nobody reads.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

/// Why standard output failed first.
static FAILED: Mutex<Option<String>> = Mutex::new(None);

/// Prints results.
pub(crate) fn say(text: impl Display) {
    let mut stdout = io::stdout().lock();
    let written = write!(stdout, "{text}").and_then(|()| stdout.flush());
    if let Err(error) = written.or_else(forgive) {
        FAILED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error.to_string());
    }
}

/// Prints a line that is no result: progress, warnings, mistakes. There is nobody to tell that it cannot be printed.
pub(crate) fn note(line: impl Display) {
    let _ = write_line(&mut io::stderr().lock(), line);
}

/// Why results could not be printed, if that was not for want of a reader.
pub(crate) fn failed() -> Option<String> {
    FAILED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// In one write, so that lines of several processes do not mix.
fn write_line(to: &mut impl Write, line: impl Display) -> io::Result<()> {
    to.write_all(format!("{line}\n").as_bytes())
}

fn forgive(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_has_gone_is_forgiven_and_a_full_device_is_not() {
        assert!(forgive(io::ErrorKind::BrokenPipe.into()).is_ok());
        assert!(forgive(io::ErrorKind::StorageFull.into()).is_err());
    }
}
