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
    let (args, notices) = match parse(args) {
        Ok(parsed) => parsed,
        Err(error) => return usage(&error),
    };
    if let Some(Command::Calibrate(args)) = &args.command {
        return calibrate::run(args);
    }
    for notice in notices {
        eprintln!("simworker: {notice}");
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

/// The arguments, and lines about those that have no effect.
fn parse(args: impl Iterator<Item = OsString>) -> Result<(Args, Vec<String>), clap::Error> {
    let matches = foreign::accept(Args::command()).try_get_matches_from(args)?;
    Ok((Args::from_arg_matches(&matches)?, foreign::notices(&matches)))
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
        let message = match &error {
            StartError::Config(error) => in_flags(&error.to_string()),
            _ => error.to_string(),
        };
        StartFailure { message, code }
    })
}

/// Keys of the configuration, and the flags that set them.
const FLAGS: [(&str, &str); 12] = [
    ("chunked_prefill", "--chunked-prefill-size"),
    ("conservativeness", "--schedule-conservativeness"),
    ("context_len", "--context-length"),
    ("decode_log_interval", "--decode-log-interval"),
    ("dp.size", "--dp-size"),
    ("handoff.link.bytes_per_second", "--kv-link in bytes per second"),
    ("kv_tokens", "--kv-tokens"),
    ("max_prefill_tokens", "--max-prefill-tokens"),
    ("max_running", "--max-running-requests"),
    ("page_size", "--page-size"),
    ("prefill_max_requests", "--prefill-max-requests"),
    ("schedule", "--schedule-policy"),
];

/// What is wrong with a configuration, with the flags that were typed for its keys.
fn in_flags(message: &str) -> String {
    let flag = |word: &str| {
        FLAGS.iter().find(|(key, _)| *key == word).map_or(word.to_owned(), |(_, flag)| (*flag).into())
    };
    message.split(' ').map(flag).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_as_flags() {
        assert_eq!(
            in_flags("kv_tokens is 10; with this page_size at least 19 are needed"),
            "--kv-tokens is 10; with this --page-size at least 19 are needed"
        );
        assert!(FLAGS.is_sorted());
    }
}
