//! The flags, and how they become a [`Config`].

use std::ffi::OsString;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, value_parser};

use super::policy;
use crate::api_key::ApiKey;
use crate::config::{Config, HealthConfig, Settings};
use crate::upstream::Address;

/// A streaming reverse proxy for SGLang workers.
#[derive(Parser)]
#[command(name = "router", version, max_term_width = 120, after_help = EXIT_CODES)]
struct Args {
    /// Base URLs of the workers, separated by blanks; a repeated flag adds
    #[arg(long, value_name = "URL", num_args = 0.., action = ArgAction::Append)]
    worker_urls: Vec<String>,
    /// Address to listen on
    #[arg(long, default_value = "0.0.0.0")]
    host: String,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 30000)]
    port: u16,
    /// Address of the metrics listener
    #[arg(long, value_name = "HOST", default_value = "0.0.0.0")]
    prometheus_host: String,
    /// Port of the metrics listener; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 29000)]
    prometheus_port: u16,
    /// Key that requests to a model must carry as `Authorization: Bearer KEY`; it is passed on to the worker [default:
    /// none is needed]
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Longest request body in bytes; a longer one is refused with 413
    #[arg(long, value_name = "BYTES", default_value_t = 536_870_912, value_parser = value_parser!(u64).range(1..))]
    max_payload_size: u64,
    /// Longest time in seconds from the arrival of a request's head to the end of its answer
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, value_parser = value_parser!(u64).range(1..=MAX_SECONDS))]
    request_timeout_secs: u64,
    /// Seconds between two load polls of a worker, under policies that use them
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    load_poll_interval_secs: Duration,
    /// Seconds between two health probes of a worker; one that is unhealthy or cannot be connected to is probed every
    /// second
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = value_parser!(u64).range(1..=MAX_SECONDS))]
    health_check_interval_secs: u64,
    /// Seconds that a health probe may take
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = value_parser!(u64).range(1..=MAX_SECONDS))]
    health_check_timeout_secs: u64,
    /// Failed probes in a row that take a worker out of rotation; a request that cannot connect to it counts as one
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u32).range(1..))]
    health_failure_threshold: u32,
    /// Good probes in a row that take it back in
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u32).range(1..))]
    health_success_threshold: u32,
    /// Path that is probed
    #[arg(long, value_name = "PATH", default_value = "/health", value_parser = path)]
    health_check_endpoint: http::Uri,
    /// Treat every worker as healthy
    #[arg(long)]
    disable_health_check: bool,
    /// Seconds that running requests may go on after SIGTERM or SIGINT
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = value_parser!(u64).range(..=MAX_SECONDS))]
    shutdown_grace_period_secs: u64,
    /// Seed of every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Threads that move bytes [default: 2, or 1 on a single core]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// What is logged to standard error; RUST_LOG, when set, replaces it
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = ["error", "warn", "info", "debug"])]
    log_level: String,
    /// Tell in each answer's headers how it was routed
    #[arg(long)]
    decision_headers: bool,
    /// Exit when standard input closes
    #[arg(long)]
    exit_with_stdin: bool,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  It was told to end, and ended
  2  The command line is wrong
  5  It cannot start: an address is taken, or the system refuses";

/// Longest time that may be asked for, about three years: far from any overflow.
const MAX_SECONDS: u64 = 100_000_000;

/// Threads by default, where there are as many cores.
const DEFAULT_THREADS: usize = 2;

/// What the command line says.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) config: Config,
    pub(super) log_level: String,
    /// To be logged.
    pub(super) warnings: Vec<String>,
}

/// Why there is nothing to run.
#[derive(Debug)]
pub(super) enum Stop {
    /// Help or version was asked for.
    Show(String),
    /// One line about what is wrong.
    Wrong(String),
}

impl From<clap::Error> for Stop {
    fn from(error: clap::Error) -> Self {
        if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
            return Self::Show(error.to_string());
        }
        let text = error.to_string();
        let parts = text.lines().take_while(|line| !line.starts_with("Usage:")).map(str::trim);
        let line = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        Self::Wrong(line.trim_start_matches("error: ").replace(" For more information, try '--help'.", ""))
    }
}

/// Reads a command line.
///
/// # Errors
/// [`Stop`].
pub(super) fn parse(args: impl Iterator<Item = OsString>) -> Result<Parsed, Stop> {
    let matches = policy::add_flags(Args::command()).try_get_matches_from(args)?;
    let args = Args::from_arg_matches(&matches)?;
    let mut warnings = Vec::new();
    let policy = policy::read(&matches, &mut warnings).map_err(Stop::Wrong)?;
    let workers = workers(&args.worker_urls).map_err(Stop::Wrong)?;
    if workers.is_empty() {
        warnings.push("no --worker-urls: every request will be answered with 503".to_owned());
    }
    let config = Config {
        listen: address("--host", &args.host, args.port)?,
        metrics_listen: address("--prometheus-host", &args.prometheus_host, args.prometheus_port)?,
        workers,
        policy,
        seed: args.seed,
        threads: args.threads.map_or_else(default_threads, usize::from),
        settings: Settings {
            max_payload_size: usize::try_from(args.max_payload_size).unwrap_or(usize::MAX),
            request_timeout: Duration::from_secs(args.request_timeout_secs),
            api_key: args.api_key.as_deref().map(api_key).transpose()?,
            recovery_secs: u64::from(args.health_success_threshold),
            decision_headers: args.decision_headers,
        },
        load_poll_interval: args.load_poll_interval_secs,
        health: health(&args),
        shutdown_grace: Duration::from_secs(args.shutdown_grace_period_secs),
        exit_with_stdin: args.exit_with_stdin,
    };
    Ok(Parsed { config, log_level: args.log_level, warnings })
}

/// A key that cannot be sent is refused without being repeated.
fn api_key(text: &str) -> Result<ApiKey, Stop> {
    let refusal =
        || Stop::Wrong("--api-key: takes one or more visible ASCII characters, without blanks".to_owned());
    ApiKey::new(text).ok_or_else(refusal)
}

fn health(args: &Args) -> Option<HealthConfig> {
    let config = HealthConfig {
        path: args.health_check_endpoint.clone(),
        interval: Duration::from_secs(args.health_check_interval_secs),
        timeout: Duration::from_secs(args.health_check_timeout_secs),
        failure_threshold: args.health_failure_threshold,
        success_threshold: args.health_success_threshold,
    };
    (!args.disable_health_check).then_some(config)
}

/// The workers' addresses; several may stand in one argument, separated by blanks.
fn workers(given: &[String]) -> Result<Vec<Address>, String> {
    let mut workers: Vec<Address> = Vec::new();
    for url in given.iter().flat_map(|urls| urls.split_whitespace()) {
        let address = Address::parse(url).map_err(|error| format!("--worker-urls: {error}"))?;
        if workers.iter().any(|known| known.is_same_worker(&address)) {
            return Err(format!("--worker-urls: `{url}` is given twice"));
        }
        workers.push(address);
    }
    Ok(workers)
}

fn address(flag: &str, host: &str, port: u16) -> Result<SocketAddr, Stop> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let found = (bare, port).to_socket_addrs().ok().and_then(|mut found| found.next());
    found.ok_or_else(|| Stop::Wrong(format!(
            "{flag}: `{host}` cannot be resolved; give an IP address such as 127.0.0.1, or a name that this machine knows"
        )))
}

fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(DEFAULT_THREADS)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if (0.01..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("not within 0.01 to 3600 seconds".to_owned())
    }
}

fn path(text: &str) -> Result<http::Uri, String> {
    match text.parse::<http::Uri>() {
        Ok(uri) if text.starts_with('/') && uri.authority().is_none() => Ok(uri),
        _ => Err("not a path that begins with /".to_owned()),
    }
}
