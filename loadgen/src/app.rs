//! The program: command line in, results and an exit code out.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::cli::{self, Options};
use crate::experiment::{self, Environment, Started};
use crate::report::{self, About, Experiment, Glyphs};
use crate::scenario::{self, Scenario};

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
    exit_on_interrupt();
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
        about(&scenario),
        results.runs,
        scenario.slo,
        &scenario.asserts,
        Environment::capture(started).into_json(),
    );
    if !options.quiet {
        print!("{}", report::table(&experiment, glyphs()));
    }
    report::write(&out, &experiment).map_err(|e| (Exit::Usage, e.to_string()))?;
    if !options.quiet {
        println!("report: {}", out.join("report.html").display());
    }
    for death in &results.deaths {
        eprintln!("loadgen: {death}");
    }
    Ok(match (results.deaths.is_empty(), experiment.failed()) {
        (false, _) => Exit::Target,
        (true, true) => Exit::AssertFailed,
        (true, false) => Exit::Done,
    })
}

/// What the report says about the scenario.
fn about(scenario: &Scenario) -> About {
    About {
        name: scenario.name.clone(),
        description: scenario.description.clone(),
        source: scenario.source.clone(),
        facts: experiment::facts(scenario),
    }
}

fn glyphs() -> Glyphs {
    if std::io::stdout().is_terminal() { Glyphs::Unicode } else { Glyphs::Ascii }
}

fn exit_of(error: &experiment::ExperimentError) -> Exit {
    use crate::live::LiveError;
    use experiment::ExperimentError::{Live, Virtual};
    match error {
        Live { source: LiveError::Start { .. } | LiveError::Driver(_), .. } => Exit::Target,
        Virtual { .. } => Exit::Usage,
    }
}

/// Ends the process at Ctrl-C. Children of a live run see their standard input close and end too.
fn exit_on_interrupt() {
    let wait = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(tokio::signal::ctrl_c())?;
        eprintln!("loadgen: interrupted; no results were written");
        std::process::exit(Exit::Interrupted as i32);
        #[expect(unreachable_code, reason = "gives the closure its type")]
        std::io::Result::Ok(())
    };
    std::thread::spawn(move || {
        if let Err(error) = wait() {
            eprintln!("loadgen: Ctrl-C will not clean up: {error}");
        }
    });
}
