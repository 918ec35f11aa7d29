//! What the router runs with: every value checked, every default applied.

use std::net::SocketAddr;
use std::time::Duration;

use router_core::PolicyConfig;

use crate::api_key::ApiKey;
use crate::upstream::Address;

/// The resolved configuration.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) metrics_listen: SocketAddr,
    pub(crate) workers: Vec<Address>,
    pub(crate) policy: PolicyConfig,
    pub(crate) seed: u64,
    /// Runtime threads that move bytes, at least 1.
    pub(crate) threads: usize,
    pub(crate) settings: Settings,
    pub(crate) load_poll_interval: Duration,
    pub(crate) health: Option<HealthConfig>,
    /// How long running requests may go on after the first signal.
    pub(crate) shutdown_grace: Duration,
    /// Stop when standard input closes.
    pub(crate) exit_with_stdin: bool,
}

/// What the data path looks at.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Longest request body, in bytes.
    pub(crate) max_payload_size: usize,
    /// Longest time from the arrival of a request's head to the end of its answer.
    pub(crate) request_timeout: Duration,
    /// What clients must show.
    pub(crate) api_key: Option<ApiKey>,
    /// Seconds after which a worker that is unhealthy may have been found healthy again.
    pub(crate) recovery_secs: u64,
    /// Whether answers tell how they were routed.
    pub(crate) decision_headers: bool,
}

/// How workers are probed.
#[derive(Debug, Clone)]
pub(crate) struct HealthConfig {
    pub(crate) path: http::Uri,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    /// Failures in a row that make a worker unhealthy.
    pub(crate) failure_threshold: u32,
    /// Successes in a row that make it healthy again.
    pub(crate) success_threshold: u32,
}
