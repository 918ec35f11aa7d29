//! `loadgen [run] SCENARIO`: every cell of a scenario, a table, and the files of a report.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use super::{Failure, assignment};
use crate::app::{self, Exit};
use crate::experiment::{self, Environment, Started};
use crate::report::{self, About, Experiment, Glyphs, Winner};
use crate::run::World;
use crate::scenario::{self, Mode, Scenario};

/// Most winners that are named on the terminal; the others have their files all the same.
const MOST_WINNERS: usize = 6;

/// `loadgen [run] SCENARIO …`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Options {
    /// The scenario file
    #[arg(value_name = "SCENARIO")]
    pub scenario: PathBuf,
    /// Where to run it; overrides the file
    #[arg(long, value_name = "virtual|live|both", hide_possible_values = true)]
    pub mode: Option<Mode>,
    /// The policies to run, "*" for every policy that needs no header; overrides the file
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub policy: Option<Vec<String>>,
    /// How many seeds to run, counted up from the file's seed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub seeds: Option<u32>,
    /// A key of the file and its new value, for example `--set fleet.workers=4`; may be repeated
    #[arg(long, value_name = "PATH=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// The trace to replay; overrides the file
    #[arg(long, value_name = "PATH")]
    pub trace: Option<PathBuf>,
    /// Where results go (by default reports/NAME-OF-THE-SCENARIO/)
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print errors only
    #[arg(long)]
    pub quiet: bool,
}

/// Runs the scenario and writes and tells the results.
pub(super) fn execute(options: &Options) -> Result<Exit, Failure> {
    let started = Started::now();
    let scenario = scenario::load(
        &options.scenario,
        &options.set,
        options.policy.as_deref(),
        options.trace.as_deref(),
        options.mode,
    )
    .map_err(Failure::usage)?;
    tell_left_out(options.quiet, &scenario);
    let out = options.out.clone().unwrap_or_else(|| PathBuf::from("reports").join(&scenario.name));
    // Found out now, not after minutes of work.
    report::prepare(&out).map_err(Failure::usage)?;
    let results =
        experiment::run(&scenario, options.seeds, options.quiet).map_err(|e| Failure::new(exit_of(&e), e))?;
    let experiment = Experiment::new(
        about(&scenario, options.seeds),
        results.runs,
        scenario.slo,
        &scenario.asserts,
        Environment::capture(started).into_json(),
    );
    let written = app::uninterrupted(|| report::write(&out, &experiment)).map_err(Failure::usage);
    tell(options.quiet, &experiment, written.is_ok().then_some(&out));
    for death in &results.deaths {
        eprintln!("loadgen: {death}");
    }
    written?;
    Ok(match () {
        () if !results.deaths.is_empty() => Exit::Target,
        () if !experiment.invalid().is_empty() => Exit::Invalid,
        () if experiment.failed() => Exit::AssertFailed,
        () => Exit::Done,
    })
}

/// Says which routers do not run: there is no copy of them in virtual time.
fn tell_left_out(quiet: bool, scenario: &Scenario) {
    if quiet || scenario.targets.is_empty() || !scenario.mode.worlds().contains(&World::Virtual) {
        return;
    }
    let names: Vec<&str> = scenario.targets.iter().map(|target| target.name.as_str()).collect();
    eprintln!("targets run live only; left out of virtual time: {}", names.join(", "));
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
    }
}

/// Prints the comparison, and where the report is. A reader that has gone away is no reason to fail.
pub(super) fn tell(quiet: bool, experiment: &Experiment, report: Option<&PathBuf>) {
    if quiet {
        for run in experiment.invalid() {
            eprintln!("loadgen: INVALID {run}");
        }
        for warning in experiment.warnings() {
            eprintln!("loadgen: WARNING {warning}");
        }
        for outcome in experiment.outcomes().iter().filter(|outcome| outcome.failed()) {
            eprintln!("loadgen: {outcome}");
        }
        return;
    }
    let mut stdout = std::io::stdout().lock();
    let _ = write!(stdout, "{}", report::table(experiment, glyphs(), columns()));
    if let Some(out) = report {
        let _ = writeln!(stdout, "report: {}", out.join("report.html").display());
        tell_winners(&mut stdout, &report::winners(experiment), out);
    }
    let _ = stdout.flush();
}

/// Prints what the winners are and how a router takes them.
fn tell_winners(to: &mut impl Write, winners: &[Winner], out: &Path) {
    for Winner { file, contest, label, flags, .. } in winners.iter().take(MOST_WINNERS) {
        let contest = if contest.is_empty() { String::new() } else { format!(", {contest}") };
        let _ = writeln!(
            to,
            "winner{contest}: {label}; to run it: router --config {} {flags}",
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
