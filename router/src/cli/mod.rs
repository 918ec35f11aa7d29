//! The command line: `router --worker-urls URL… [options]`, and its subcommands.
//!
//! Exit codes: 0 done, 2 the command line or a file that it names is wrong, which `check` finds too, 5 it cannot start now (an
//! address is taken).

mod absent;
mod args;
mod breaker;
mod check;
mod disaggregation;
#[cfg(test)]
mod doc;
mod endpoints;
mod file;
mod file_workers;
mod files;
mod given;
mod health;
mod ignored;
mod limits;
mod observe;
mod policies;
mod policy;
mod policy_section;
mod process;
mod readers;
pub(crate) mod reload;
mod retries;
mod sections;
mod security;
mod source;
mod stop;
#[cfg(test)]
mod tests;
mod timeouts;
mod traffic;
mod workers;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use router_core::Role;
use tracing_subscriber::EnvFilter;

pub(crate) use self::args::Parsed;
use self::observe::{LogLevel, RUST_LOG};
pub use self::policy_section::policy_section;
pub(crate) use self::readers::whole;
pub(crate) use self::reload::{Reloaded, reload};
pub(crate) use self::source::Source;
pub(crate) use self::stop::Stop;
use crate::config::Config;
use crate::limits::too_few_open_files;
use crate::server::Opened;
use crate::signals::{Ending, Signals};
use crate::{launch, log, raise_open_files, server};

const USAGE_ERROR: u8 = 2;
const START_ERROR: u8 = 5;

/// What messages call the program.
const ROUTER: &str = "router";

/// What the router does beside running.
struct Subcommand {
    name: &'static str,
    /// One line for people.
    about: &'static str,
    /// Is given the arguments after its name, and before them what it is called.
    main: fn(Vec<OsString>) -> ExitCode,
}

/// A new one is a new row.
const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand {
        name: "check",
        about: "Check the same flags and files as for a start, and print what they come to",
        main: check::main,
    },
    Subcommand { name: "help", about: "Show this, or the help of a subcommand", main: help },
    Subcommand {
        name: "launch",
        about: "Start workers and the router in front of them in one go",
        main: launch::main,
    },
    Subcommand { name: "policies", about: "List the policies with their options", main: policies::main },
];

/// Runs the router; `args` begin with the name of the program. The address it listens on goes to standard output
/// as one line of JSON, everything else to standard error.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let code = run_any(args.collect());
    log::flush();
    code
}

/// Runs the router, or what the first word says.
fn run_any(args: Vec<OsString>) -> ExitCode {
    if let Some(row) = args.get(1).and_then(|word| SUBCOMMANDS.iter().find(|row| *word == row.name)) {
        let name = OsString::from(format!("router {}", row.name));
        return (row.main)(std::iter::once(name).chain(args.into_iter().skip(2)).collect());
    }
    finish(ROUTER, watch_signals().and_then(|signals| run(&parse_router_args(args.into_iter())?, signals)))
}

/// To be done before anything else that may take its time.
///
/// # Errors
/// The operating system refuses.
pub(crate) fn watch_signals() -> Result<Signals, Stop> {
    Signals::watch().map_err(|error| Stop::Failed(format!("cannot watch for signals: {error}")))
}

/// `router help [SUBCOMMAND]` is `router [SUBCOMMAND] --help`.
fn help(args: Vec<OsString>) -> ExitCode {
    let of = args.into_iter().skip(1);
    main(std::iter::once(ROUTER.into()).chain(of).chain(["--help".into()]))
}

/// Reads the router's flags; the first argument is the name of the program.
///
/// # Errors
/// [`Stop`]; [`end`] tells it.
pub(crate) fn parse_router_args(args: impl Iterator<Item = OsString>) -> Result<Parsed, Stop> {
    args::parse(args, &|name| std::env::var_os(name))
}

/// Runs the router until it is told to end.
fn run(parsed: &Parsed, signals: Signals) -> Result<(), Stop> {
    begin(parsed)?;
    let opened = open(&parsed.config)?;
    start(&parsed.config, opened, signals.with_plan(parsed.config.shutdown.clone()))
}

/// Whether the router has an option of this name, without dashes, that does something.
pub(crate) fn has_option(name: &str) -> bool {
    args::command()
        .get_arguments()
        .any(|arg| arg.get_long() == Some(name) && arg.get_help_heading() != Some(ignored::HEADING))
}

/// What comes before the router is started: its log, and room for its connections.
///
/// # Errors
/// There can be no log.
pub(crate) fn begin(parsed: &Parsed) -> Result<(), Stop> {
    if let Some(directory) = &parsed.config.log_dir {
        log::keep_in(directory).map_err(|error| files::unwritable(directory, &error))?;
    }
    log_to_stderr(parsed.log_level);
    for warning in &parsed.warnings {
        tracing::warn!("{warning}");
    }
    raise_open_files();
    if let Some(warning) = too_few_open_files(parsed.config.connections.max_connections) {
        tracing::warn!("{warning}");
    }
    Ok(())
}

/// What the router cannot be started without: its files and its listeners.
///
/// # Errors
/// What is missing, with a remedy.
pub(crate) fn open(config: &Config) -> Result<Opened, Stop> {
    let count = |role| config.workers.iter().filter(|worker| worker.role == Some(role)).count();
    let [prefill, decode] =
        [Role::Prefill, Role::Decode].map(|role| Some(count(role)).filter(|count| *count > 0));
    let policy = |role, count: Option<usize>| count.map(|_| config.policies.get(role).name());
    tracing::info!(
        policy = config.policies.get(Role::Regular).name(),
        prefill_policy = policy(Role::Prefill, prefill),
        decode_policy = policy(Role::Decode, decode),
        seed = config.seed,
        workers = config.workers.len(),
        prefill_workers = prefill,
        decode_workers = decode,
        "starting"
    );
    server::open(config).map_err(Stop::from)
}

/// Starts the router, and returns when it has ended.
///
/// # Errors
/// It could not start.
pub(crate) fn start(config: &Config, opened: Opened, ending: Ending) -> Result<(), Stop> {
    server::run(config, opened, ending).map_err(Stop::from)
}

/// The exit code, and before it what there is to be told.
pub(crate) fn finish(program: &str, end: Result<(), Stop>) -> ExitCode {
    end.map_or_else(|stop| self::end(program, &stop), |()| ExitCode::SUCCESS)
}

/// Tells why nothing is run.
fn end(program: &str, stop: &Stop) -> ExitCode {
    match stop {
        Stop::Show(text) => show(text),
        Stop::Failed(_) => refuse(program, &stop.message(), START_ERROR),
        Stop::Wrong(_) | Stop::Flag { .. } => refuse(program, &stop.message(), USAGE_ERROR),
    }
}

/// Where nobody reads it, it has been shown.
fn show(text: &str) -> ExitCode {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn refuse(program: &str, message: &str, code: u8) -> ExitCode {
    log::write(format!("{program}: {message}\n").as_bytes());
    ExitCode::from(code)
}

/// `RUST_LOG`, when it is a filter, replaces the level.
fn log_to_stderr(level: LogLevel) {
    let given = observe::filter(level, std::env::var_os(RUST_LOG));
    let filter = given.unwrap_or_else(|_| EnvFilter::new(level.filter()));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| log::Writer);
    // Where nobody reads the log any more, there is nobody to tell that.
    let subscriber = subscriber.log_internal_errors(false);
    // Set already when the router is not alone in its process; then the first one stands.
    let _ = subscriber.with_ansi(false).try_init();
}
