//! A snapshot on disk: stable order, a line per figure, so that a change reads well in a review.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::figures;
use super::pairing::label;
use super::snapshot::{Cell, Machine, ReadError, Snapshot, text};
use crate::run::World;
use crate::scenario::Fingerprint;
use crate::whole::write_whole;

/// The version of the format.
pub(crate) const SCHEMA: u32 = 1;
/// What the file says that it is.
const KIND: &str = "baseline";

/// Why there is no baseline to compare with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BaselineError {
    /// There is none.
    #[error("{}: there is no such baseline; --update writes it", .0.display())]
    Missing(PathBuf),
    /// It is of another format, or has nothing to compare with.
    #[error("{}: {problem}; --update writes it anew", path.display())]
    Other {
        /// Which file.
        path: PathBuf,
        /// What it is instead.
        problem: String,
    },
    /// It cannot be read, or is broken.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BaselineFile {
    #[serde(rename = "schema")]
    _schema: u32,
    #[serde(rename = "kind")]
    _kind: String,
    scenario: String,
    fingerprint: Fingerprint,
    machine: Option<Machine>,
    cells: Vec<Cell>,
}

/// The baseline at `path`.
///
/// # Errors
/// If there is none, it is of another format, or it is broken.
pub(crate) fn read(path: &Path) -> Result<Snapshot, BaselineError> {
    let broken =
        |problem: String| ReadError::new(path, problem, "restore the file, or write it anew with --update");
    let text = match text(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(BaselineError::Missing(path.into()));
        }
        Err(error) => return Err(broken(format!("cannot be read: {error}")).into()),
        Ok(text) => text,
    };
    let value: Value =
        serde_json::from_str(&text).map_err(|error| broken(format!("not a baseline: {error}")))?;
    let other = |problem: String| Err(BaselineError::Other { path: path.into(), problem });
    if value.get("runs").is_some() {
        return other("a summary of a run, not a baseline".into());
    }
    if value.get("kind").and_then(Value::as_str) != Some(KIND) {
        return other("not a baseline of loadgen".into());
    }
    if value.get("schema").and_then(Value::as_u64) != Some(u64::from(SCHEMA)) {
        let schema = value.get("schema").unwrap_or(&Value::Null);
        return other(format!("a baseline of schema {schema}, and this program reads schema {SCHEMA}"));
    }
    // From the text again, so that an error names its line.
    let file: BaselineFile =
        serde_json::from_str(&text).map_err(|error| broken(format!("not a baseline: {error}")))?;
    if let Some(problem) = file.cells.iter().enumerate().find_map(|(at, cell)| {
        mistake(cell, &file.cells[..at]).map(|problem| format!("{} {problem}", label(&file.cells, cell)))
    }) {
        return Err(broken(problem).into());
    }
    if file.cells.is_empty() {
        return other("has no cells".into());
    }
    if let Some(cell) = file.cells.iter().find(|cell| cell.figures.values().flatten().all(Option::is_none)) {
        return other(format!("has no figures of {}", label(&file.cells, cell)));
    }
    Ok(Snapshot {
        scenario: file.scenario,
        fingerprint: file.fingerprint,
        cells: file.cells,
        machine: file.machine,
        invalid: Vec::new(),
        disturbed: Vec::new(),
    })
}

/// What no run can have, in a cell that has others before it.
fn mistake(cell: &Cell, others: &[Cell]) -> Option<&'static str> {
    let seeds: BTreeSet<u64> = cell.seeds.iter().copied().collect();
    let same =
        |other: &Cell| (other.mode, &other.policy, &other.params) == (cell.mode, &cell.policy, &cell.params);
    if seeds.is_empty() || cell.figures.values().any(|values| values.len() != cell.seeds.len()) {
        Some("has figures without a value for each seed")
    } else if seeds.len() < cell.seeds.len() {
        Some("has a seed twice")
    } else if others.iter().any(same) {
        Some("is there twice")
    } else {
        None
    }
}

/// Writes a snapshot as the baseline at `path`, whose folder is made if need be. The former file stays until the new
/// one is complete.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn write(path: &Path, snapshot: &Snapshot) -> io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)?;
    }
    write_whole(path, |to| to.write_all(render(snapshot).as_bytes()))
}

/// The text of the file. Where it ran is told only where that matters: virtual figures are the same everywhere.
fn render(snapshot: &Snapshot) -> String {
    let mut to = String::new();
    let name = Value::from(snapshot.scenario.as_str());
    let _ = write!(to, "{{\n  \"schema\": {SCHEMA},\n  \"kind\": \"{KIND}\",\n  \"scenario\": {name},\n");
    let fingerprint = format!("{:#}", compact(&snapshot.fingerprint)).replace('\n', "\n  ");
    let _ = writeln!(to, "  \"fingerprint\": {fingerprint},");
    if let Some(machine) = snapshot.machine.as_ref().filter(|_| snapshot.has(World::Live)) {
        let _ = writeln!(to, "  \"machine\": {},", compact(machine));
    }
    let cells: Vec<String> = snapshot.cells.iter().map(render_cell).collect();
    let _ = write!(to, "  \"cells\": [\n{}\n  ]\n}}\n", cells.join(",\n"));
    to
}

fn compact(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

fn render_cell(cell: &Cell) -> String {
    let figures: Vec<String> = figures::in_order(cell.figures.keys())
        .into_iter()
        .map(|name| {
            let values: Vec<String> = cell.figures[name].iter().map(|value| number(*value)).collect();
            format!("        {}: [{}]", Value::from(name), values.join(", "))
        })
        .collect();
    format!(
        "    {{\n      \"mode\": \"{}\",\n      \"policy\": {},\n      \"params\": {},\n      \"seeds\": {},\n      \
         \"figures\": {{\n{}\n      }}\n    }}",
        cell.mode.label(),
        Value::from(cell.policy.as_str()),
        compact(&cell.params),
        compact(&cell.seeds),
        figures.join(",\n")
    )
}

/// As few digits as give the same number again.
fn number(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or_else(|| "null".into(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::fixture::{cell, snapshot};

    #[test]
    fn what_was_written_is_read_to_the_last_bit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/b.json");
        let values = [0.1 + 0.2, 1.0 / 3.0, 5.185_637_025, 1e-7, 2048.0, 202_207.750_936_829_2];
        let mut first = snapshot(vec![cell(World::Virtual, "p", "hit_rate", &values)]);
        first.cells[0].figures.insert("later_figure".into(), vec![None; values.len()]);
        first.cells[0].params.insert("x".into(), 0.3.into());
        write(&path, &first).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(read(&path).unwrap(), first, "{text}");
        write(&path, &first).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn only_live_cells_say_where_they_ran() {
        let machine =
            Machine { cpu: None, machine: "x".into(), cores: 2, build: "debug".into(), commit: None };
        for (world, told) in [(World::Virtual, false), (World::Live, true)] {
            let mut snapshot = snapshot(vec![cell(world, "p", "hit_rate", &[0.5])]);
            snapshot.machine = Some(machine.clone());
            assert_eq!(render(&snapshot).contains("cores"), told, "{world:?}");
        }
    }

    #[test]
    fn other_files_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b.json");
        assert!(matches!(read(&path), Err(BaselineError::Missing(_))));
        let good = render(&snapshot(vec![cell(World::Virtual, "p", "hit_rate", &[0.5])]));
        for (text, words) in [
            (r#"{"schema":1,"scenario":"s","runs":[]}"#.to_owned(), "a summary of a run"),
            ("{}".to_owned(), "not a baseline of loadgen"),
            (good.replace("\"schema\": 1", "\"schema\": 2"), "schema 2"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = read(&path).unwrap_err();
            assert!(
                matches!(error, BaselineError::Other { .. }) && error.to_string().contains(words),
                "{error}"
            );
        }
        let cells = good.find("    {").unwrap()..good.rfind("\n  ]").unwrap();
        let cell = good[cells.clone()].to_owned();
        let with = |text: &str| good.replace(&cell, text);
        for (text, words) in [
            (with(""), "has no cells"),
            (with(&cell.replace("\"hit_rate\": [0.5]", "")), "no figures of p (virtual)"),
            (with(&cell.replace("0.5", "null")), "no figures of p (virtual)"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = read(&path).unwrap_err();
            assert!(
                matches!(error, BaselineError::Other { .. })
                    && error.to_string().contains(words)
                    && error.to_string().contains("--update"),
                "{error}"
            );
        }
        for (text, words) in [
            (with(&format!("{cell},\n{cell}")), "p (virtual) is there twice"),
            (
                with(&cell.replace("\"seeds\": [1]", "\"seeds\": [1,1]").replace("[0.5]", "[0.5,0.5]")),
                "a seed twice",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = read(&path).unwrap_err();
            assert!(
                matches!(error, BaselineError::Unreadable(_)) && error.to_string().contains(words),
                "{error}"
            );
        }
        for text in ["{", &good.replace("[0.5]", "[0.5, 1]"), &good.replace("\"policy\"", "\"polity\"")] {
            std::fs::write(&path, text).unwrap();
            assert!(matches!(read(&path), Err(BaselineError::Unreadable(_))), "{text}");
        }
    }
}
