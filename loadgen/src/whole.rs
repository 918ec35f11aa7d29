//! Files that somebody named: written as a whole or not at all.
//!
//! A regular file is written under another name in its own folder and then renamed, so that what was there stays until all is
//! written; links are followed to it. Anything else (a device, a fifo, standard output by its name in `/dev`) is written through.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::unfinished::Unfinished;

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 1 << 16;
/// As many links may lead to a file as the kernel follows.
const MOST_LINKS: usize = 40;
/// Where a link may stand for something that is open and has no path.
const OPEN_FILES: &str = "/proc";

/// Writes the file at `path` by `fill`. When that fails nothing has changed there, unless it is no regular file.
///
/// # Errors
/// It cannot be written, or `fill` fails.
pub(crate) fn write_whole<E: From<io::Error>>(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    match Place::of(path)? {
        Place::Open => filled(OpenOptions::new().append(true).open(path)?, fill).map(drop),
        Place::Regular { path, former } => {
            let (unfinished, file) = Unfinished::beside(&path, &names())?;
            if let Some(former) = former {
                file.set_permissions(former.permissions())?;
            }
            filled(file, fill)?;
            Ok(unfinished.finish(&path)?)
        }
    }
}

/// Whether two paths lead to the same regular file, by whatever links.
pub(crate) fn is_same_file(a: &Path, b: &Path) -> bool {
    let of = |path: &Path| fs::metadata(path).ok().filter(Metadata::is_file);
    match (of(a), of(b)) {
        (Some(a), Some(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// What there is at a path.
#[derive(Debug)]
enum Place {
    /// A regular file, or nothing yet: where the links end.
    Regular { path: PathBuf, former: Option<Metadata> },
    /// What is written through.
    Open,
}

impl Place {
    fn of(path: &Path) -> io::Result<Self> {
        match fs::metadata(path) {
            Ok(there) if there.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(there) if !there.is_file() => return Ok(Self::Open),
            Ok(_) => {}
            // Links may lead to where a file is to be made.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
            let there = fs::symlink_metadata(&path).ok();
            let folder = folder(&path).to_owned();
            if !there.as_ref().is_some_and(Metadata::is_symlink) {
                return Ok(Self::Regular { path, former: there });
            }
            if folder.canonicalize().is_ok_and(|folder| folder.starts_with(OPEN_FILES)) {
                return Ok(Self::Open);
            }
            path = folder.join(fs::read_link(&path)?);
        }
        Err(io::Error::other("too many links lead there"))
    }
}

/// The folder that a path is in.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Names that say who writes there. Which of them are free is found out by taking one.
fn names() -> impl Fn() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    || format!(".loadgen-{}-{}.part", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn filled<E: From<io::Error>>(
    file: File,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<File, E> {
    let mut to = BufWriter::with_capacity(BUFFER_BYTES, file);
    fill(&mut to)?;
    Ok(to.into_inner().map_err(io::IntoInnerError::into_error)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};

    use super::*;

    fn write(path: &Path, text: &str) -> io::Result<()> {
        write_whole(path, |to| to.write_all(text.as_bytes()))
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    /// How many files there are in a folder.
    fn count(dir: &Path) -> usize {
        fs::read_dir(dir).unwrap().count()
    }

    #[test]
    fn what_was_there_stays_until_all_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        write(&path, "one").unwrap();
        let cut = write_whole(&path, |to| {
            to.write_all(b"tw")?;
            assert_eq!((read(&path).as_str(), count(dir.path())), ("one", 2), "beside it");
            Err(io::Error::other("no more"))
        });
        assert!(cut.is_err());
        assert_eq!((read(&path).as_str(), count(dir.path())), ("one", 1), "nothing is left of the other one");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        write(&path, "two").unwrap();
        assert_eq!(read(&path), "two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn links_are_followed_and_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link, far) = (dir.path().join("file"), dir.path().join("link"), dir.path().join("far"));
        symlink("file", &link).unwrap();
        symlink("link", &far).unwrap();
        for text in ["made", "replaced"] {
            write(&far, text).unwrap();
            assert_eq!(read(&file), text);
            assert!([&link, &far].iter().all(|path| fs::symlink_metadata(path).unwrap().is_symlink()));
        }
        symlink("round", dir.path().join("round")).unwrap();
        assert!(write(&dir.path().join("round"), "x").is_err());
    }

    #[test]
    fn devices_and_fifos_are_written_through() {
        write(Path::new("/dev/null"), "x").unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        let full = write(Path::new("/dev/full"), "x").unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let reader = std::thread::spawn({
            let fifo = fifo.clone();
            move || read(&fifo)
        });
        write(&fifo, "through").unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        assert!(fs::metadata(&fifo).unwrap().file_type().is_fifo());
        assert!(write(dir.path(), "x").is_err(), "a folder");
    }

    #[test]
    fn an_open_file_is_known_by_the_link_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let mut open = File::create(&path).unwrap();
        open.write_all(b"first ").unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&open);
        write(Path::new(&format!("/dev/fd/{number}")), "second").unwrap();
        assert_eq!(read(&path), "first second", "as for /dev/stdout");
    }

    #[test]
    fn one_file_has_many_paths() {
        let dir = tempfile::tempdir().unwrap();
        let [a, hard, soft, other] = ["a", "hard", "soft", "other"].map(|name| dir.path().join(name));
        for path in [&a, &other] {
            write(path, "x").unwrap();
        }
        fs::hard_link(&a, &hard).unwrap();
        symlink("a", &soft).unwrap();
        assert!(is_same_file(&a, &hard) && is_same_file(&soft, &hard));
        assert!(!is_same_file(&a, &other) && !is_same_file(&a, &dir.path().join("none")));
        assert!(!is_same_file(Path::new("/dev/null"), Path::new("/dev/null")), "nothing is lost there");
    }
}
