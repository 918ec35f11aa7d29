//! The lines of a recording; of one that was rotated, those of the older file first.

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
    next: Option<Source>,
}

/// One file.
#[derive(Debug)]
struct Source {
    path: PathBuf,
    lines: BufReader<File>,
    read: u64,
    /// Lines to be passed over, as they were heard already.
    known: u64,
}

const REMEDY: &str = "give a file that `router --record-trace` wrote";

impl Recording {
    /// Opens the file at `path`, and the one that was put aside before it if that belongs to it.
    ///
    /// # Errors
    /// It cannot be read, or is no recording of this version.
    pub fn open(path: &Path) -> Result<Self, ReplayError> {
        let (header, source) = Source::open(path)?;
        let mut aside = path.as_os_str().to_owned();
        aside.push(".1");
        let is_former =
            |former: &Header| former.part + 1 == header.part && former.start_unix_ms == header.start_unix_ms;
        match Source::open(Path::new(&aside)) {
            Ok((former, before)) if header.part > 0 && is_former(&former) => {
                let source = Source { known: header.restated, ..source };
                Ok(Self { header: former, now: before, next: Some(source) })
            }
            _ => Ok(Self { header, now: source, next: None }),
        }
    }

    /// What it begins with.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether it begins where the router did.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.header.part == 0
    }

    /// The next line and its number in its file.
    ///
    /// # Errors
    /// It cannot be read, or is no line of a recording. One that is cut at the very end is passed over: a router may still be
    /// writing it.
    pub fn advance(&mut self) -> Result<Option<(Line, u64)>, ReplayError> {
        loop {
            if let Some(line) = self.now.line()? {
                return Ok(Some(line));
            }
            match self.next.take() {
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

impl Source {
    fn open(path: &Path) -> Result<(Header, Self), ReplayError> {
        let failed = |error| ReplayError::File { path: path.to_owned(), error };
        let mut lines = BufReader::with_capacity(1 << 16, File::open(path).map_err(failed)?);
        let mut text = String::new();
        lines.read_line(&mut text).map_err(failed)?;
        let source = Self { path: path.to_owned(), lines, read: 1, known: 0 };
        let header: Header = serde_json::from_str(&text)
            .map_err(|error| source.wrong(1, format!("this is no header of a recording ({error})")))?;
        if header.router_trace != VERSION {
            let problem = format!("the format has version {}, known is {VERSION}", header.router_trace);
            return Err(source.wrong(1, problem));
        }
        Ok((header, source))
    }

    fn line(&mut self) -> Result<Option<(Line, u64)>, ReplayError> {
        let mut text = String::new();
        loop {
            text.clear();
            let failed = |error| ReplayError::File { path: self.path.clone(), error };
            if self.lines.read_line(&mut text).map_err(failed)? == 0 {
                return Ok(None);
            }
            self.read += 1;
            if self.known > 0 {
                self.known -= 1;
                continue;
            }
            return match serde_json::from_str(&text) {
                Ok(line) => Ok(Some((line, self.read))),
                Err(_) if !text.ends_with('\n') => Ok(None),
                Err(error) => Err(self.wrong(self.read, error.to_string())),
            };
        }
    }

    fn wrong(&self, line: u64, problem: String) -> ReplayError {
        ReplayError::Line { path: self.path.clone(), line, problem, remedy: REMEDY }
    }
}
