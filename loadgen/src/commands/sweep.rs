//! `loadgen sweep SCENARIO`: any keys × values × seeds, on all cores; an interrupted sweep resumes.

use std::path::PathBuf;

use clap::Args;

use super::run::{about, tell};
use super::subject::virtual_only;
use super::{Failure, assignment};
use crate::app::{self, Exit};
use crate::experiment::{Environment, Started};
use crate::report::{self, Experiment};
use crate::scenario::{self, Mode, Scenario};
use crate::search::{assignments, sweep};

/// `loadgen sweep SCENARIO …`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Options {
    /// The scenario file
    #[arg(value_name = "SCENARIO")]
    pub scenario: PathBuf,
    /// A key of the file and the values to run it with, beside those of [sweep]; may be repeated
    #[arg(long, value_name = "PATH=V1,V2,…", value_parser = assignments)]
    pub key: Vec<(String, String)>,
    /// The policies to run, "*" for every policy that needs no header; overrides the file
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub policy: Option<Vec<String>>,
    /// How many seeds to run, counted up from the file's seed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub seeds: Option<u32>,
    /// A key of the file and its new value; may be repeated
    #[arg(long, value_name = "PATH=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// The trace to replay; overrides the file
    #[arg(long, value_name = "PATH")]
    pub trace: Option<PathBuf>,
    /// Where results go, and finished runs are kept (by default reports/NAME-sweep/)
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Begin anew, whatever runs are kept there
    #[arg(long)]
    pub fresh: bool,
    /// Print errors only
    #[arg(long)]
    pub quiet: bool,
    /// Sweeps run in virtual time only
    #[arg(long, value_name = "virtual", hide = true)]
    pub mode: Option<Mode>,
}

/// Runs what is not done yet, and writes and tells the results.
pub(super) fn execute(options: &Options) -> Result<Exit, Failure> {
    let started = Started::now();
    virtual_only(options.mode)?;
    let scenario = load(options)?;
    let out = options.out.clone().unwrap_or_else(|| format!("reports/{}-sweep", scenario.name).into());
    report::prepare(&out).map_err(Failure::usage)?;
    let swept =
        sweep::run(&scenario, options.seeds, &out, options.fresh, options.quiet).map_err(Failure::usage)?;
    let mut about = about(&scenario, options.seeds);
    let kept = "figures of every run; `loadgen run` of one setting keeps its requests and draws them";
    about.facts.push(("Kept".to_owned(), kept.to_owned()));
    let experiment = Experiment::of_figures(
        about,
        swept.runs,
        swept.summaries,
        &scenario.asserts,
        Environment::capture(started).into_json(),
    );
    let written =
        app::uninterrupted(|| report::write_figures(&out, &experiment, true)).map_err(Failure::usage);
    tell(options.quiet, &experiment, written.is_ok().then_some(&out));
    written?;
    Ok(if experiment.failed() { Exit::AssertFailed } else { Exit::Done })
}

fn load(options: &Options) -> Result<Scenario, Failure> {
    let overrides: Vec<(String, String)> = options.set.iter().chain(&options.key).cloned().collect();
    let mut scenario = scenario::load(
        &options.scenario,
        &overrides,
        options.policy.as_deref(),
        options.trace.as_deref(),
        Some(Mode::Virtual),
    )
    .map_err(Failure::usage)?;
    // Not typed by anybody.
    scenario.overrides.pop();
    Ok(scenario)
}
