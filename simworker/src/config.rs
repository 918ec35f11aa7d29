//! What a host and its workers are made of: every value resolved.

mod live;
mod wire;

use simworker_core::{DpConfig, EngineConfig, EngineRole, LoadBalance, Pace, Preset};

use crate::fault::Assigned;
pub use crate::kv::{Endpoint, KvEndpoints, KvEventsConfig};
pub use live::LiveConfig;
pub use wire::{Compat, Health, Http2Config, WireConfig};

/// One worker.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// The engine inside.
    pub engine: EngineConfig,
    /// The model and the hardware that the info routes describe.
    pub preset: &'static Preset,
    /// The model's name or path, as the info routes show it.
    pub model_path: String,
    /// The name the model is served under.
    pub served_model_name: String,
    /// Tokens per frame of a stream, at least 1: the first token comes at once, then every so many, and the end.
    pub stream_interval: u32,
    /// `/generate` streams deltas instead of the whole text so far.
    pub incremental_streaming_output: bool,
    /// The OpenAI routes report cached tokens.
    pub enable_cache_report: bool,
    /// What clients see.
    pub wire: WireConfig,
    /// Engine time from the arrival of a request to its place in the queue (tokenising, HTTP and IPC), nanoseconds.
    pub request_overhead_ns: u64,
    /// Data-parallel ranks, at least 1; each is an engine.
    pub dp_size: u32,
    /// The ranks step together.
    pub dp_attention: bool,
    /// Which rank gets a request that names none; none = what SGLang takes for the role.
    pub load_balance: Option<LoadBalance>,
    /// Port of the bootstrap server of a prefill worker, where 0 takes a free one. Decode workers use the same port for
    /// requests that name none.
    pub bootstrap_port: u16,
    /// What it adds to the engine's times.
    pub live: LiveConfig,
    /// Events about KV are published.
    pub kv_events: Option<KvEventsConfig>,
}

impl WorkerConfig {
    /// A worker that serves `mock`: steps as long as the engine's, everything reported, and no time lost before the queue.
    #[must_use]
    pub fn mock(preset: &'static Preset) -> Self {
        Self {
            engine: EngineConfig { pace: Pace::Step, ..EngineConfig::of(preset) },
            preset,
            model_path: "org/mock".to_owned(),
            served_model_name: "mock".to_owned(),
            stream_interval: 1,
            incremental_streaming_output: false,
            enable_cache_report: true,
            wire: WireConfig::mock(),
            request_overhead_ns: 0,
            dp_size: 1,
            dp_attention: false,
            load_balance: None,
            bootstrap_port: 0,
            live: LiveConfig::default(),
            kv_events: None,
        }
    }

    /// The ranks, resolved.
    #[must_use]
    pub fn dp(&self) -> DpConfig {
        DpConfig {
            size: self.dp_size,
            balance: self.load_balance.unwrap_or_else(|| LoadBalance::auto(self.engine.role)),
            attention: self.dp_attention,
        }
    }
}

/// SGLang's port for bootstrap servers.
pub const BOOTSTRAP_PORT: u16 = 8998;

/// Which worker does what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Roles {
    /// All have the role of [`WorkerConfig::engine`].
    #[default]
    Same,
    /// The first ones are prefill workers, all others decode workers.
    Split {
        /// How many prefill workers there are.
        prefill: u32,
    },
}

impl Roles {
    /// The role of the worker at a place, where `given` is that of the engine.
    pub(crate) fn of(self, index: u32, given: EngineRole) -> EngineRole {
        match self {
            Self::Same => given,
            Self::Split { prefill } if index < prefill => EngineRole::Prefill,
            Self::Split { .. } => EngineRole::Decode,
        }
    }
}

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// An emulated engine.
    Engine,
    /// Canned replies, at once.
    Instant {
        /// From one chunk of a stream to the next, nanoseconds; 0 does without.
        interval_ns: u64,
    },
}

/// What is done to the workers from outside.
#[derive(Debug, Clone, Default)]
pub struct WatchConfig {
    /// The address and port of the control API; port 0 takes a free one.
    pub control: Option<(String, u16)>,
    /// What goes wrong from the start.
    pub faults: Vec<Assigned>,
    /// Decides which requests a fault with a probability hits.
    pub seed: u64,
}

impl WatchConfig {
    /// Nothing is done to them, and nobody looks.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.control.is_none() && self.faults.is_empty()
    }
}

/// A process with workers.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// How many workers, at least 1.
    pub workers: u32,
    /// The address to listen on.
    pub host: String,
    /// The first worker's port, the next ones follow; 0 takes free ports.
    pub port: u16,
    /// Engine seconds per real second, finite and above 0.
    pub speed: f64,
    /// What each worker is.
    pub worker: WorkerConfig,
    /// What each does.
    pub roles: Roles,
    /// Who answers.
    pub mode: Mode,
    /// Faults and the control port.
    pub watch: WatchConfig,
}
