//! `loadgen tune SCENARIO|TRACE`: better settings of a policy, or the advice to leave it as it is.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::Failure;
use super::run::about;
use super::subject::Subject;
use crate::app::{self, Exit};
use crate::experiment::{Environment, Started};
use crate::report::{self, Experiment};
use crate::scenario::{Scenario, Template};
use crate::search::tune::{self, Objective, Question, Space, Tuned, Verdict};

/// The file of the recommended configuration.
const FILE: &str = "router.toml";

/// `loadgen tune SCENARIO|TRACE …`
#[derive(Debug, Clone, PartialEq, Args)]
pub struct Options {
    /// The scenario and what is laid over it
    #[command(flatten)]
    pub subject: Subject,
    /// What shall become better
    #[arg(long, value_name = "goodput|ttft_p90|hit_rate", hide_possible_values = true)]
    pub objective: Objective,
    /// Options of the policy and where to look: KEY=LOW..HIGH (`,log` behind it for even ratios) or KEY=V1|V2; for
    /// cache_aware its three thresholds when absent
    #[arg(long, value_name = "KEY=LOW..HIGH,…", value_parser = Space::parse)]
    pub space: Option<Space>,
    /// The policy in use, and others that may take its place
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "cache_aware")]
    pub policy: Vec<String>,
    /// How many settings to try
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub budget: u32,
    /// How many seeds the last settings are tried with (by default 12); twice as many others confirm the best. Of a trace 1
    /// is enough: its later half confirms
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub seeds: Option<u32>,
    /// Where results go (by default reports/NAME-tune/)
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print errors only
    #[arg(long)]
    pub quiet: bool,
}

/// Looks, and writes and tells what was found.
pub(super) fn execute(options: &Options) -> Result<Exit, Failure> {
    let started = Started::now();
    let template = options.subject.template(Some(&options.policy))?;
    let scenario = template.scenario().map_err(Failure::usage)?;
    let question = question(options, &scenario)?;
    let out = options.out.clone().unwrap_or_else(|| format!("reports/{}-tune", scenario.name).into());
    report::prepare(&out).map_err(Failure::usage)?;
    let tuned = tune::run(&scenario, &question).map_err(Failure::usage)?;
    let told = tune::told(&question, &tuned);
    let written =
        app::uninterrupted(|| write(&out, options, &template, &scenario, &question, &tuned, started));
    if !options.quiet {
        tell(&told, &tuned, written.is_ok().then_some(&out));
    }
    written?;
    Ok(Exit::Done)
}

fn question(options: &Options, scenario: &Scenario) -> Result<Question, Failure> {
    let space = match &options.space {
        Some(space) => space.clone(),
        None => {
            let spaces: Vec<&str> =
                options.policy.iter().filter_map(|name| tune::default_space(name)).collect();
            match spaces.is_empty() && options.policy.len() < 2 {
                true => {
                    return Err(Failure::usage(
                        "--space is missing: only cache_aware has a space of its own",
                    ));
                }
                false if spaces.is_empty() => Space::default(),
                false => Space::parse(&spaces.join(",")).map_err(Failure::usage)?,
            }
        }
    };
    let is_trace = matches!(scenario.workload, crate::scenario::Workload::Trace(_));
    Ok(Question {
        objective: options.objective,
        space,
        budget: options.budget as usize,
        seeds: options.seeds.unwrap_or(if is_trace { 1 } else { 12 }),
        quiet: options.quiet,
    })
}

/// Writes the report of the confirming runs, all that was tried, and the router's file where there is one.
fn write(
    out: &Path,
    options: &Options,
    template: &Template,
    scenario: &Scenario,
    question: &Question,
    tuned: &Tuned,
    started: Started,
) -> Result<(), Failure> {
    let confirmation = &tuned.confirmation;
    let mut about = about(scenario, options.seeds);
    about.facts.retain(|(name, _)| name != "Seeds");
    let file = tune::file(scenario, &about.facts, question, tuned);
    let verdict = tune::told(question, tuned).trim_end().replace('\n', "; ");
    about.facts.push(("Tuned".to_owned(), verdict));
    let experiment = Experiment::of_figures(
        about,
        confirmation.runs.clone(),
        confirmation.summaries.clone(),
        &[],
        Environment::capture(started).into_json(),
    );
    report::write_figures(out, &experiment, false).map_err(Failure::usage)?;
    let tried = serde_json::to_string_pretty(&tuned_json(scenario, question, tuned)).unwrap_or_default();
    let around = options.subject.is_trace().then(|| template.source().to_owned());
    let files = [("tune.json", Some(tried + "\n")), (FILE, file), ("scenario.toml", around)];
    report::write_others(out, &files).map_err(Failure::usage)
}

fn tuned_json(scenario: &Scenario, question: &Question, tuned: &Tuned) -> serde_json::Value {
    let found = &tuned.confirmation;
    json!({
        "schema": 1,
        "scenario": scenario.name,
        "objective": question.objective,
        "stages": tuned.stages,
        "tried": tuned.tried,
        "verdict": found.verdict,
        "flags": (found.verdict == Verdict::Change).then(|| tune::flags(&found.policy)),
        "best": { "policy": found.policy.name(), "params": tune::params_of(&found.policy) },
        "confirmed_on": found.unseen,
        "present_figure": found.base,
        "best_figure": found.best,
        "gain": found.gain,
        "gain_interval": found.interval.map(|interval| [interval.low, interval.high]),
    })
}

fn tell(told: &str, tuned: &Tuned, out: Option<&PathBuf>) {
    let mut stdout = std::io::stdout().lock();
    // A reader that has gone away is no reason to fail.
    let _ = write!(stdout, "{told}");
    let Some(out) = out else { return };
    if tuned.confirmation.verdict == Verdict::Change
        && let Some(cell) = tuned.confirmation.cells.last()
    {
        let fleet = &cell.scenario.fleet;
        let workers = report::worker_flags(&fleet.roles.pools(fleet.workers));
        let _ = writeln!(stdout, "to run it: router --config {} {workers}", out.join(FILE).display());
    }
    let _ = writeln!(stdout, "report: {}", out.join("report.html").display());
}
