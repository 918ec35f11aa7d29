//! `loadgen sweep SCENARIO`: any keys × values × seeds, on all cores; an interrupted sweep resumes.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;

use super::Failure;
use super::run::{about, tell};
use super::shared::{Changes, Output};
use crate::app::Exit;
use crate::experiment::{Environment, Started};
use crate::report::{self, Experiment};
use crate::scenario::Scenario;
use crate::search::{assignments, sweep};

/// `loadgen sweep SCENARIO …`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Options {
    /// The scenario file
    #[arg(value_name = "SCENARIO")]
    pub scenario: PathBuf,
    /// What is laid over it
    #[command(flatten)]
    pub changes: Changes,
    /// A key of the file and the values to run it with, beside those of [sweep]; may be repeated
    #[arg(long, value_name = "PATH=V1,V2,…", value_parser = assignments)]
    pub key: Vec<(String, String)>,
    /// Where results go, and finished runs are kept
    #[command(flatten)]
    pub output: Output,
    /// Begin anew, whatever runs are kept there
    #[arg(long)]
    pub fresh: bool,
}

/// Runs what is not done yet, and writes and tells the results.
pub(super) fn execute(options: &Options) -> Result<Exit, Failure> {
    let started = Started::now();
    let (seeds, quiet) = (options.changes.seeds, options.output.quiet);
    let scenario = load(options)?;
    let out = options.output.folder(&scenario, Some("sweep"))?;
    let swept = sweep::run(&scenario, seeds, &out.path, options.fresh, quiet).map_err(Failure::usage)?;
    let mut about = about(&scenario, seeds);
    let kept = "figures of every run; `loadgen run` of one setting keeps its requests and draws them";
    about.facts.push(("Kept".to_owned(), kept.to_owned()));
    let experiment = Experiment::of_figures(
        about,
        swept.runs,
        swept.summaries,
        &scenario.asserts,
        Environment::capture(started).into_json(),
    );
    // Where a run could not be kept, the folder or the disk fails for the results as well: one of the two is enough to tell.
    let unkept = swept.unkept.map_or(Ok(()), |error| Err(Failure::usage(error)));
    let kept = out.keep(|path| report::write_figures(path, &experiment, true));
    tell(quiet, &experiment, kept.as_ref().ok().copied());
    kept?;
    unkept?;
    Ok(if experiment.failed() { Exit::AssertFailed } else { Exit::Done })
}

/// The scenario with the keys of `--key`, each of which has one list.
fn load(options: &Options) -> Result<Scenario, Failure> {
    let mut known = BTreeSet::new();
    if let Some((path, _)) = options.key.iter().find(|(path, _)| !known.insert(path)) {
        let key = path.trim_start_matches("sweep.").trim_matches('"');
        let remedy = format!("write all its values in one list, --key {key}=V1,V2,…");
        return Err(Failure::usage(format!("--key {key} is given twice; {remedy}")));
    }
    options.changes.load_virtual(&options.scenario, &options.key)
}
