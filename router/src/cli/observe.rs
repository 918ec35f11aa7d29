//! What the router tells about itself: metrics, logs, headers.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use http::HeaderName;
use tracing_subscriber::EnvFilter;

use super::readers::{whole, words};
use super::stop::Stop;
use super::traffic::address;
use crate::config::AccessLog;
use crate::metrics::DURATION_BUCKETS;
use crate::record::Recorder;

/// The variable whose filter takes the place of `--log-level`.
pub(super) const RUST_LOG: &str = "RUST_LOG";

#[derive(Debug, Args)]
#[command(next_help_heading = "Metrics and logs")]
pub(super) struct ObserveArgs {
    /// Address of the metrics listener
    #[arg(long, value_name = "HOST", default_value = "0.0.0.0")]
    prometheus_host: String,
    /// Port of the metrics listener; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 29000, value_parser = whole(0..=u16::MAX))]
    prometheus_port: u16,
    /// Upper bounds in seconds of the buckets of every duration
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 1..,
        action = ArgAction::Append,
        default_values_t = DURATION_BUCKETS.map(|bound| bound.to_string())
    )]
    prometheus_duration_buckets: Vec<String>,
    /// Headers of a request that can carry its id; the first one present wins
    #[arg(
        long,
        value_name = "NAME",
        num_args = 1..,
        action = ArgAction::Append,
        default_values = ["x-request-id", "x-correlation-id", "x-trace-id", "request-id"]
    )]
    request_id_headers: Vec<String>,
    /// What is logged to standard error; RUST_LOG, when set, replaces it
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = LogLevel::Info)]
    log_level: LogLevel,
    /// Directory in which a file a day, router.DATE, gets what goes to standard error [default: none]
    #[arg(long, value_name = "DIRECTORY")]
    log_dir: Option<PathBuf>,
    /// Form of the line that is logged about each request, at the log levels info and debug
    #[arg(long, value_name = "FORM", value_enum, default_value_t = AccessLog::Text)]
    access_log: AccessLog,
    /// Tell in each answer's headers how it was routed
    #[arg(long)]
    decision_headers: bool,
    /// File in which every input and decision is recorded, without text, for loadgen replay [default: none]
    #[arg(long, value_name = "FILE")]
    record_trace: Option<PathBuf>,
    /// Bytes after which that file becomes FILE.1 and a new one begins
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30, value_parser = whole(1 << 20..=u64::MAX))]
    record_trace_max_bytes: u64,
    /// File that keeps the salt of the recorded hashes, made if it is not there [default: none; drawn at each start]
    #[arg(long, value_name = "FILE")]
    record_trace_salt_file: Option<PathBuf>,
}

/// The least important lines that are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    #[value(alias = "warning")]
    Warn,
    Info,
    Debug,
}

/// What the flags mean.
#[derive(Debug)]
pub(super) struct Observe {
    pub(super) metrics_listen: SocketAddr,
    pub(super) duration_buckets: Vec<f64>,
    pub(super) request_id_headers: Vec<HeaderName>,
    pub(super) log_level: LogLevel,
    pub(super) log_dir: Option<PathBuf>,
    pub(super) access_log: AccessLog,
    pub(super) decision_headers: bool,
    pub(super) recorder: Option<Recorder>,
}

impl LogLevel {
    /// As log filters spell it.
    pub(super) fn filter(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// Which lines are logged. A filter that `RUST_LOG` gives takes the place of the level.
///
/// # Errors
/// What is given is no filter.
pub(super) fn filter(level: LogLevel, rust_log: Option<OsString>) -> Result<EnvFilter, String> {
    let Some(given) = rust_log.filter(|given| !given.is_empty()) else {
        return Ok(EnvFilter::new(level.filter()));
    };
    let text = given.to_string_lossy();
    EnvFilter::try_new(&text).map_err(|error| {
        let level = level.filter();
        format!("RUST_LOG: `{text}` is no filter ({error}), and --log-level {level} holds; write one such as router=debug")
    })
}

impl ObserveArgs {
    /// # Errors
    /// An address that does not resolve, buckets that do not increase, what is no header's name.
    pub(super) fn resolve(self) -> Result<Observe, Stop> {
        Ok(Observe {
            metrics_listen: address("--prometheus-host", &self.prometheus_host, self.prometheus_port)?,
            duration_buckets: buckets(&self.prometheus_duration_buckets)?,
            request_id_headers: headers(&self.request_id_headers)?,
            log_level: self.log_level,
            log_dir: self.log_dir,
            access_log: self.access_log,
            decision_headers: self.decision_headers,
            recorder: self.record_trace.map(|file| Recorder {
                file,
                max_bytes: self.record_trace_max_bytes,
                salt_file: self.record_trace_salt_file,
            }),
        })
    }
}

fn buckets(given: &[String]) -> Result<Vec<f64>, Stop> {
    let wrong = |problem: String| Stop::wrong("--prometheus-duration-buckets", problem);
    let mut buckets: Vec<f64> = Vec::new();
    for word in words(given) {
        let bound = word.parse::<f64>().ok().filter(|bound| bound.is_finite() && *bound > 0.0);
        let bound = bound.ok_or_else(|| wrong(format!("`{word}` is not a number of seconds above 0")))?;
        if let Some(last) = buckets.last().filter(|last| bound <= **last) {
            return Err(wrong(format!(
                "`{word}` comes after {last}; each bound must be above the one before"
            )));
        }
        buckets.push(bound);
    }
    if buckets.is_empty() { Err(wrong("give one bound or more".to_owned())) } else { Ok(buckets) }
}

fn headers(given: &[String]) -> Result<Vec<HeaderName>, Stop> {
    let flag = "--request-id-headers";
    let name = |word: &str| {
        word.parse().map_err(|_| Stop::wrong(flag, format!("`{word}` is not the name of a header field")))
    };
    let headers = words(given).map(name).collect::<Result<Vec<HeaderName>, Stop>>()?;
    if headers.is_empty() { Err(Stop::wrong(flag, "give one name or more")) } else { Ok(headers) }
}
