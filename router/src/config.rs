//! What the router runs with: every value checked, every default applied.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use router_core::{AdmissionConfig, BreakerConfig, PairPreference, Policies, RetryConfig, Role, WarmUp};

use crate::api_key::{AdminKeys, ApiKey};
use crate::cli::Source;
use crate::record::Recorder;
use crate::upstream::Address;

/// The resolved configuration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Config {
    /// What was said, and where.
    pub(crate) source: Source,
    /// The file that was read, if any.
    pub(crate) config_file: Option<PathBuf>,
    pub(crate) listen: SocketAddr,
    pub(crate) metrics_listen: SocketAddr,
    /// Where admin routes are served; `None`: where clients are.
    pub(crate) admin_listen: Option<SocketAddr>,
    pub(crate) connections: ConnectionLimits,
    /// `None`: clients speak plain HTTP.
    pub(crate) server_tls: Option<ServerTls>,
    pub(crate) upstream_tls: UpstreamTls,
    /// No two are the same worker.
    pub(crate) workers: Vec<StaticWorker>,
    /// How long a worker may take until its first good probe.
    pub(crate) startup_timeout: Duration,
    /// Of the workers of each role.
    pub(crate) policies: Policies,
    /// Which workers are preferred where regular ones and pairs serve one model.
    pub(crate) pair: PairPreference,
    /// Decode streams at a time that come from one prefill worker, at least 1; `None`: any number.
    pub(crate) decode_dispatch_limit: Option<u32>,
    /// Whether the ranks of an engine are chosen one by one.
    pub(crate) dp_aware: bool,
    pub(crate) seed: u64,
    /// Runtime threads that move bytes, at least 1.
    pub(crate) threads: usize,
    pub(crate) settings: Settings,
    pub(crate) load_poll_interval: Duration,
    /// How often workers are asked what they are.
    pub(crate) info_interval: Duration,
    pub(crate) health: Option<HealthConfig>,
    /// `None`: workers have no breakers.
    pub(crate) breaker: Option<BreakerConfig>,
    pub(crate) shutdown: Shutdown,
    /// Stop when standard input closes.
    pub(crate) exit_with_stdin: bool,
    /// Where the log is written beside standard error.
    pub(crate) log_dir: Option<PathBuf>,
    /// What is recorded for a replay, if anything.
    pub(crate) recorder: Option<Recorder>,
}

/// A worker that is known from the start.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StaticWorker {
    pub(crate) address: Address,
    /// Its own key; `None`: that of all workers.
    pub(crate) api_key: Option<ApiKey>,
    /// The model that it serves; `None`: it is asked.
    pub(crate) model: Option<String>,
    pub(crate) priority: u32,
    /// Not negative.
    pub(crate) cost: f64,
    pub(crate) labels: BTreeMap<String, String>,
    /// Whether it is probed, where workers are.
    pub(crate) health_check: bool,
    /// What it does; `None`: it is asked.
    pub(crate) role: Option<Role>,
    pub(crate) bootstrap_port: BootstrapPort,
}

/// Where decode workers find a prefill worker's bootstrap server, as far as operators say it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum BootstrapPort {
    /// Nothing is said: the worker is asked.
    #[default]
    Asked,
    /// No port is named to workers, who then take the one that they have by default.
    Unnamed,
    /// This one, above 0.
    Given(u16),
}

/// The member of a request's body that names a rank to an engine: SGLang has changed the name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum RankField {
    #[default]
    DataParallelRank,
    RoutedDpRank,
}

impl RankField {
    /// The name of the member.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::DataParallelRank => "data_parallel_rank",
            Self::RoutedDpRank => "routed_dp_rank",
        }
    }
}

/// What clients' connections may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    /// Connections at a time, at least 1.
    pub(crate) max_connections: usize,
    /// Bytes of a request's head, at least 8192.
    pub(crate) max_header_bytes: usize,
    /// From a head's first byte to its last.
    pub(crate) header_timeout: Duration,
    /// Longest silence between two requests.
    pub(crate) idle_timeout: Duration,
}

/// PEM files with which clients are served over TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerTls {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// PEM files for workers that are spoken to over TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UpstreamTls {
    /// The certificate and the key that are shown to workers.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
    /// Whose certificates are believed; empty: those that the system believes.
    pub(crate) authorities: Vec<PathBuf>,
}

/// The end after the first signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shutdown {
    /// How long new requests are still served; at most the grace.
    pub(crate) pause: Duration,
    /// How long everything may take, the pause too.
    pub(crate) grace: Duration,
}

/// What the data path looks at.
#[derive(Debug, Clone, PartialEq)]
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
    /// Who may use admin routes; empty: whoever shows `api_key`.
    pub(crate) admin_keys: AdminKeys,
    /// Whether admin calls that change something are logged.
    pub(crate) audit: bool,
    pub(crate) cors: Cors,
    /// `None`: a new worker gets its full share at once.
    pub(crate) warm_up: Option<WarmUp>,
    /// How long the running requests of a worker that is taken out may go on.
    pub(crate) drain_timeout: Duration,
    /// Whether there are to be prefill and decode workers.
    pub(crate) expects_pairs: bool,
    /// How an engine is told which of its ranks a request is for.
    pub(crate) dp_rank_field: RankField,
}

/// The origins whose pages may read answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Cors {
    /// None.
    #[default]
    Closed,
    /// Any.
    Any,
    /// These, as they are written in `Origin`.
    Listed(Vec<HeaderValue>),
}

impl Settings {
    /// Whether a request shows the key that clients need, or none is needed.
    pub(crate) fn admits(&self, headers: &HeaderMap) -> bool {
        self.api_key.as_ref().is_none_or(|key| key.admits(headers))
    }
}

/// How long things may take.
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HealthConfig {
    pub(crate) path: http::Uri,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    /// Failures in a row that make a worker unhealthy.
    pub(crate) failure_threshold: u32,
    /// Successes in a row that make it healthy again.
    pub(crate) success_threshold: u32,
}
