//! Files that are of no use before they are whole. What ends the program early removes them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::app::uninterrupted;

/// Those that there are.
static THERE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A file that is being written. It is removed unless it gets its final name.
#[derive(Debug)]
pub(crate) struct Unfinished {
    path: PathBuf,
}

impl Unfinished {
    /// Makes a file beside `path`, under a name that no other file has: the first of `names` that is free.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn beside(path: &Path, names: &dyn Fn() -> String) -> io::Result<(Self, File)> {
        loop {
            match Self::create(path.with_file_name(names())) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made,
            }
        }
    }

    fn create(path: PathBuf) -> io::Result<(Self, File)> {
        // Either an interrupt comes before it is made and nothing is made any more, or it knows of it.
        uninterrupted(|| {
            let file = File::create_new(&path)?;
            there(|paths| paths.insert(path.clone()));
            Ok((Self { path }, file))
        })
    }

    /// Gives it its final name, in place of what had that.
    ///
    /// # Errors
    /// It cannot have it.
    pub(crate) fn finish(self, name: &Path) -> io::Result<()> {
        uninterrupted(|| {
            fs::rename(&self.path, name)?;
            there(|paths| paths.remove(&self.path));
            Ok(())
        })
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if there(|paths| paths.remove(&self.path)) {
            // Nothing is left to be done where even this fails.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes all that there are: the process ends.
pub(crate) fn remove_all() {
    there(|paths| paths.iter().for_each(|path| _ = fs::remove_file(path)));
}

fn there<T>(change: impl FnOnce(&mut BTreeSet<PathBuf>) -> T) -> T {
    change(&mut THERE.lock().unwrap_or_else(PoisonError::into_inner))
}
