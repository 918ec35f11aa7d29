//! What a scenario's other files hold, in short: traces, windows, lists of lengths. A name says little, for a file can change
//! under it.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use super::input;

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 16;

/// The size of a file and a hash of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Contents {
    bytes: u64,
    hash: u64,
}

impl Contents {
    /// Of the file at `path`, whatever its size: no more than a part of it is in memory.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let mut file = input::open(path)?;
        let (mut hash, mut bytes, mut chunk) = (Xxh3::new(), 0, vec![0; CHUNK]);
        loop {
            match file.read(&mut chunk) {
                Ok(0) => return Ok(Self { bytes, hash: hash.digest() }),
                Ok(read) => {
                    hash.update(&chunk[..read]);
                    bytes += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes {:016x}", self.bytes, self.hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_count_and_the_name_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let of = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            Contents::of(&path).unwrap()
        };
        let mut long = vec![7; 3 * CHUNK + 1];
        let first = of("a", &long);
        assert_eq!(first, of("b", &long));
        *long.last_mut().unwrap() = 8;
        assert_ne!(first, of("a", &long), "the last byte of the last part");
        assert_ne!(of("a", b""), of("a", b"\n"));
        assert!(Contents::of(&dir.path().join("none")).is_err());
    }
}
