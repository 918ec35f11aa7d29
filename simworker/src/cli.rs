//! The command line: from arguments to workers that run, and to an exit code.

mod args;
mod calibrate;
mod foreign;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use simworker_core::EngineRole;

use crate::host::{Host, StartError};
use args::{Args, Command};

/// Wrong usage.
const EXIT_USAGE: u8 = 2;
/// The workers could not start.
const EXIT_START: u8 = 5;

/// Runs the binary with these arguments, the first of which is the program's name. Returns when the process is to end.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let (args, warning) = match parse(args) {
        Ok(parsed) => parsed,
        Err(error) => return usage(&error),
    };
    if let Some(Command::Calibrate(args)) = &args.command {
        return calibrate::run(args);
    }
    if let Some(warning) = warning {
        eprintln!("simworker: {warning}");
    }
    raise_open_files();
    let host = match start(&args) {
        Ok(host) => host,
        Err(StartFailure { message, code }) => {
            eprintln!("simworker: {message}");
            return ExitCode::from(code);
        }
    };
    let urls: Vec<String> = host.urls().collect();
    let mut stdout = std::io::stdout();
    let mut line = serde_json::json!({ "listening": urls });
    if host.is_disaggregated() {
        line["roles"] = host.roles().iter().map(|role| role_word(*role)).collect();
        line["bootstrap_ports"] = serde_json::json!(host.bootstrap_ports());
    }
    if !host.kv_events().is_empty() {
        let endpoints = host.kv_events().iter().map(
            |kv| serde_json::json!({ "endpoints": kv.endpoints, "replay_endpoints": kv.replay_endpoints }),
        );
        line["kv_events"] = endpoints.collect();
    }
    if let Some(control) = host.control() {
        line["control"] = format!("http://{control}").into();
    }
    if writeln!(stdout, "{line}").and_then(|()| stdout.flush()).is_err() {
        // Whoever started this is gone.
        return ExitCode::from(EXIT_START);
    }
    wait(args.exit_with_stdin);
    drop(host);
    ExitCode::SUCCESS
}

/// What a router calls the role.
fn role_word(role: EngineRole) -> &'static str {
    match role {
        EngineRole::Whole => "regular",
        EngineRole::Prefill | EngineRole::Decode => role.label(),
    }
}

/// The arguments, and a line about those that are ignored.
fn parse(args: impl Iterator<Item = OsString>) -> Result<(Args, Option<String>), clap::Error> {
    let matches = foreign::accept(Args::command()).try_get_matches_from(args)?;
    Ok((Args::from_arg_matches(&matches)?, foreign::warning(&matches)))
}

/// Allows as many open files as the system lets the process have: every connection is one, and many systems start
/// processes with 1024.
fn raise_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where this is refused the old limit stays, which does for fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn wait(exit_with_stdin: bool) {
    if exit_with_stdin {
        // What comes is of no interest, and an error is an end like any other.
        let _ = std::io::copy(&mut std::io::stdin().lock().by_ref(), &mut std::io::sink());
        return;
    }
    loop {
        std::thread::park();
    }
}

/// One clear line for wrong usage; help and version are no errors.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A closed standard output is the reader's choice.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let line: Vec<&str> =
        lines.filter(|line| !line.is_empty() && !line.starts_with("For more information")).collect();
    let line = line.join(" ").replace(" tip: ", "; tip: ");
    eprintln!("simworker: {}", line.trim_start_matches("error: "));
    ExitCode::from(EXIT_USAGE)
}

/// Why the workers do not start, and the exit code of it.
struct StartFailure {
    message: String,
    code: u8,
}

fn start(args: &Args) -> Result<Host, StartFailure> {
    let config = args.resolve().map_err(|message| StartFailure { message, code: EXIT_USAGE })?;
    Host::start(&config).map_err(|error| {
        let code = match error {
            StartError::Config(_)
            | StartError::NoSuchWorker { .. }
            | StartError::NoKvToSend { .. }
            | StartError::NoEngine { .. }
            | StartError::NoKvEvents
            | StartError::NothingPublished => EXIT_USAGE,
            _ => EXIT_START,
        };
        StartFailure { message: error.to_string(), code }
    })
}
