//! `loadgen compare RUN --baseline FILE`: the gate. A run against the one that was recorded for it, or a new record.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use super::Failure;
use super::shared::{refuse_input, write_file};
use crate::app::Exit;
use crate::gate::baseline::{self, BaselineError};
use crate::gate::{self, Comparison, Incompatible, LEAST_REPEATS, Outcome, Rules, Snapshot, Tolerance};
use crate::run::World;
use crate::say::{note, say};

/// The file to which a GitHub job's steps add what shall be shown on its page.
const STEP_SUMMARY: &str = "GITHUB_STEP_SUMMARY";

/// `loadgen compare RUN …`
#[derive(Debug, Clone, PartialEq, Args)]
pub struct Options {
    /// A folder with results, or its summary.json
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// What to compare with, for example reports/baselines/smoke.json
    #[arg(long, value_name = "FILE")]
    pub baseline: PathBuf,
    /// Record the run as the baseline, and show what that changes
    #[arg(long)]
    pub update: bool,
    /// Bounds of a live figure: its largest harmless change, as a share and in its own unit; may be repeated
    #[arg(long, value_name = "METRIC=RELATIVE[:ABSOLUTE]")]
    pub tolerance: Vec<Tolerance>,
    /// Compare live figures that were recorded on another machine
    #[arg(long)]
    pub any_machine: bool,
    /// Write all rows as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a test case per figure as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Write the table that is printed
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

/// Why a run was not compared.
#[derive(Debug, thiserror::Error)]
enum Uncompared {
    #[error(transparent)]
    Baseline(#[from] BaselineError),
    #[error("{}: {reason}", path.display())]
    Incompatible { path: PathBuf, reason: Incompatible },
}

impl Uncompared {
    fn exit(&self) -> Exit {
        match self {
            Self::Baseline(BaselineError::Unreadable(_)) => Exit::Usage,
            Self::Baseline(_) | Self::Incompatible { .. } => Exit::Baseline,
        }
    }
}

/// Compares or records a run, and tells what came of it.
pub(super) fn execute(options: &Options) -> Result<Exit, Failure> {
    let outputs = [&options.json, &options.junit, &options.markdown];
    refuse_input(outputs.into_iter().flatten(), "the baseline", [&options.baseline])?;
    let summary = options.run.join("summary.json");
    let outputs = outputs.into_iter().flatten().chain(options.update.then_some(&options.baseline));
    refuse_input(outputs, "the run", [&options.run, &summary])?;
    let run = gate::read_run(&options.run).map_err(Failure::usage)?;
    let compared = compared(options, &run);
    if options.update {
        return update(options, &run, compared);
    }
    let comparison = compared.map_err(|error| Failure::new(error.exit(), error))?;
    tell(options, &comparison)?;
    let exit = match comparison.outcome() {
        Outcome::Passed => return Ok(Exit::Done),
        Outcome::Failed => Exit::AssertFailed,
        Outcome::Unproven => Exit::Invalid,
    };
    Err(Failure::new(exit, gate::brief(&comparison)))
}

fn compared(options: &Options, run: &Snapshot) -> Result<Comparison, Uncompared> {
    let path = &options.baseline;
    let baseline = baseline::read(path)?;
    let rules = Rules::with(&options.tolerance, options.any_machine);
    gate::compare(&baseline, run, &rules)
        .map_err(|reason| Uncompared::Incompatible { path: path.clone(), reason })
}

/// Records the run. A void one is not worth it.
fn update(
    options: &Options,
    run: &Snapshot,
    former: Result<Comparison, Uncompared>,
) -> Result<Exit, Failure> {
    if let Some(reason) = run.invalid.first() {
        return Err(Failure::new(Exit::Invalid, format!("not recorded: {reason}")));
    }
    let path = options.baseline.display();
    baseline::write(&options.baseline, run)
        .map_err(|error| Failure::usage(format!("{path}: cannot be written: {error}")))?;
    let few = |cell: &&gate::Cell| cell.mode == World::Live && cell.repeats() < LEAST_REPEATS;
    if let Some(cell) = run.cells.iter().find(few) {
        note(format_args!(
            "loadgen: {path} has {} repeat(s) of live {}; a comparison needs {LEAST_REPEATS} (--seeds {LEAST_REPEATS})",
            cell.repeats(),
            cell.policy
        ));
    }
    if let Some(why) = run.disturbed.first() {
        note(format_args!("loadgen: WARNING {path} has live figures of a busy machine: {why}"));
    }
    match former {
        Ok(comparison) => tell(options, &comparison)?,
        Err(Uncompared::Baseline(BaselineError::Missing(_))) => {}
        Err(other) => {
            say(format_args!(
                "no difference is shown, because the former baseline is not comparable: {other}\n"
            ));
        }
    }
    say(format_args!("recorded: {path} ({} cells)\n", run.cells.len()));
    Ok(Exit::Done)
}

/// Prints the table and writes the files that were asked for.
fn tell(options: &Options, comparison: &Comparison) -> Result<(), Failure> {
    let remedy = format!(
        "loadgen compare {} --baseline {} --update",
        options.run.display(),
        options.baseline.display()
    );
    let table = gate::markdown(comparison, (!options.update).then_some(remedy.as_str()));
    say(&table);
    if let Some(path) = std::env::var_os(STEP_SUMMARY).filter(|path| !path.is_empty()) {
        let path = Path::new(&path);
        if let Err(error) = append(path, &table) {
            note(format_args!("loadgen: {STEP_SUMMARY} ({}) cannot be added to: {error}", path.display()));
        }
    }
    let json = || format!("{:#}\n", gate::json(comparison));
    write("--json", options.json.as_deref(), json)?;
    write("--junit", options.junit.as_deref(), || gate::junit(comparison))?;
    write("--markdown", options.markdown.as_deref(), || table.clone())
}

fn append(path: &Path, text: &str) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).open(path)?.write_all(format!("{text}\n").as_bytes())
}

fn write(flag: &str, path: Option<&Path>, text: impl FnOnce() -> String) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|error| {
            Failure::usage(format!("{flag} {}: cannot be made: {error}", folder.display()))
        })?;
    }
    write_file(flag, path, &text())
}
