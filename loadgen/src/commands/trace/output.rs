//! Files that are there as a whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::app;

/// The end of the name of a file that is being written.
const UNFINISHED: &str = ".part";

/// Writes `path` by `fill`; what was there stays until all is written.
pub(super) fn write<E: From<io::Error>>(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
) -> Result<(), E> {
    let unfinished = unfinished(path);
    let mut to = BufWriter::with_capacity(1 << 16, File::create(&unfinished)?);
    let written = fill(&mut to).and_then(|()| {
        to.flush()?;
        drop(to);
        app::uninterrupted(|| fs::rename(&unfinished, path)).map_err(E::from)
    });
    if written.is_err() {
        // Nothing is left to be done where even this fails.
        let _ = fs::remove_file(&unfinished);
    }
    written
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(UNFINISHED);
    name.into()
}
