//! How workers are probed.

use std::time::Duration;

use clap::Args;

use super::readers::{MAX_SECONDS, path, whole};
use crate::config::HealthConfig;

#[derive(Debug, Args)]
#[command(next_help_heading = "Health")]
pub(super) struct HealthArgs {
    /// Failed probes in a row that take a worker out of rotation; a request that cannot connect to it counts as one
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole(1..=u32::MAX))]
    health_failure_threshold: u32,
    /// Good probes in a row that take it back in
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = whole(1..=u32::MAX))]
    health_success_threshold: u32,
    /// Seconds that a health probe may take
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = whole(1..=MAX_SECONDS))]
    health_check_timeout_secs: u64,
    /// Seconds between two health probes of a worker; one that is unhealthy, says that it is unwell or cannot be connected
    /// to is probed every second
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = whole(1..=MAX_SECONDS))]
    health_check_interval_secs: u64,
    /// Path that is probed
    #[arg(long, value_name = "PATH", default_value = "/health", value_parser = path)]
    health_check_endpoint: http::Uri,
    /// Treat every worker as healthy
    #[arg(long)]
    disable_health_check: bool,
}

impl HealthArgs {
    /// Seconds after which a worker that is unhealthy may have been found healthy again.
    pub(super) fn recovery_secs(&self) -> u64 {
        u64::from(self.health_success_threshold)
    }

    /// `None` when there are no probes.
    pub(super) fn resolve(self) -> Option<HealthConfig> {
        let config = HealthConfig {
            path: self.health_check_endpoint,
            interval: Duration::from_secs(self.health_check_interval_secs),
            timeout: Duration::from_secs(self.health_check_timeout_secs),
            failure_threshold: self.health_failure_threshold,
            success_threshold: self.health_success_threshold,
        };
        (!self.disable_health_check).then_some(config)
    }
}
