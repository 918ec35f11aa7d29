//! The program: command line in, results and an exit code out.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{self, Options};
use crate::experiment::{self, Environment, Started};
use crate::live;
use crate::report::{self, About, Experiment, Glyphs, Winner};
use crate::scenario::{self, Scenario};

/// Most winners that are named on the terminal; the others have their files all the same.
const MOST_WINNERS: usize = 6;

/// The exit codes that scripts may rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, and every assert holds.
    Done = 0,
    /// An assert failed.
    AssertFailed = 1,
    /// The command line, the scenario or the trace is wrong, or the results cannot be written.
    Usage = 2,
    /// A live run measured the generator and not the router.
    Invalid = 4,
    /// A target did not start or died.
    Target = 5,
    /// Interrupted from the keyboard.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Runs the program with `args` (the first is the program's name).
#[must_use]
pub fn main(args: Vec<OsString>) -> ExitCode {
    let options = match cli::parse(args) {
        Ok(options) => options,
        Err(exit) => return exit,
    };
    exit_on_signal();
    match run(&options) {
        Ok(exit) => exit.into(),
        Err((exit, message)) => {
            eprintln!("loadgen: {message}");
            exit.into()
        }
    }
}

fn run(options: &Options) -> Result<Exit, (Exit, String)> {
    let started = Started::now();
    let scenario = scenario::load(
        &options.scenario,
        &options.set,
        options.policy.as_deref(),
        options.trace.as_deref(),
        options.mode,
    )
    .map_err(|e| (Exit::Usage, e.to_string()))?;
    let out = options.out.clone().unwrap_or_else(|| PathBuf::from("reports").join(&scenario.name));
    // Found out now, not after minutes of work.
    report::prepare(&out).map_err(|e| (Exit::Usage, e.to_string()))?;
    let results =
        experiment::run(&scenario, options.seeds, options.quiet).map_err(|e| (exit_of(&e), e.to_string()))?;
    let experiment = Experiment::new(
        about(&scenario, options.seeds),
        results.runs,
        scenario.slo,
        &scenario.asserts,
        Environment::capture(started).into_json(),
    );
    let writing = WRITING.lock();
    let written = report::write(&out, &experiment).map_err(|e| (Exit::Usage, e.to_string()));
    drop(writing);
    tell(options, &experiment, written.is_ok().then_some(&out));
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

/// What the report says about the scenario.
fn about(scenario: &Scenario, seeds: Option<u32>) -> About {
    About {
        name: scenario.name.clone(),
        description: scenario.description.clone(),
        source: scenario.source.clone(),
        overrides: scenario.overrides.clone(),
        facts: experiment::facts(scenario, seeds),
    }
}

/// Prints the comparison, and where the report is. A reader that has gone away is no reason to fail.
fn tell(options: &Options, experiment: &Experiment, report: Option<&PathBuf>) {
    if options.quiet {
        for run in experiment.invalid() {
            eprintln!("loadgen: INVALID {run}");
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

/// Held while results are written, so that an interrupt finds all of them or none.
static WRITING: Mutex<()> = Mutex::new(());

/// Ends the process and its children at Ctrl-C, and when it is asked to end.
fn exit_on_signal() {
    std::thread::spawn(|| match wait_for_signal() {
        Ok((name, code)) => {
            live::end_all_children();
            let _finished = WRITING.lock();
            eprintln!("loadgen: ended by {name} before the results were complete");
            std::process::exit(code);
        }
        Err(error) => eprintln!("loadgen: Ctrl-C will not clean up: {error}"),
    });
}

/// The first signal that asks for an end, and the exit code of it: 128 and its number, as shells have it.
fn wait_for_signal() -> std::io::Result<(&'static str, i32)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        Ok(tokio::select! {
            _ = interrupt.recv() => ("an interrupt", Exit::Interrupted as i32),
            _ = terminate.recv() => ("SIGTERM", 143),
            _ = hangup.recv() => ("SIGHUP", 129),
        })
    })
}
