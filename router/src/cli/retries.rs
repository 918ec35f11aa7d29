//! When a request is tried again, and how often.

use clap::{ArgAction, Args};
use router_core::{RetryConfig, StatusSet};

use super::readers::{MAX_MS, NS_PER_MS, number, whole, words};
use super::sections::flag;
use super::stop::Stop;

#[derive(Debug, Args)]
#[command(next_help_heading = "Retries")]
pub(super) struct RetryArgs {
    /// Attempts at a request altogether, the first one included
    #[arg(
        long,
        value_name = "N",
        default_value_t = RetryConfig::default().max_attempts,
        value_parser = whole(1..=u32::MAX)
    )]
    retry_max_retries: u32,
    /// Milliseconds before the second attempt; after a failed connect it follows at once, on another worker
    #[arg(
        long,
        value_name = "MS",
        default_value_t = RetryConfig::default().initial_backoff_ns / NS_PER_MS,
        value_parser = whole(1..=MAX_MS)
    )]
    retry_initial_backoff_ms: u64,
    /// Longest pause in milliseconds; a worker whose Retry-After is longer is not waited for
    #[arg(
        long,
        value_name = "MS",
        default_value_t = RetryConfig::default().max_backoff_ns / NS_PER_MS,
        value_parser = whole(1..=MAX_MS)
    )]
    retry_max_backoff_ms: u64,
    /// Factor by which each pause is longer than the one before
    #[arg(
        long,
        value_name = "X",
        default_value_t = RetryConfig::default().multiplier,
        value_parser = number(1.0..=f64::INFINITY)
    )]
    retry_backoff_multiplier: f64,
    /// Share by which a pause may be shorter or longer, by chance
    #[arg(
        long,
        value_name = "X",
        default_value_t = RetryConfig::default().jitter,
        value_parser = number(0.0..=1.0)
    )]
    retry_jitter_factor: f64,
    /// Statuses of workers after which a request is tried again; without a value: none
    #[arg(
        long,
        value_name = "STATUS",
        num_args = 0..,
        action = ArgAction::Append,
        default_values_t = default_statuses()
    )]
    retry_statuses: Vec<String>,
    /// Whether a request is tried again whose connection was lost before any byte of an answer, although the worker may
    /// have done the work
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = RetryConfig::default().on_reset)]
    retry_on_reset: bool,
    /// Further attempts, in percent of the requests of the last 10 s; failed connects and reused connections that turn
    /// out to be closed are not counted
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = RetryConfig::default().budget_percent,
        value_parser = number(0.0..=100_000.0)
    )]
    retry_budget_percent: f64,
    /// Further attempts that any 10 s may have beside those percent
    #[arg(
        long,
        value_name = "N",
        default_value_t = RetryConfig::default().budget_floor,
        value_parser = whole(0..=u32::MAX)
    )]
    retry_budget_min: u32,
    /// Try every request once
    #[arg(long)]
    disable_retries: bool,
}

/// What --disable-retries leaves without effect.
const OVERRULED: [&str; 9] = [
    "retry_max_retries",
    "retry_initial_backoff_ms",
    "retry_max_backoff_ms",
    "retry_backoff_multiplier",
    "retry_jitter_factor",
    "retry_statuses",
    "retry_on_reset",
    "retry_budget_percent",
    "retry_budget_min",
];

impl RetryArgs {
    /// Tells what was given for nothing; `is_given` knows flags by their ids.
    pub(super) fn warn(&self, is_given: impl Fn(&str) -> bool, warnings: &mut Vec<String>) {
        let overruled = OVERRULED.iter().filter(|id| self.disable_retries && is_given(id));
        warnings.extend(overruled.map(|id| format!("{} has no effect beside --disable-retries", flag(id))));
    }

    /// # Errors
    /// Pauses that shrink, or what is no status of an error.
    pub(super) fn resolve(self) -> Result<RetryConfig, Stop> {
        let (initial, max) = (self.retry_initial_backoff_ms, self.retry_max_backoff_ms);
        if max < initial {
            let problem =
                format!("{max} is less than --retry-initial-backoff-ms {initial}; give as much or more");
            return Err(Stop::wrong("--retry-max-backoff-ms", problem));
        }
        let statuses = words(&self.retry_statuses).map(status).collect::<Result<StatusSet, Stop>>()?;
        if self.disable_retries {
            return Ok(RetryConfig::disabled());
        }
        Ok(RetryConfig {
            max_attempts: self.retry_max_retries,
            initial_backoff_ns: initial * NS_PER_MS,
            max_backoff_ns: max * NS_PER_MS,
            multiplier: self.retry_backoff_multiplier,
            jitter: self.retry_jitter_factor,
            statuses,
            on_reset: self.retry_on_reset,
            budget_percent: self.retry_budget_percent,
            budget_floor: self.retry_budget_min,
        })
    }
}

fn default_statuses() -> Vec<String> {
    RetryConfig::default().statuses.iter().map(|status| status.to_string()).collect()
}

/// A status that tells of an error.
fn status(text: &str) -> Result<u16, Stop> {
    let status = text.parse().ok().filter(|status| (400..=599).contains(status));
    status.ok_or_else(|| Stop::wrong("--retry-statuses", format!("`{text}` is not a status from 400 to 599")))
}
