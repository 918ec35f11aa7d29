//! What the router runs with: every value checked, every default applied.

use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use router_core::{AdmissionConfig, BreakerConfig, PolicyConfig, RetryConfig};

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
    /// How long a worker may take to be there.
    pub(crate) startup_timeout: Duration,
    pub(crate) health: Option<HealthConfig>,
    /// `None`: workers have no breakers.
    pub(crate) breaker: Option<BreakerConfig>,
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
    pub(crate) timeouts: Timeouts,
    /// What clients must show.
    pub(crate) api_key: Option<ApiKey>,
    /// What workers are sent in place of the client's `Authorization`; `None`: that goes on to them.
    pub(crate) worker_key: Option<ApiKey>,
    /// The same for workers that are added at run time and bring none.
    pub(crate) added_worker_key: Option<ApiKey>,
    /// Seconds after which a worker that is unhealthy may have been found healthy again.
    pub(crate) recovery_secs: u64,
    /// Whether answers tell how they were routed.
    pub(crate) decision_headers: bool,
    /// Headers of a request that can carry its id, the most important first; at least one.
    pub(crate) request_id_headers: Vec<HeaderName>,
    /// POST paths that are proxied beside the built-in ones.
    pub(crate) extra_endpoints: Vec<String>,
    pub(crate) access_log: AccessLog,
    pub(crate) retry: RetryConfig,
    pub(crate) admission: AdmissionConfig,
    /// Upper bounds in seconds of the buckets of durations: positive, increasing, at least one.
    pub(crate) duration_buckets: Vec<f64>,
    /// How long a worker that leaves may take to finish what runs there.
    pub(crate) drain_timeout: Duration,
}

impl Settings {
    /// Whether a request shows the key that clients need, or none is needed.
    pub(crate) fn admits(&self, headers: &HeaderMap) -> bool {
        self.api_key.as_ref().is_none_or(|key| key.admits(headers))
    }
}

/// How long things may take.
#[derive(Debug, Clone)]
pub(crate) struct Timeouts {
    /// To connect to a worker.
    pub(crate) connect: Duration,
    /// Until a worker begins to answer.
    pub(crate) first_byte: Option<Duration>,
    /// Longest silence of a worker within an answer.
    pub(crate) silence: Option<Duration>,
    /// Longest silence of a client within the body of its request.
    pub(crate) upload_silence: Option<Duration>,
    /// From the arrival of a request's head to the end of its answer.
    pub(crate) request: Duration,
}

/// The form of the line about each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AccessLog {
    Text,
    Json,
    Off,
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
