//! The lines of a recording, from all its files in their order.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use router::record::line::{Header, Line, VERSION};

use super::ReplayError;

/// See the module's description.
#[derive(Debug)]
pub struct Recording {
    header: Header,
    now: Source,
    next: VecDeque<Source>,
}

/// One file.
#[derive(Debug)]
struct Source {
    path: PathBuf,
    lines: BufReader<File>,
    read: u64,
    /// Lines to be passed over, as they were heard already.
    known: u64,
    /// It ends within a line.
    is_cut: bool,
}

const REMEDY: &str = "give a file that `router --record-trace` wrote";

impl Recording {
    /// Opens the files at `paths`, in any order. With one of them the other one is opened too that the router kept beside it:
    /// `FILE.1`, which was put aside before `FILE`.
    ///
    /// # Errors
    /// One cannot be read or is no recording of this version; or they do not follow one another.
    pub fn open(paths: &[PathBuf]) -> Result<Self, ReplayError> {
        let mut files = paths.iter().map(|path| Source::open(path)).collect::<Result<Vec<_>, _>>()?;
        if let [(header, source)] = &files[..] {
            let other = beside(&source.path).and_then(|path| Source::open(&path).ok());
            files.extend(other.filter(|(other, _)| {
                header.start_unix_ms == other.start_unix_ms && header.part.abs_diff(other.part) == 1
            }));
        }
        files.sort_by_key(|(header, _)| header.part);
        for pair in files.windows(2) {
            follows(&pair[0], &pair[1])?;
        }
        let mut files = files.into_iter();
        let first = files.next().ok_or_else(|| ReplayError::Set("give the files of a recording".to_owned()));
        let (header, now) = first?;
        let next = files.map(|(header, source)| Source { known: header.restated, ..source }).collect();
        Ok(Self { header, now, next })
    }

    /// What it begins with.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether it ends within a line, which is passed over: the router was killed, or is still writing.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.now.is_cut
    }

    /// The next line and its number in its file.
    ///
    /// # Errors
    /// It cannot be read, or is no line of a recording. One that is cut at the very end is passed over.
    pub fn advance(&mut self) -> Result<Option<(Line, u64)>, ReplayError> {
        loop {
            if let Some(line) = self.now.line()? {
                return Ok(Some(line));
            }
            match self.next.pop_front() {
                Some(next) => self.now = next,
                None => return Ok(None),
            }
        }
    }

    /// What is wrong with the line of this number that was read last.
    #[must_use]
    pub fn wrong(&self, line: u64, problem: String) -> ReplayError {
        self.now.wrong(line, problem)
    }
}

/// The other file that a router keeps.
fn beside(path: &Path) -> Option<PathBuf> {
    const ASIDE: &str = ".1";
    let name = path.file_name()?.to_str()?;
    let other = name.strip_suffix(ASIDE).map_or_else(|| format!("{name}{ASIDE}"), str::to_owned);
    Some(path.with_file_name(other))
}

/// Refuses a file that is not the one behind `former`.
fn follows(former: &(Header, Source), later: &(Header, Source)) -> Result<(), ReplayError> {
    let ((former, one), (later, other)) = (former, later);
    let (one, other) = (one.path.display(), other.path.display());
    let (part, next) = (former.part, later.part);
    if former.start_unix_ms != later.start_unix_ms {
        let problem = "are of different starts of the router; replay each recording by itself";
        return Err(ReplayError::Set(format!("{one} and {other} {problem}")));
    }
    match next - part {
        0 => Err(ReplayError::Set(format!("{one} and {other} are both part {part}; give each file once"))),
        1 => Ok(()),
        _ => {
            let missing = if next - part == 2 { "part" } else { "the parts from" };
            let remedy = "give that too, or only the files behind it";
            let between = part + 1;
            Err(ReplayError::Set(format!(
                "between {one} (part {part}) and {other} (part {next}) {missing} {between} is missing; {remedy}"
            )))
        }
    }
}

impl Source {
    fn open(path: &Path) -> Result<(Header, Self), ReplayError> {
        let failed = |error| ReplayError::File { path: path.to_owned(), error };
        let mut lines = BufReader::with_capacity(1 << 16, File::open(path).map_err(failed)?);
        let mut text = Vec::new();
        lines.read_until(b'\n', &mut text).map_err(failed)?;
        let source = Self { path: path.to_owned(), lines, read: 1, known: 0, is_cut: false };
        let header: Header = serde_json::from_slice(&text)
            .map_err(|error| source.wrong(1, format!("this is no header of a recording ({error})")))?;
        if header.router_trace != VERSION {
            let problem = format!("the format has version {}, known is {VERSION}", header.router_trace);
            return Err(source.wrong(1, problem));
        }
        Ok((header, source))
    }

    fn line(&mut self) -> Result<Option<(Line, u64)>, ReplayError> {
        let mut text = Vec::new();
        loop {
            text.clear();
            let failed = |error| ReplayError::File { path: self.path.clone(), error };
            if self.lines.read_until(b'\n', &mut text).map_err(failed)? == 0 {
                return Ok(None);
            }
            self.read += 1;
            if self.known > 0 {
                self.known -= 1;
                continue;
            }
            return match serde_json::from_slice(&text) {
                Ok(line) => Ok(Some((line, self.read))),
                Err(_) if !text.ends_with(b"\n") => {
                    self.is_cut = true;
                    Ok(None)
                }
                Err(error) => Err(self.wrong(self.read, error.to_string())),
            };
        }
    }

    fn wrong(&self, line: u64, problem: String) -> ReplayError {
        ReplayError::Line { path: self.path.clone(), line, problem, remedy: REMEDY }
    }
}
