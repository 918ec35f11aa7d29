//! Opening what the user names. A pipe that nobody writes to, or a device that never ends, is refused and not waited for.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Largest scenario file, in bytes.
const MOST_BYTES: u64 = 16 << 20;

/// Opens the regular file at `path` for reading.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    // Asked before it is opened, because opening a pipe waits for its writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    File::open(path)
}

/// The text of a scenario file.
pub(super) fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is larger than 16 MB"));
    }
    Ok(text)
}
