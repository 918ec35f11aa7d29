//! Recording what the decision core is told and what it decides (`--record-trace`), so that another process can tell it the
//! same again.
//!
//! Owns: the file, the thread that writes it, and the channel between requests and that thread. Whatever changes the core or
//! the prefix index is put into the channel under the lock under which it happens, so the lines stand in the order that
//! mattered. Putting something there copies a few words and wakes nobody; text is hashed outside of all locks. What finds no
//! room is dropped and counted, in the metrics and in the file at the place where it is missing.
//!
//! Refuses: to write what a prompt or a key says. Without recording there is no channel, and one look at an empty option.

mod asked;
mod core;
mod facts;
pub mod line;
mod place;
mod prompt;
mod salt;
mod start;
mod tape;
#[cfg(test)]
mod tests;
mod writer;

use std::path::{Path, PathBuf};

pub(crate) use asked::Asked;
pub(crate) use core::Recorded;
pub use prompt::look_of;
pub(crate) use start::{Recording, Unwritable, header};
pub(crate) use tape::{Counts, Tape};

use crate::log;

/// How a recording is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recorder {
    /// Where to.
    pub(crate) file: PathBuf,
    /// Bytes after which the file is put aside and another one begun.
    pub(crate) max_bytes: u64,
    /// Where the salt is kept; `None`: it is forgotten with the process.
    pub(crate) salt_file: Option<PathBuf>,
}

impl Recorder {
    /// Why nothing can be recorded, as far as that can be told without changing anything.
    pub(crate) fn problem(&self) -> Option<String> {
        let parent = self.file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = parent.unwrap_or(Path::new("."));
        let found = std::fs::metadata(directory).and_then(|_| log::can_keep_in(directory));
        let found = found.map_err(|error| Unwritable::new("--record-trace", &self.file, error));
        Some(found.and_then(|()| self.check_places()).err()?.to_string())
    }

    /// Refuses to replace what is no recording.
    fn check_places(&self) -> Result<(), Unwritable> {
        let taken = [self.file.clone(), place::aside(&self.file)];
        if let Some(salt) =
            self.salt_file.as_ref().filter(|salt| taken.iter().any(|path| place::is_same(path, salt)))
        {
            let error = std::io::Error::other("the recording is to be there");
            return Err(
                Unwritable::new("--record-trace-salt-file", salt, error).advising("name another file")
            );
        }
        let wrong = |error| Unwritable::new("--record-trace", &self.file, error);
        place::check(&self.file).map_err(|error| wrong(error).advising("move it away, or name another file"))
    }
}
