//! When a failing worker is left alone, and when it is tried again.

use clap::Args;
use router_core::BreakerConfig;

use super::readers::{MAX_SECONDS, NS_PER_SECOND, whole};

#[derive(Debug, Args)]
#[command(next_help_heading = "Breakers")]
pub(super) struct BreakerArgs {
    /// Failed requests in a row that open a worker's breaker: it gets no more
    #[arg(
        long,
        value_name = "N",
        default_value_t = BreakerConfig::default().failure_threshold,
        value_parser = whole(1..=u32::MAX)
    )]
    cb_failure_threshold: u32,
    /// Good requests in a row that close a half-open breaker
    #[arg(
        long,
        value_name = "N",
        default_value_t = BreakerConfig::default().success_threshold,
        value_parser = whole(1..=u32::MAX)
    )]
    cb_success_threshold: u32,
    /// Seconds that a breaker is open before it is half-open
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = BreakerConfig::default().open_ns / NS_PER_SECOND,
        value_parser = whole(1..=MAX_SECONDS)
    )]
    cb_timeout_duration_secs: u64,
    /// Requests that a half-open breaker lets through at a time
    #[arg(
        long,
        value_name = "N",
        default_value_t = BreakerConfig::default().half_open_permits,
        value_parser = whole(1..=u32::MAX)
    )]
    cb_half_open_permits: u32,
    /// When every breaker is open, try the worker whose breaker is next to be half-open, instead of answering 503
    #[arg(long)]
    cb_try_least_bad: bool,
    /// Leave no worker alone, however often it fails
    #[arg(long)]
    disable_circuit_breaker: bool,
}

impl BreakerArgs {
    /// What the flags mean; `None`: workers have no breakers.
    pub(super) fn resolve(self) -> Option<BreakerConfig> {
        let config = BreakerConfig {
            failure_threshold: self.cb_failure_threshold,
            success_threshold: self.cb_success_threshold,
            open_ns: self.cb_timeout_duration_secs * NS_PER_SECOND,
            half_open_permits: self.cb_half_open_permits,
            try_least_bad: self.cb_try_least_bad,
        };
        (!self.disable_circuit_breaker).then_some(config)
    }
}
