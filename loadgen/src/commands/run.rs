//! `loadgen [run] SCENARIO`: every cell of a scenario, a table, and the files of a report.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::Args;

use super::Failure;
use super::shared::{Changes, Output};
use crate::app::Exit;
use crate::experiment::{self, Environment, Started};
use crate::report::{self, About, Experiment, Glyphs, Winner};
use crate::run::World;
use crate::say::{note, say};
use crate::scenario::{Mode, Scenario};

/// Most winners that are named on the terminal; the others have their files all the same.
const MOST_WINNERS: usize = 6;

/// `loadgen [run] SCENARIO …`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
// Whether a run is meant, where the word is left out, is known by the file; clap leaves groups of flattened flags empty.
#[group(arg = "scenario")]
pub struct Options {
    /// The scenario file
    #[arg(value_name = "SCENARIO")]
    pub scenario: PathBuf,
    /// What is laid over it
    #[command(flatten)]
    pub changes: Changes,
    /// Where to run it; overrides the file
    #[arg(long, value_name = "virtual|live|both", hide_possible_values = true)]
    pub mode: Option<Mode>,
    /// Where results go
    #[command(flatten)]
    pub output: Output,
}

/// Runs the scenario and writes and tells the results.
pub(super) fn execute(options: &Options) -> Result<Exit, Failure> {
    let started = Started::now();
    let (seeds, quiet) = (options.changes.seeds, options.output.quiet);
    let scenario = options.changes.load(&options.scenario, options.mode)?;
    tell_left_out(quiet, &scenario);
    let out = options.output.folder(&scenario, None)?;
    let results = experiment::run(&scenario, seeds, quiet).map_err(|e| Failure::new(exit_of(&e), e))?;
    let experiment = Experiment::new(
        about(&scenario, seeds),
        results.runs,
        scenario.slo,
        &scenario.asserts,
        Environment::capture(started).into_json(),
    );
    let kept = out.keep(|path| report::write(path, &experiment));
    tell(quiet, &experiment, kept.as_ref().ok().copied());
    for death in &results.deaths {
        note(format_args!("loadgen: {death}"));
    }
    kept?;
    Ok(if !results.deaths.is_empty() {
        Exit::Target
    } else if !experiment.invalid().is_empty() {
        Exit::Invalid
    } else if experiment.failed() {
        Exit::AssertFailed
    } else {
        Exit::Done
    })
}

/// Says which routers do not run: there is no copy of them in virtual time.
fn tell_left_out(quiet: bool, scenario: &Scenario) {
    if quiet || scenario.targets.is_empty() || !scenario.mode.worlds().contains(&World::Virtual) {
        return;
    }
    let names: Vec<&str> = scenario.targets.iter().map(|target| target.name.as_str()).collect();
    note(format_args!("targets run live only; left out of virtual time: {}", names.join(", ")));
}

/// What the report says about the scenario.
pub(super) fn about(scenario: &Scenario, seeds: Option<u32>) -> About {
    About {
        name: scenario.name.clone(),
        description: scenario.description.clone(),
        source: scenario.source.clone(),
        overrides: scenario.overrides.clone(),
        facts: experiment::facts(scenario, seeds),
        fingerprint: scenario.fingerprint.clone(),
        conclusion: None,
    }
}

/// Prints the comparison, and where the report is.
pub(super) fn tell(quiet: bool, experiment: &Experiment, report: Option<&PathBuf>) {
    if quiet {
        for (word, texts) in experiment.remarks() {
            texts.iter().for_each(|text| note(format_args!("loadgen: {word} {text}")));
        }
        for outcome in experiment.outcomes().iter().filter(|outcome| outcome.failed()) {
            note(format_args!("loadgen: {outcome}"));
        }
        return;
    }
    let mut text = report::table(experiment, glyphs(), columns());
    if let Some(out) = report {
        let _ = writeln!(text, "report: {}", out.join("report.html").display());
        tell_winners(&mut text, &report::winners(experiment), out);
        if let Some((world, why)) = report::undecided(experiment) {
            let _ = writeln!(text, "no winner, {}: {why}", world.label());
        }
    }
    say(text);
}

/// Tells what the winners are and how a router takes them.
fn tell_winners(to: &mut String, winners: &[Winner], out: &Path) {
    for Winner { file, contest, label, level, flags, .. } in winners.iter().take(MOST_WINNERS) {
        let word = if *level { "no difference" } else { "winner" };
        let contest = if contest.is_empty() { String::new() } else { format!(", {contest}") };
        let _ = writeln!(
            to,
            "{word}{contest}: {label}; to run it: router --config {} {flags}",
            out.join(file).display()
        );
    }
    if winners.len() > MOST_WINNERS {
        let more = winners.len() - MOST_WINNERS;
        let _ = writeln!(to, "...{more} more winners: {}", out.join("winner-*.toml").display());
    }
}

fn glyphs() -> Glyphs {
    if std::io::stdout().is_terminal() { Glyphs::Unicode } else { Glyphs::Ascii }
}

/// How wide the terminal is; where there is none, as wide as a table ever gets.
fn columns() -> u16 {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    size.ok().map(|size| size.ws_col).filter(|columns| *columns > 0).unwrap_or(report::WIDEST)
}

fn exit_of(error: &experiment::ExperimentError) -> Exit {
    use crate::live::LiveError;
    use experiment::ExperimentError::{Live, Virtual};
    match error {
        Live { source: LiveError::Start { .. } | LiveError::Driver(_), .. } => Exit::Target,
        Virtual { .. } => Exit::Usage,
    }
}
