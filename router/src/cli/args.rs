//! The whole command line, and how it becomes a [`Config`]. Each group of flags is a file beside this one: what can be
//! typed, with its defaults and ranges, and a `resolve` that makes of it what the router runs with.

use std::ffi::OsString;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches, Parser};

use super::breaker::BreakerArgs;
use super::health::HealthArgs;
use super::limits::LimitArgs;
use super::observe::{LogLevel, ObserveArgs};
use super::policy;
use super::retries::RetryArgs;
use super::stop::Stop;
use super::timeouts::TimeoutArgs;
use super::traffic::TrafficArgs;
use super::values::{MAX_SECONDS, seconds, whole};
use crate::config::{Config, Settings};

/// A streaming reverse proxy for SGLang workers.
#[derive(Parser)]
#[command(name = "router", version, max_term_width = 120, after_help = EXIT_CODES)]
struct Args {
    #[command(flatten)]
    traffic: TrafficArgs,
    #[command(flatten)]
    process: ProcessArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    retries: RetryArgs,
    #[command(flatten)]
    breaker: BreakerArgs,
    #[command(flatten)]
    health: HealthArgs,
    #[command(flatten)]
    timeouts: TimeoutArgs,
    #[command(flatten)]
    observe: ObserveArgs,
}

#[derive(clap::Args)]
struct ProcessArgs {
    /// Seconds between two load polls of a worker, under policies that use them
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds(0.01..=3600.0))]
    load_poll_interval_secs: Duration,
    /// Seconds that running requests may go on after SIGTERM or SIGINT
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = whole(0..=MAX_SECONDS))]
    shutdown_grace_period_secs: u64,
    /// Seed of every random choice
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole(0..=u64::MAX))]
    seed: u64,
    /// Threads that move bytes [default: 2, or 1 on a single core]
    #[arg(long, value_name = "N", value_parser = whole(1_u16..=256))]
    threads: Option<u16>,
    /// Exit when standard input closes
    #[arg(long)]
    exit_with_stdin: bool,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  It was told to end, and ended
  2  The command line is wrong
  5  It cannot start: an address is taken, or the system refuses";

/// Threads by default, where there are as many cores.
const DEFAULT_THREADS: usize = 2;

/// What the command line says.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) config: Config,
    pub(super) log_level: LogLevel,
    /// To be logged.
    pub(super) warnings: Vec<String>,
}

/// Reads a command line.
///
/// # Errors
/// [`Stop`].
pub(super) fn parse(args: impl Iterator<Item = OsString>) -> Result<Parsed, Stop> {
    let matches = command().try_get_matches_from(args)?;
    let args = Args::from_arg_matches(&matches)?;
    let mut warnings = Vec::new();
    let policy = policy::read(&matches, &mut warnings).map_err(Stop::Wrong)?;
    let traffic = args.traffic.resolve(&mut warnings)?;
    let limits = args.limits.resolve()?;
    let observe = args.observe.resolve()?;
    let settings = Settings {
        max_payload_size: limits.max_payload_size,
        timeouts: args.timeouts.resolve(),
        api_key: traffic.api_key,
        worker_key: traffic.worker_key,
        added_worker_key: traffic.added_worker_key,
        recovery_secs: args.health.recovery_secs(),
        decision_headers: observe.decision_headers,
        request_id_headers: observe.request_id_headers,
        extra_endpoints: traffic.extra_endpoints,
        access_log: observe.access_log,
        retry: args.retries.resolve()?,
        admission: limits.admission,
        duration_buckets: observe.duration_buckets,
        drain_timeout: Duration::from_secs(180),
    };
    let process = args.process;
    let config = Config {
        listen: traffic.listen,
        metrics_listen: observe.metrics_listen,
        workers: traffic.workers,
        policy,
        seed: process.seed,
        threads: process.threads.map_or_else(default_threads, usize::from),
        settings,
        load_poll_interval: process.load_poll_interval_secs,
        startup_timeout: Duration::from_secs(1800),
        health: args.health.resolve(),
        breaker: args.breaker.resolve(&mut warnings),
        shutdown_grace: Duration::from_secs(process.shutdown_grace_period_secs),
        exit_with_stdin: process.exit_with_stdin,
    };
    Ok(Parsed { config, log_level: observe.log_level, warnings })
}

/// Every flag. A negative number is a value, so that it is refused by the flag that it was given to.
fn command() -> clap::Command {
    policy::add_flags(Args::command()).mut_args(|arg| {
        let takes_values = arg.get_action().takes_values();
        arg.allow_negative_numbers(takes_values)
    })
}

fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(DEFAULT_THREADS)
}
