//! `loadgen capacity SCENARIO|TRACE`: the highest load that meets the objectives, for each policy.

use std::fmt::Write as _;

use clap::Args;
use serde_json::json;

use super::Failure;
use super::shared::Output;
use super::subject::Subject;
use crate::app::Exit;
use crate::report;
use crate::say::say;
use crate::scenario::Scenario;
use crate::search::capacity::{self, Capacity, Dial, Question, Verdict};

/// `loadgen capacity SCENARIO|TRACE …`
#[derive(Debug, Clone, PartialEq, Args)]
pub struct Options {
    /// The scenario and what is laid over it
    #[command(flatten)]
    pub subject: Subject,
    /// The policies, "*" for every policy that needs no header; overrides the file
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub policy: Option<Vec<String>>,
    /// Share of the requests that have to meet both objectives
    #[arg(long, value_name = "SHARE", default_value_t = 0.99, value_parser = share)]
    pub attainment: f64,
    /// How many seeds each load is run with, counted up from the file's seed; their median counts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub seeds: Option<u32>,
    /// Where results go
    #[command(flatten)]
    pub output: Output,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| "use a number above 0 and up to 1, for example 0.99".to_owned())
}

/// Searches, and writes and tells what was found.
pub(super) fn execute(options: &Options) -> Result<Exit, Failure> {
    let template = options.subject.template(options.policy.as_deref())?;
    let scenario = template.scenario().map_err(Failure::usage)?;
    let out = options.output.folder(&scenario, Some("capacity"))?;
    let question =
        Question { attainment: options.attainment, seeds: options.seeds, quiet: options.output.quiet };
    let (dial, found) = capacity::run(&template, question).map_err(Failure::usage)?;
    let json = serde_json::to_string_pretty(&to_json(&scenario, question, &dial, &found)).unwrap_or_default();
    let files = [("capacity.json", Some(json + "\n")), ("capacity.csv", Some(to_csv(&found)))];
    let kept = out.keep(|path| report::write_others(path, &files));
    if !options.output.quiet {
        let mut text = table(&scenario, question, &dial, &found);
        if let Ok(path) = &kept {
            let _ = writeln!(text, "points: {}", path.join("capacity.csv").display());
        }
        say(text);
    }
    kept?;
    Ok(Exit::Done)
}

fn to_json(scenario: &Scenario, question: Question, dial: &Dial, found: &[Capacity]) -> serde_json::Value {
    let slo = scenario
        .slo
        .map(|slo| json!({"ttft_ms": slo.ttft_ns as f64 / 1e6, "tpot_ms": slo.tpot_ns as f64 / 1e6}));
    json!({
        "schema": 1,
        "scenario": scenario.name,
        "unit": dial.unit,
        "slo": slo,
        "attainment": question.attainment,
        "policies": found,
    })
}

fn to_csv(found: &[Capacity]) -> String {
    let mut out =
        "policy,load,attainment,met,ttft_p90_ms,makespan_s,missed_ttft,missed_tpot,failed,in_flight\n"
            .to_owned();
    for (policy, point) in found.iter().flat_map(|of| of.points.iter().map(move |point| (&of.policy, point)))
    {
        let ttft = point.ttft_p90_ms.map_or(String::new(), |ms| ms.to_string());
        let _ = writeln!(
            out,
            "{policy},{},{},{},{ttft},{},{},{},{},{}",
            point.load,
            point.attainment,
            point.met,
            point.makespan_s,
            point.missed_ttft,
            point.missed_tpot,
            point.failed,
            point.in_flight
        );
    }
    out
}

/// One line for each policy.
fn table(scenario: &Scenario, question: Question, dial: &Dial, found: &[Capacity]) -> String {
    let seeds = scenario.seeds(question.seeds).count();
    let over = if seeds == 1 { "one seed".to_owned() } else { format!("median of {seeds} seeds") };
    let mut out = format!("{}, virtual, {over}: the highest load that meets the objectives\n", scenario.name);
    if let Some(slo) = scenario.slo {
        let (ttft, tpot) = (slo.ttft_ns as f64 / 1e6, slo.tpot_ns as f64 / 1e6);
        let share = question.attainment * 100.0;
        let _ =
            writeln!(out, "TTFT at most {ttft} ms and TPOT at most {tpot} ms for {share} % of the requests");
    }
    let widest = |heading: &str, cell: fn(&Capacity) -> String| {
        found.iter().map(|of| cell(of).len()).chain([heading.len()]).max().unwrap_or(0)
    };
    let (first, second) = (widest("policy", |of| of.policy.clone()), widest("highest", highest).max(10));
    let _ = writeln!(
        out,
        "\n{:<first$}  {:>second$}  {:>9}  {:>11}  {}",
        "policy", "highest", "met by %", "exceeded at", dial.unit
    );
    for of in found {
        let at = of.points.iter().find(|point| Some(point.load) == of.highest);
        let met = at.map_or("-".to_owned(), |point| format!("{:.2}", point.attainment * 100.0));
        let exceeded = of.exceeded_at.map_or("never".to_owned(), |load| load.to_string());
        let _ = writeln!(out, "{:<first$}  {:>second$}  {met:>9}  {exceeded:>11}", of.policy, highest(of));
    }
    out.push('\n');
    for (of, cause) in found.iter().filter_map(|of| Some((of, of.cause.as_ref()?))) {
        let word = if of.verdict == Verdict::Unreachable { "unreachable: " } else { "" };
        let _ = writeln!(out, "{}: {word}{cause}", of.policy);
    }
    out.extend(capacity::caveat(scenario, found).map(|caveat| caveat + "\n"));
    out
}

/// The highest load that met the objectives, as far as one is known.
fn highest(of: &Capacity) -> String {
    match (of.highest, of.verdict) {
        (None, _) => "none".to_owned(),
        (Some(load), Verdict::MoreThan) => format!("more than {load}"),
        (Some(load), _) => load.to_string(),
    }
}
