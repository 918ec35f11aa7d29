//! `router launch`: workers and the router in front of them, started in one go and ended together.
//!
//! Workers are whatever command was given, each told its port in it. One that exits is started again. The router is this
//! very process: it serves as soon as it listens, and a worker joins when its health answers. At the end the router drains
//! first, as ever, and only then are the workers told to go.
//!
//! No worker outlives us: however the router returns, what was started is ended with it; and if this process is
//! killed, its [guard](guard) ends them.

mod args;
mod backoff;
mod command;
mod crew;
mod guard;
mod output;
mod ports;

use std::ffi::OsString;
use std::process::ExitCode;

use self::args::Launch;
use self::crew::Crew;
use self::guard::Guard;
use crate::cli::{self, START_ERROR, Stop, USAGE_ERROR};

/// Runs a command line; the first argument is what this is called.
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().skip(1).collect();
    if let [first, rest @ ..] = &args[..]
        && first == guard::ARGUMENT
    {
        return guard::watch(rest);
    }
    match Launch::parse(args).and_then(prepare) {
        Ok((launch, ports, router)) => run(launch, ports, &router),
        Err(Stop::Show(text)) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(wrong) => refuse(&wrong.message(), USAGE_ERROR),
    }
}

/// Chooses the workers' ports and reads the router's options.
fn prepare(launch: Launch) -> Result<(Launch, Vec<u16>, cli::Parsed), Stop> {
    let ports = ports::choose(launch.workers, launch.base_port, launch.router_port());
    let ports = ports.map_err(|problem| Stop::Wrong(format!("--dp-base-port: {problem}")))?;
    let router = launch.router(&ports)?;
    Ok((launch, ports, router))
}

fn run(launch: Launch, ports: Vec<u16>, router: &cli::Parsed) -> ExitCode {
    if let Err(message) = cli::begin(router) {
        return refuse(&message, START_ERROR);
    }
    let guard = Guard::start(launch.grace);
    match Crew::start(launch.command, ports, launch.grace, guard) {
        // Until its end, even if that is a panic, the crew is there; then it is ended.
        Ok(_crew) => cli::start(&router.config),
        Err(error) => refuse(&error.to_string(), START_ERROR),
    }
}

fn refuse(message: &str, code: u8) -> ExitCode {
    eprintln!("router launch: {message}");
    ExitCode::from(code)
}
