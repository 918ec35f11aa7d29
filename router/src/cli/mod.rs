//! The command line: `router --worker-urls URL… [options]`.
//!
//! Exit codes: 0 done, 2 the command line is wrong, 5 it cannot start (an address is taken).

mod absent;
mod args;
mod breaker;
mod endpoints;
mod health;
mod limits;
mod observe;
mod policy;
mod retries;
mod stop;
#[cfg(test)]
mod tests;
mod timeouts;
mod traffic;
mod values;

use std::ffi::OsString;
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

use self::observe::LogLevel;
use self::stop::Stop;
use crate::config::Config;
use crate::{raise_open_files, server};

const USAGE_ERROR: u8 = 2;
const START_ERROR: u8 = 5;

/// Runs the router; `args` begin with the name of the program. The address it listens on goes to standard output
/// as one line of JSON, everything else to standard error.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let parsed = match args::parse(args) {
        Ok(parsed) => parsed,
        Err(Stop::Show(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(Stop::Wrong(message)) => return refuse(&message, USAGE_ERROR),
    };
    log_to_stderr(parsed.log_level);
    for warning in &parsed.warnings {
        tracing::warn!("{warning}");
    }
    raise_open_files();
    start(&parsed.config)
}

fn start(config: &Config) -> ExitCode {
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
    eprintln!("router: {message}");
    ExitCode::from(code)
}

/// `RUST_LOG`, when it is set, replaces the level.
fn log_to_stderr(level: LogLevel) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level.filter()));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Where nobody reads the log any more, there is nobody to tell that.
    let subscriber = subscriber.log_internal_errors(false);
    // Set already when the router is not alone in its process; then the first one stands.
    let _ = subscriber.with_ansi(false).try_init();
}
