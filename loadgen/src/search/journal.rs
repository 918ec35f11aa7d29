//! `runs.jsonl`: every finished run of a sweep, so that an interrupted one goes on where it was.
//!
//! The first line says which sweep it is; each other line is one run with its figures. Lines are written whole, so at most the
//! last one can be cut (by a full disk or a sudden end); it is forgotten, and its run is done again.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::app;
use crate::report::RunSummary;
use crate::scenario::{Cell, Pool, Scenario};

/// The name of the file.
pub const NAME: &str = "runs.jsonl";

/// A file of finished runs that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {problem}; {remedy}", path.display(), line.map_or(String::new(), |line| format!(":{line}")))]
pub struct JournalError {
    path: PathBuf,
    line: Option<usize>,
    problem: String,
    remedy: &'static str,
    /// Nothing is known against what the file holds: it cannot be written.
    unwritable: bool,
}

impl JournalError {
    /// Whether it is the disk that fails, and not the file that is another one's.
    #[must_use]
    pub fn is_unwritable(&self) -> bool {
        self.unwritable
    }

    fn unwritable(path: &Path, error: &io::Error, remedy: &'static str) -> Self {
        Self { path: path.to_owned(), line: None, problem: error.to_string(), remedy, unwritable: true }
    }

    fn refused(path: &Path, line: Option<usize>, problem: String, remedy: &'static str) -> Self {
        Self { path: path.to_owned(), line, problem, remedy, unwritable: false }
    }
}

/// What a run is known by: its cell and its seed.
type Key = (String, u64);

/// The first line.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Header {
    /// The version of this format.
    sweep: u32,
    scenario: String,
    version: String,
    fingerprint: String,
}

/// Any other line.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    cell: String,
    seed: u64,
    summary: RunSummary,
}

/// The finished runs of a sweep, and where the next ones go.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Mutex<File>,
    done: BTreeMap<Key, RunSummary>,
}

impl Journal {
    /// Opens the file of `scenario`'s sweep in a folder, or begins it. `fresh` begins it anew, whatever it holds.
    ///
    /// # Errors
    /// The file belongs to another sweep, to one that is still going on, or cannot be read or written.
    pub fn open(dir: &Path, scenario: &Scenario, fresh: bool) -> Result<Self, JournalError> {
        let path = dir.join(NAME);
        let failed =
            |error: io::Error| JournalError::unwritable(&path, &error, "choose another folder with --out");
        let refused = |problem: &str, remedy| JournalError::refused(&path, None, problem.to_owned(), remedy);
        if fs::metadata(&path).is_ok_and(|there| !there.is_file()) {
            // A fifo would be read without an end.
            return Err(refused("it is no regular file", "choose another folder with --out"));
        }
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        file.try_lock().map_err(|_| {
            refused("another sweep is writing it", "wait for its end, or choose another folder with --out")
        })?;
        let mut text = Vec::new();
        if !fresh {
            file.read_to_end(&mut text).map_err(failed)?;
        }
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let header = Header {
            sweep: 1,
            scenario: scenario.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            fingerprint: fingerprint(scenario),
        };
        let done = read(&path, &text[..whole], &header)?;
        let start = if whole == 0 { to_line(&header) } else { Vec::new() };
        file.set_len(whole as u64)
            .and_then(|()| file.seek(SeekFrom::End(0)))
            .and_then(|_| file.write_all(&start))
            .map_err(failed)?;
        Ok(Self { path, file: Mutex::new(file), done })
    }

    /// The figures of a run that is done already.
    #[must_use]
    pub fn find(&self, cell: &Cell, seed: u64) -> Option<RunSummary> {
        let mut summary = self.done.get(&(name(cell), seed))?.clone();
        let fleet = &cell.scenario.fleet;
        summary.fleet = Pool::fleet_word(&fleet.roles.pools(fleet.workers));
        summary.params = cell.params.clone();
        Some(summary)
    }

    /// Keeps the figures of a run.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn add(&self, cell: &Cell, seed: u64, summary: &RunSummary) -> Result<(), JournalError> {
        let line = to_line(&Line { cell: name(cell), seed, summary: summary.clone() });
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        app::uninterrupted(|| file.write_all(&line)).map_err(|error| {
            let remedy = "make room and give the same command again: what is done is kept";
            JournalError::unwritable(&self.path, &error, remedy)
        })
    }
}

/// The runs in `text`, whose lines are whole.
fn read(path: &Path, text: &[u8], expected: &Header) -> Result<BTreeMap<Key, RunSummary>, JournalError> {
    let remedy = "--fresh begins anew in its place, --out writes elsewhere";
    let error = |line, problem: String| JournalError::refused(path, line, problem, remedy);
    let mut lines = text.split_inclusive(|byte| *byte == b'\n').enumerate();
    let Some((_, first)) = lines.next() else { return Ok(BTreeMap::new()) };
    let header: Header = serde_json::from_slice(first)
        .map_err(|_| error(Some(1), "it is not the file of a sweep".to_owned()))?;
    if header != *expected {
        return Err(error(
            None,
            format!("it holds the runs of another sweep: {}", header.difference(expected)),
        ));
    }
    let mut done = BTreeMap::new();
    for (place, line) in lines {
        let line: Line = serde_json::from_slice(line)
            .map_err(|wrong| error(Some(place + 1), format!("the line is damaged ({wrong})")))?;
        done.insert((line.cell, line.seed), line.summary);
    }
    Ok(done)
}

impl Header {
    /// In what it differs from the one that is expected.
    fn difference(&self, expected: &Self) -> String {
        if self.scenario != expected.scenario {
            format!("that of scenario \"{}\"", self.scenario)
        } else if self.version != expected.version {
            format!("made by loadgen {}", self.version)
        } else {
            "the scenario's text, its flags or its trace have changed".to_owned()
        }
    }
}

/// The name of a cell: its policy and its parameters.
fn name(cell: &Cell) -> String {
    let params = serde_json::to_string(&cell.params).unwrap_or_default();
    format!("{} {params}", cell.policy.name())
}

fn to_line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

/// A number that changes with the scenario's text, the flags that were laid over it and what it reads from other files. How
/// many seeds are run is no part of it: a sweep can be given more of them later.
fn fingerprint(scenario: &Scenario) -> String {
    let mut hash = Xxh3::new();
    for text in [&scenario.source, &scenario.fingerprint.work, &scenario.fingerprint.router] {
        hash.update(format!("{text}\n").as_bytes());
    }
    hash.update(format!("{:?}", scenario.overrides).as_bytes());
    format!("{:016x}", hash.digest())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Run;
    use crate::scenario::testing::{load_text, small};

    const REST: &str = r#"[arrival]
kind = "poisson"
rate = 10.0
[fleet]
workers = 2
[router]
policies = ["random"]
[sweep]
"arrival.rate" = [1.0, 2.0]
"#;

    /// A sweep of two cells.
    fn scenario() -> Scenario {
        load_text(&small("", REST), &[]).unwrap()
    }

    fn summary(cell: &Cell) -> RunSummary {
        let summary = RunSummary::of(&Run::without_records(cell, 1), None);
        RunSummary {
            hit_rate: 1.0 / 3.0,
            makespan_s: 0.1 + 0.2,
            input_tok_s: 123_456.789_012_345_67,
            ..summary
        }
    }

    #[test]
    fn figures_come_back_to_the_bit_and_a_cut_line_is_forgotten() {
        let (dir, scenario) = (tempfile::tempdir().unwrap(), scenario());
        let cells = scenario.cells();
        let summary = summary(&cells[0]);
        let journal = Journal::open(dir.path(), &scenario, false).unwrap();
        journal.add(&cells[0], 1, &summary).unwrap();
        journal.add(&cells[1], 1, &summary).unwrap();
        drop(journal);
        let path = dir.path().join(NAME);
        let text = std::fs::read(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 9]).unwrap();
        let journal = Journal::open(dir.path(), &scenario, false).unwrap();
        let found = journal.find(&cells[0], 1).unwrap();
        assert_eq!(found, summary);
        assert!(journal.find(&cells[1], 1).is_none() && journal.find(&cells[0], 2).is_none());
        journal.add(&cells[1], 1, &summary).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), text, "as if never cut");
    }

    #[test]
    fn another_sweep_is_refused_unless_it_may_begin_anew() {
        let dir = tempfile::tempdir().unwrap();
        let other = load_text(&small("", REST).replace("groups = 2", "groups = 3"), &[]).unwrap();
        let one = scenario();
        drop(Journal::open(dir.path(), &one, false).unwrap());
        let error = Journal::open(dir.path(), &other, false).unwrap_err().to_string();
        assert!(error.contains("runs.jsonl") && error.contains("--fresh"), "{error}");
        drop(Journal::open(dir.path(), &other, true).unwrap());
        Journal::open(dir.path(), &other, false).unwrap();
        std::fs::write(dir.path().join(NAME), "{}\n").unwrap();
        assert!(Journal::open(dir.path(), &other, false).unwrap_err().to_string().contains("runs.jsonl:1"));
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join(NAME);
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for fresh in [false, true] {
            let error = Journal::open(dir.path(), &scenario(), fresh).unwrap_err();
            assert!(error.to_string().contains("no regular file") && !error.is_unwritable(), "{error}");
        }
    }

    #[test]
    fn two_sweeps_do_not_write_one_file() {
        let (dir, scenario) = (tempfile::tempdir().unwrap(), scenario());
        let _first = Journal::open(dir.path(), &scenario, false).unwrap();
        let error = Journal::open(dir.path(), &scenario, true).unwrap_err().to_string();
        assert!(error.contains("another sweep"), "{error}");
    }
}
