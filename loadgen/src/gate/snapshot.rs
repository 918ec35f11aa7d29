//! The figures of a run, cell by cell, as `summary.json` has them.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::pairing;
use crate::run::{Params, World};
use crate::scenario::{Fingerprint, input};

/// The version of `summary.json` that is read.
const SUMMARY_SCHEMA: u32 = 1;
/// Largest file that is read, in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// One policy with its parameters in one world.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cell {
    /// Where it ran.
    pub mode: World,
    /// The policy.
    pub policy: String,
    /// The options that were set, and the swept keys.
    pub params: Params,
    /// The seeds, in the order of the values.
    pub seeds: Vec<u64>,
    /// By name, such as `ttft_ms.p50`: a value for each seed, none where it was not measured.
    pub figures: BTreeMap<String, Vec<Option<f64>>>,
}

/// What live figures depend on beside the scenario.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Processor model.
    #[serde(default)]
    pub cpu: Option<String>,
    /// Processor architecture.
    pub machine: String,
    /// Cores that the program could use.
    pub cores: u64,
    /// Debug or release.
    pub build: String,
    /// The commit; for people, not compared.
    #[serde(default)]
    pub commit: Option<String>,
}

/// All cells of a run, with what tells whether another run is comparable.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Snapshot {
    /// The scenario's name.
    pub scenario: String,
    /// What it asked.
    pub fingerprint: Fingerprint,
    /// The cells, in the order in which they ran.
    pub cells: Vec<Cell>,
    /// Where live cells ran, if that is known.
    pub machine: Option<Machine>,
    /// Why its live runs are void; empty where they are not.
    pub invalid: Vec<String>,
    /// What else had the machine during its live runs; empty where nothing had.
    pub disturbed: Vec<String>,
}

/// A file that cannot be read, or is not what it should be.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}; {remedy}", path.display())]
pub(crate) struct ReadError {
    path: PathBuf,
    problem: String,
    remedy: &'static str,
}

impl ReadError {
    pub(super) fn new(path: &Path, problem: impl ToString, remedy: &'static str) -> Self {
        Self { path: path.to_owned(), problem: problem.to_string(), remedy }
    }
}

/// What is read of `summary.json`.
#[derive(Deserialize)]
struct SummaryFile {
    schema: u32,
    scenario: String,
    runs: Vec<RunRow>,
    fingerprint: Option<Fingerprint>,
    #[serde(default)]
    invalid: Vec<String>,
    #[serde(default)]
    disturbed: Vec<String>,
}

#[derive(Deserialize)]
struct RunRow {
    mode: World,
    policy: String,
    params: Params,
    seed: u64,
    #[serde(flatten)]
    figures: Map<String, Value>,
}

impl Cell {
    /// How many runs it has.
    #[must_use]
    pub(crate) fn repeats(&self) -> usize {
        self.seeds.len()
    }
}

impl Snapshot {
    /// Whether it has cells of a world.
    #[must_use]
    pub(crate) fn has(&self, world: World) -> bool {
        self.cells.iter().any(|cell| cell.mode == world)
    }

    /// Puts a run into its cell. Fails if it is there already, or has nothing to be put there.
    fn add(&mut self, run: RunRow) -> Result<(), String> {
        let same = |c: &Cell| c.mode == run.mode && c.policy == run.policy && c.params == run.params;
        let place = self.cells.iter().position(same).unwrap_or_else(|| {
            self.cells.push(Cell {
                mode: run.mode,
                policy: run.policy,
                params: run.params,
                seeds: Vec::new(),
                figures: BTreeMap::new(),
            });
            self.cells.len() - 1
        });
        let figures = flat(&run.figures);
        let problem = if figures.is_empty() {
            Some("has no figures")
        } else if self.cells[place].seeds.contains(&run.seed) {
            Some("is there twice")
        } else {
            None
        };
        if let Some(problem) = problem {
            let name = pairing::label(&self.cells, &self.cells[place]);
            return Err(format!("the run of {name} with seed {} {problem}", run.seed));
        }
        let cell = &mut self.cells[place];
        for (name, value) in figures {
            let values = cell.figures.entry(name).or_default();
            values.resize(cell.seeds.len(), None);
            values.push(value);
        }
        cell.seeds.push(run.seed);
        for values in cell.figures.values_mut() {
            values.resize(cell.seeds.len(), None);
        }
        Ok(())
    }
}

/// The figures of a run by their paths. What is neither a number nor unknown is no figure.
fn flat(fields: &Map<String, Value>) -> Vec<(String, Option<f64>)> {
    let mut figures = Vec::new();
    for (key, value) in fields {
        match value {
            Value::Number(_) | Value::Null => figures.push((key.clone(), value.as_f64())),
            Value::Object(parts) => {
                figures.extend(flat(parts).into_iter().map(|(part, value)| (format!("{key}.{part}"), value)));
            }
            _ => {}
        }
    }
    figures
}

/// The text of a regular file.
pub(super) fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    input::open(path)?.take(MOST_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// The run at `path`: a folder with results, or the `summary.json` of one.
///
/// # Errors
/// If there is no such file, or it is not what `run` writes.
pub(crate) fn read_run(path: &Path) -> Result<Snapshot, ReadError> {
    let file = if path.is_dir() { path.join("summary.json") } else { path.to_owned() };
    let fail = |problem: String| {
        ReadError::new(
            &file,
            problem,
            "give the folder in which `loadgen run` left its results, or its summary.json",
        )
    };
    let text = text(&file).map_err(|error| fail(format!("cannot be read: {error}")))?;
    let summary: SummaryFile =
        serde_json::from_str(&text).map_err(|error| fail(format!("not a summary of loadgen: {error}")))?;
    if summary.schema != SUMMARY_SCHEMA {
        return Err(fail(format!(
            "has schema {}, and this program reads schema {SUMMARY_SCHEMA}",
            summary.schema
        )));
    }
    if summary.runs.is_empty() {
        return Err(fail("has no runs".into()));
    }
    let Some(fingerprint) = summary.fingerprint else {
        let remedy = "run the scenario again with this program";
        return Err(ReadError::new(&file, "does not say what its scenario asked", remedy));
    };
    let mut snapshot = Snapshot {
        scenario: summary.scenario,
        fingerprint,
        cells: Vec::new(),
        machine: machine(&file.with_file_name("environment.json")),
        invalid: summary.invalid,
        disturbed: summary.disturbed,
    };
    for run in summary.runs {
        snapshot.add(run).map_err(fail)?;
    }
    Ok(snapshot)
}

/// Where a run took place; unknown where the file is gone, which only live figures need.
fn machine(path: &Path) -> Option<Machine> {
    serde_json::from_str(&text(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = r#"{"mode":"virtual","policy":"p","params":{"x":1},"seed":SEED,"requests":4,"failed":0,
        "hit_rate":0.1,"ttft_ms":{"mean":null,"p50":1.5},"note":"no figure"}"#;

    fn read(text: &str) -> Result<Snapshot, ReadError> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("summary.json"), text).unwrap();
        read_run(dir.path())
    }

    #[test]
    fn seeds_become_values_of_one_cell() {
        let runs = [1, 2].map(|seed| RUN.replace("SEED", &seed.to_string())).join(",");
        let text = format!(
            r#"{{"schema":1,"scenario":"s","runs":[{runs}],"fingerprint":{{"work":"a","router":"b"}},"later":3}}"#
        );
        let snapshot = read(&text).unwrap();
        let [cell] = &snapshot.cells[..] else { panic!("{snapshot:?}") };
        assert_eq!((&cell.seeds, &cell.figures["ttft_ms.p50"]), (&vec![1, 2], &vec![Some(1.5); 2]));
        assert_eq!(cell.figures["ttft_ms.mean"], [None, None]);
        let names: Vec<&str> = cell.figures.keys().map(String::as_str).collect();
        assert_eq!(names, ["failed", "hit_rate", "requests", "ttft_ms.mean", "ttft_ms.p50"]);
    }

    #[test]
    fn what_is_no_summary_is_told() {
        for (text, word) in [
            ("", "not a summary"),
            ("{}", "schema"),
            (r#"{"schema":9,"scenario":"s","runs":[]}"#, "schema 9"),
            (r#"{"schema":1,"scenario":"s","runs":[]}"#, "no runs"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("summary.json: ") && error.contains(word), "{error}");
        }
        let run = RUN.replace("SEED", "1");
        let bare = r#"{"mode":"live","policy":"p","params":{},"seed":4}"#.to_owned();
        for (runs, words) in [
            (format!("{run},{run}"), "the run of p (virtual) with seed 1 is there twice"),
            (format!("{run},{bare}"), "the run of p (live) with seed 4 has no figures"),
        ] {
            let text = format!(
                r#"{{"schema":1,"scenario":"s","runs":[{runs}],"fingerprint":{{"work":"a","router":"b"}}}}"#
            );
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let old = format!(r#"{{"schema":1,"scenario":"s","runs":[{}]}}"#, RUN.replace("SEED", "1"));
        assert!(read(&old).unwrap_err().to_string().contains("run the scenario again"));
    }

    #[test]
    fn what_only_some_seeds_have_stands_at_their_places() {
        let run = |seed: u64, figures: &str| {
            format!(r#"{{"mode":"virtual","policy":"p","params":{{}},"seed":{seed},{figures}}}"#)
        };
        let runs = [run(1, r#""a":1"#), run(2, r#""b":2"#), run(3, r#""a":3,"b":3"#)].join(",");
        let text = format!(
            r#"{{"schema":1,"scenario":"s","runs":[{runs}],"fingerprint":{{"work":"a","router":"b"}}}}"#
        );
        let cell = &read(&text).unwrap().cells[0];
        assert_eq!(cell.figures["a"], [Some(1.0), None, Some(3.0)]);
        assert_eq!(cell.figures["b"], [None, Some(2.0), Some(3.0)]);
    }

    #[test]
    fn worlds_policies_and_parameters_make_cells_of_their_own() {
        let runs = ["\"virtual\"", "\"live\""]
            .map(|mode| {
                let run = RUN.replace("\"virtual\"", mode).replace("SEED", "1");
                [run.clone(), run.replace("\"x\":1", "\"x\":2"), run.replace("\"p\"", "\"q\"")].join(",")
            })
            .join(",");
        let text = format!(
            r#"{{"schema":1,"scenario":"s","runs":[{runs}],"fingerprint":{{"work":"a","router":"b"}}}}"#
        );
        let snapshot = read(&text).unwrap();
        assert_eq!(snapshot.cells.len(), 6);
        assert!(snapshot.cells.iter().all(|cell| cell.seeds == [1]));
    }
}
