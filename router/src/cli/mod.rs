//! The command line: `router --worker-urls URL… [options]`, and its subcommands.
//!
//! Exit codes: 0 done, 2 the command line or the file is wrong, 5 it cannot start (an address is taken).

mod absent;
mod args;
mod breaker;
mod check;
#[cfg(test)]
mod doc;
mod endpoints;
mod file;
mod file_workers;
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
use std::path::Path;
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

pub(crate) use self::args::Parsed;
use self::observe::LogLevel;
pub use self::policy_section::policy_section;
pub(crate) use self::reload::reload;
pub(crate) use self::source::Source;
pub(crate) use self::stop::Stop;
use crate::config::Config;
use crate::{launch, log, raise_open_files, server};

pub(crate) const USAGE_ERROR: u8 = 2;
pub(crate) const START_ERROR: u8 = 5;

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
    let args: Vec<OsString> = args.collect();
    if let Some(row) = args.get(1).and_then(|word| SUBCOMMANDS.iter().find(|row| *word == row.name)) {
        let name = OsString::from(format!("router {}", row.name));
        return (row.main)(std::iter::once(name).chain(args.into_iter().skip(2)).collect());
    }
    match parse_router_args(args.into_iter()) {
        Ok(parsed) => run(&parsed),
        Err(stop) => end(&stop),
    }
}

/// Reads the router's flags; the first argument is the name of the program.
///
/// # Errors
/// [`Stop`]; [`end`] tells it.
pub(crate) fn parse_router_args(args: impl Iterator<Item = OsString>) -> Result<Parsed, Stop> {
    args::parse(args, &|name| std::env::var_os(name))
}

/// Runs the router until it is told to end.
pub(crate) fn run(parsed: &Parsed) -> ExitCode {
    match begin(parsed) {
        Ok(()) => start(&parsed.config),
        Err(message) => refuse(&message, START_ERROR),
    }
}

/// What comes before the router is started: its log, and room for its connections.
///
/// # Errors
/// There can be no log.
pub(crate) fn begin(parsed: &Parsed) -> Result<(), String> {
    if let Some(directory) = &parsed.config.log_dir {
        keep_log(directory)?;
    }
    log_to_stderr(parsed.log_level);
    for warning in &parsed.warnings {
        tracing::warn!("{warning}");
    }
    raise_open_files();
    Ok(())
}

/// Tells why nothing is run.
pub(crate) fn end(stop: &Stop) -> ExitCode {
    match stop {
        Stop::Show(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        wrong => refuse(&wrong.message(), USAGE_ERROR),
    }
}

/// Starts the router, and returns when it has ended.
pub(crate) fn start(config: &Config) -> ExitCode {
    tracing::info!(
        policy = config.policy.name(),
        seed = config.seed,
        workers = config.workers.len(),
        "starting"
    );
    match server::run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&error.to_string(), START_ERROR),
    }
}

fn refuse(message: &str, code: u8) -> ExitCode {
    log::write(format!("router: {message}\n").as_bytes());
    ExitCode::from(code)
}

fn keep_log(directory: &Path) -> Result<(), String> {
    log::keep_in(directory).map_err(|error| {
        let remedy = "give a directory that the router may write to";
        format!("--log-dir: cannot write in `{}`: {error}; {remedy}", directory.display())
    })
}

/// `RUST_LOG`, when it is set, replaces the level.
fn log_to_stderr(level: LogLevel) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level.filter()));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| log::Writer);
    // Where nobody reads the log any more, there is nobody to tell that.
    let subscriber = subscriber.log_internal_errors(false);
    // Set already when the router is not alone in its process; then the first one stands.
    let _ = subscriber.with_ansi(false).try_init();
}
