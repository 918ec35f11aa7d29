//! `loadgen tune SCENARIO|TRACE`: better settings of a policy, or the advice to leave it as it is.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::Failure;
use super::run::about;
use super::shared::Output;
use super::subject::Subject;
use crate::app::Exit;
use crate::experiment::{Environment, Started};
use crate::report::{self, Conclusion, Experiment};
use crate::say::say;
use crate::scenario::{Scenario, Template, Workload};
use crate::search::tune::{self, Objective, Question, Side, Space, Tuned, Verdict};

/// The file of the recommended configuration.
const FILE: &str = "router.toml";
/// The policy that is tuned where none is named.
const POLICY: &str = "cache_aware";
/// The policies that are shown beside the recommended one in the scenario around a trace.
const BESIDE: [&str; 2] = ["round_robin", "power_of_two"];

/// Seeds of a generated workload: each is another sample of it. Of 12, the best of the search was more than a step of 0.1 away from
/// the threshold that a grid of 50 seeds knows as the best in 2 of 10 tunings (`scripts/performance/tune.py`).
const SEEDS: u32 = 24;
/// Seeds of a trace. Its requests are the same for all; what is drawn are ties, and times within a coarse grid. With one seed
/// these draws alone have turned advice round.
const SEEDS_OF_TRACE: u32 = 5;

/// `loadgen tune SCENARIO|TRACE …`
#[derive(Debug, Clone, PartialEq, Args)]
pub struct Options {
    /// The scenario and what is laid over it
    #[command(flatten)]
    pub subject: Subject,
    /// What shall become better
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Objective::TtftP90)]
    pub objective: Objective,
    /// Options of the policy and where to look: KEY=LOW..HIGH (`,log` behind it for even ratios) or KEY=V1|V2; when absent those
    /// that are worth a search, for cache_aware its three thresholds
    #[arg(long, value_name = "KEY=LOW..HIGH,…", value_parser = Space::parse)]
    pub space: Option<Space>,
    /// The policy in use, and others that may take its place; cache_aware when absent
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub policy: Option<Vec<String>>,
    /// How many settings to try, beside the present ones
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub budget: u32,
    /// How many seeds the last settings are tried with: 24 when absent, and as many others, at least 20, confirm the best; 5 of a
    /// trace, whose later half confirms with the same seeds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub seeds: Option<u32>,
    /// Where results go
    #[command(flatten)]
    pub output: Output,
}

/// Looks, and writes and tells what was found.
pub(super) fn execute(options: &Options) -> Result<Exit, Failure> {
    let started = Started::now();
    let mut template = options.subject.template(options.policy.as_deref())?;
    if options.policy.is_none() {
        template = template.with_policy(POLICY);
    }
    let scenario = template.scenario().map_err(Failure::usage)?;
    let question = question(options, &scenario)?;
    let out = options.output.folder(&scenario, Some("tune"))?;
    let tuned = tune::run(&scenario, &question).map_err(Failure::usage)?;
    let conclusion = tune::conclusion(&question, &tuned);
    let around = options.subject.is_trace().then(|| around(&template, &scenario, &tuned, &conclusion));
    let outcome = Outcome { scenario: &scenario, question: &question, tuned: &tuned };
    let kept = out.keep(|path| outcome.write(path, conclusion, around, options.seeds, started));
    if !options.output.quiet {
        outcome.tell(kept.as_ref().ok().copied());
    }
    kept?;
    Ok(Exit::Done)
}

fn question(options: &Options, scenario: &Scenario) -> Result<Question, Failure> {
    let space = options.space.clone().unwrap_or_else(|| Space::of_policies(&scenario.policies));
    // Several policies can be compared without one.
    if space.is_empty() && scenario.policies.len() == 1 {
        let policy = &scenario.policies[0];
        return Err(Failure::usage(format!(
            "--space is missing: no option of {policy} is searched unless it is named"
        )));
    }
    let is_trace = matches!(scenario.workload, Workload::Trace(_));
    Ok(Question {
        objective: options.objective,
        space,
        budget: options.budget as usize,
        seeds: options.seeds.unwrap_or(if is_trace { SEEDS_OF_TRACE } else { SEEDS }),
        quiet: options.output.quiet,
    })
}

/// The scenario around a trace as a file: what is advised, and other policies beside it.
fn around(template: &Template, scenario: &Scenario, tuned: &Tuned, conclusion: &Conclusion) -> String {
    let policy = &tuned.confirmation.advised().cell.policy;
    let mut policies: Vec<&str> = BESIDE.to_vec();
    let named = scenario.policies.iter().map(String::as_str).chain([policy.name()]);
    for name in named {
        if !policies.contains(&name) {
            policies.push(name);
        }
    }
    let fleet = &scenario.fleet;
    let description = format!("{}. {}", conclusion.headline, conclusion.reasons);
    let mut file = template
        .with_value(&["description"], &json!(description))
        .with_value(&["fleet", "workers"], &json!(fleet.workers))
        .with_value(&["fleet", "preset"], &json!(fleet.preset))
        .with_value(&["router", "policies"], &json!(policies));
    for (key, value) in tune::params_of(policy) {
        file = file.with_value(&["router", "options", policy.name(), &key], &value);
    }
    let remark =
        "# Written by loadgen tune: the trace, the fleet, and the policy with the options that it advises.\n";
    format!("{remark}{}", file.to_toml())
}

/// What was asked and what was found.
#[derive(Clone, Copy)]
struct Outcome<'o> {
    scenario: &'o Scenario,
    question: &'o Question,
    tuned: &'o Tuned,
}

impl Outcome<'_> {
    /// Writes the report of the confirming runs, all that was tried, and the router's file where there is one.
    fn write(
        self,
        out: &Path,
        conclusion: Conclusion,
        around: Option<String>,
        seeds: Option<u32>,
        started: Started,
    ) -> Result<(), Failure> {
        let mut about = about(self.scenario, seeds);
        about.facts.retain(|(name, _)| name != "Seeds");
        let file = tune::file(self.scenario, &about.facts, self.question, self.tuned);
        about.conclusion = Some(conclusion);
        let found = &self.tuned.confirmation;
        let experiment = Experiment::of_figures(
            about,
            found.sides().flat_map(|side| side.runs.iter().cloned()).collect(),
            found.sides().flat_map(|side| side.summaries.iter().cloned()).collect(),
            &[],
            Environment::capture(started).into_json(),
        );
        report::write_figures(out, &experiment, false).map_err(Failure::usage)?;
        let json = serde_json::to_string_pretty(&self.to_json()).unwrap_or_default();
        let files = [("tune.json", Some(json + "\n")), (FILE, file), ("scenario.toml", around)];
        report::write_others(out, &files).map_err(Failure::usage)
    }

    fn to_json(self) -> serde_json::Value {
        let (question, tuned) = (self.question, self.tuned);
        let found = &tuned.confirmation;
        let best = found.challenger.as_ref();
        json!({
            "schema": 1,
            "scenario": self.scenario.name,
            "objective": question.objective,
            "stages": tuned.stages,
            "settings_tried": tuned.drawn(),
            "tried": tuned.tried,
            "verdict": found.verdict,
            "reason": tune::reason(question, tuned),
            "flags": (found.verdict == Verdict::Change).then(|| tune::flags(&found.advised().cell.policy)),
            "present": side(&found.present),
            "best": side(best.map_or(&found.present, |best| &best.side)),
            "others": found.others.iter().map(side).collect::<Vec<_>>(),
            "put_back": best.map_or(&[][..], |best| &best.put_back),
            "confirmed_on": found.unseen,
            "gain": best.map_or(0.0, |best| best.gain),
            "gain_interval": best.and_then(|best| best.interval).map(|interval| [interval.low, interval.high]),
            "overloaded": found.advised().figures.overloaded(),
        })
    }

    fn tell(self, out: Option<&PathBuf>) {
        let found = &self.tuned.confirmation;
        let mut told = tune::told(self.question, self.tuned);
        if let Some(out) = out {
            if found.verdict == Verdict::Change {
                let fleet = &found.advised().cell.scenario.fleet;
                let workers = report::worker_flags(&fleet.roles.pools(fleet.workers));
                let _ = writeln!(told, "to run it: router --config {} {workers}", out.join(FILE).display());
            }
            let _ = writeln!(told, "report: {}", out.join("report.html").display());
        }
        // For scripts.
        let _ = writeln!(told, "verdict: {}", found.verdict.name());
        say(told);
    }
}

/// A setting, and what it came to where it was confirmed.
fn side(side: &Side) -> serde_json::Value {
    let policy = &side.cell.policy;
    json!({
        "policy": policy.name(),
        "params": tune::params_of(policy),
        "value": side.value,
        "figures": side.figures,
    })
}
