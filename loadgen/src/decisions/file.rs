//! The lines of a recording, from all its files in their order.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
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

/// Bytes of a first line beyond which it is no header.
const LONGEST_HEADER: u64 = 1 << 20;

const REMEDY: &str = "give a file that `router --record-trace` wrote";

impl Recording {
    /// Opens the files at `paths`, in any order. With one of them the other one is opened too that the router kept beside it:
    /// `FILE.1`, which was put aside before `FILE`.
    ///
    /// # Errors
    /// One cannot be read or is no recording of this version; or they do not follow one another.
    pub fn open(paths: &[PathBuf]) -> Result<Self, ReplayError> {
        let mut files = match paths {
            [path] => both(path)?,
            paths => paths.iter().map(|path| Source::open(path)).collect::<Result<Vec<_>, _>>()?,
        };
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

/// The files that are read where `path` is given, in their order: those of a recording that its router keeps, or what is there
/// if it is none.
#[must_use]
pub fn kept(path: &Path) -> Vec<PathBuf> {
    // Of a pipe nothing may be read twice.
    let files = if path.is_file() { both(path).unwrap_or_default() } else { Vec::new() };
    if files.len() < 2 {
        return vec![path.to_owned()];
    }
    files.into_iter().map(|(_, source)| source.path).collect()
}

/// The recording at `path`, and the other file that its router keeps where it belongs to it; in their order.
fn both(path: &Path) -> Result<Vec<(Header, Source)>, ReplayError> {
    let given = Source::open(path)?;
    let other = beside(path).filter(|path| path.is_file()).and_then(|path| Source::open(&path).ok());
    let belongs = |(other, _): &(Header, Source)| {
        given.0.start_unix_ms == other.start_unix_ms && given.0.part.abs_diff(other.part) == 1
    };
    let other = other.filter(belongs);
    let mut files: Vec<_> = std::iter::once(given).chain(other).collect();
    files.sort_by_key(|(header, _)| header.part);
    Ok(files)
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
        lines.by_ref().take(LONGEST_HEADER).read_until(b'\n', &mut text).map_err(failed)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A header; `start` and `part` are what it says.
    fn header(start: u64, part: u64) -> String {
        let named = r#"{"name":"random","options":{}}"#;
        let policies = format!(r#"{{"regular":{named},"prefill":{named},"decode":{named}}}"#);
        format!(
            r#"{{"router_trace":1,"part":{part},"restated":0,"version":"0","start_unix_ms":{start},"seed":1,"bookings":0,"policies":{policies},"load_poll_interval_ns":1,"breaker":null,"warm_up":null,"pairing":{{"decode_dispatch_limit":null,"prefer":true,"least_uncached_tokens":0}},"pieces":{{"head":16384,"short":16,"long":64}}}}"#
        ) + "\n"
    }

    #[test]
    fn the_other_file_is_read_only_where_it_belongs_to_the_recording() {
        for (aside, is_one) in [
            (header(9, 3), true),
            (header(8, 3), false),
            (header(9, 2), false),
            (header(9, 4), false),
            ("something else\n".to_owned(), false),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let [now, before] = ["t", "t.1"].map(|name| directory.path().join(name));
            std::fs::write(&now, header(9, 4)).unwrap();
            std::fs::write(&before, &aside).unwrap();
            let both = vec![before.clone(), now.clone()];
            for given in [&now, &before] {
                let expected = if is_one { both.clone() } else { vec![given.clone()] };
                assert_eq!(kept(given), expected, "{aside}");
            }
            let opened = Recording::open(std::slice::from_ref(&now)).unwrap();
            assert_eq!(opened.header().part, if is_one { 3 } else { 4 }, "{aside}");
        }
    }

    #[test]
    fn a_recording_of_another_version_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t");
        std::fs::write(&path, header(9, 0).replace("\"router_trace\":1", "\"router_trace\":2")).unwrap();
        let error = Recording::open(std::slice::from_ref(&path)).unwrap_err().to_string();
        assert!(error.contains("t:1: the format has version 2, known is 1"), "{error}");
        assert_eq!(kept(&path), [path]);
    }
}
