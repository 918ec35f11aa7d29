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
use crate::cli::{self, Stop};
use crate::signals::Signals;

/// What messages call the program.
const PROGRAM: &str = "router launch";

/// Runs a command line; the first argument is what this is called.
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().skip(1).collect();
    if let [first, rest @ ..] = &args[..]
        && first == guard::ARGUMENT
    {
        return guard::watch(rest);
    }
    cli::finish(PROGRAM, cli::watch_signals().and_then(|signals| run(Launch::parse(args)?, signals)))
}

/// Takes what the router needs first: engines that load for minutes are not to be started in vain. What it listens on is
/// then taken, so that no worker is told to listen there.
fn run(launch: Launch, signals: Signals) -> Result<(), Stop> {
    let named = |stop: Stop| stop.renamed(args::with_prefix);
    let planned = launch.router(&launch.planned_ports())?;
    cli::begin(&planned).map_err(named)?;
    let opened = cli::open(&planned.config).map_err(named)?;
    let ports = ports::choose(launch.workers, launch.base_port);
    let ports = ports.map_err(|problem| Stop::Wrong(format!("--dp-base-port: {problem}")))?;
    let read_again = launch.router(&ports)?.config;
    // What else a file says may have changed meanwhile, and what is taken goes by the plan.
    let mut config = planned.config;
    config.workers = read_again.workers;
    config.source.arguments = read_again.source.arguments;
    let ending = signals.with_plan(config.shutdown.clone());
    let guard = Guard::start(launch.grace);
    // Until its end, even if that is a panic, the crew is there; then it is ended.
    let _crew = Crew::start(launch.command, ports, launch.grace, guard)
        .map_err(|error| Stop::Failed(error.to_string()))?;
    cli::start(&config, opened, ending).map_err(named)
}
