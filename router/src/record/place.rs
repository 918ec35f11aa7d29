//! What may stand where a recording is to be: nothing, or an earlier recording. Whatever else is there is somebody's, and stays.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What every file of a recording begins with.
const BEGINNING: &[u8] = br#"{"router_trace""#;

/// Where the file before the one at `path` is.
pub(super) fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// Refuses what is at `path`, or where it would be put aside, unless it is a recording.
///
/// # Errors
/// Something else is there, or it cannot be read.
pub(super) fn check(path: &Path) -> io::Result<()> {
    refuse_foreign(path)?;
    refuse_foreign(&aside(path))
}

fn refuse_foreign(path: &Path) -> io::Result<()> {
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let is = if kind.is_dir() {
        "a directory"
    } else if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_fifo() {
        "a fifo"
    } else if !kind.is_file() {
        "no regular file"
    } else if !is_recording(path)? {
        "no recording of the router"
    } else {
        return Ok(());
    };
    let path = path.display();
    let problem = format!("{path} is {is}, and only a recording is replaced");
    Err(io::Error::new(io::ErrorKind::AlreadyExists, problem))
}

/// An empty file is what is left of one that had no time to begin.
fn is_recording(path: &Path) -> io::Result<bool> {
    let mut begins = Vec::new();
    File::open(path)?.take(BEGINNING.len() as u64).read_to_end(&mut begins)?;
    Ok(begins.is_empty() || begins == BEGINNING)
}

/// Whether both are one file, there or not.
pub(super) fn is_same(one: &Path, other: &Path) -> bool {
    let inode = |path: &Path| fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    match (inode(one), inode(other)) {
        (Some(one), Some(other)) => one == other,
        (None, None) => matches!((named(one), named(other)), (Some(one), Some(other)) if one == other),
        _ => false,
    }
}

/// The name, in the directory as the system knows it.
fn named(path: &Path) -> Option<PathBuf> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = parent.unwrap_or(Path::new(".")).canonicalize().ok()?;
    Some(directory.join(path.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_recording_is_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let refused = |path: &Path| check(path).expect_err("it is not to be replaced").to_string();
        check(&at("nothing")).expect("nothing is there");
        fs::write(at("empty"), "").expect("a file");
        fs::write(at("former"), "{\"router_trace\":1}\n").expect("a file");
        fs::write(at("cut"), "{\"router").expect("a file");
        fs::write(at("foreign"), "{\"router\":1}\n").expect("a file");
        std::os::unix::fs::symlink(at("former"), at("link")).expect("a link");
        check(&at("empty")).expect("it has nothing");
        check(&at("former")).expect("it is a recording");
        assert!(refused(directory.path()).contains("a directory"));
        assert!(refused(&at("foreign")).contains("foreign is no recording"));
        assert!(refused(&at("cut")).contains("no recording"));
        assert!(refused(&at("link")).contains("a symbolic link"));
        assert!(refused(Path::new("/dev/null")).contains("no regular file"));
        fs::create_dir(at("former.1")).expect("a directory");
        assert!(refused(&at("former")).contains("former.1 is a directory"));
    }

    #[test]
    fn a_file_is_the_same_by_any_of_its_names() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        assert!(is_same(&at("a"), &at("./a")) && !is_same(&at("a"), &at("b")));
        fs::write(at("a"), "").expect("a file");
        assert!(!is_same(&at("a"), &at("b")));
        fs::hard_link(at("a"), at("b")).expect("a link");
        assert!(is_same(&at("a"), &at("b")));
    }
}
