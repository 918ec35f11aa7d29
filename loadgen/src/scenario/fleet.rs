//! `[fleet]`: the workers, and what is between them and the router.

use simworker_core::preset::{self, Preset};
use simworker_core::{EngineConfig, EngineRole};

use super::document::Node;
use super::engine::{self, EngineSettings};
use super::error::{ScenarioError, suggest};
use super::ranks::Ranks;
use super::roles::Roles;
use super::section::{Field, Section};

/// Most workers of one fleet.
const MOST_WORKERS: u32 = 4096;
/// The preset of a fleet that names none.
const DEFAULT_PRESET: &str = "a100-80g-llama3-8b";

/// The keys of `[fleet]`.
pub(super) const KEYS: &[&str] = &[
    "workers",
    "prefill",
    "regular",
    "preset",
    "kv_tokens",
    "page",
    "schedule",
    "context",
    "chunked_prefill",
    "max_prefill_tokens",
    "max_running",
    "eviction",
    "overlap",
    "mixed_chunk",
    "share_chunks_first",
    "stream_interval",
    "speed",
    "network",
    "request_overhead",
    "kv_link",
    "decode_radix_cache",
    "reserved_decode_tokens",
    "dp_size",
    "dp_attention",
    "load_balance",
    "max_queued",
    "joining",
    "join_at",
];

/// The workers.
#[derive(Debug, Clone, PartialEq)]
pub struct Fleet {
    /// How many there are.
    pub workers: u32,
    /// Which of them prefill, which decode, and which do both.
    pub roles: Roles,
    /// The ranks of each.
    pub ranks: Ranks,
    /// The name of the model and hardware that each emulates.
    pub preset: &'static str,
    /// The engine inside each.
    pub engine: EngineSettings,
    /// Tokens per SSE frame, live.
    pub stream_interval: u32,
    /// How much faster than real time live workers run.
    pub speed: f64,
    /// One-way latency between router and worker in virtual time, in nanoseconds.
    pub network_ns: u64,
    /// What tokenising, HTTP and IPC cost per request inside the engine's front end, in nanoseconds.
    pub request_overhead_ns: u64,
    /// Workers that come while the run goes on, if there are some.
    pub joining: Option<Joining>,
}

/// The last workers of a fleet, which the router does not know at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joining {
    /// How many.
    pub workers: u32,
    /// When they come, in nanoseconds.
    pub at_ns: u64,
}

impl Fleet {
    /// The configuration of each engine of a role.
    #[must_use]
    pub fn engine_config(&self, role: EngineRole) -> EngineConfig {
        EngineConfig { role, ..self.engine.config().clone() }
    }

    /// How many workers the router knows from the start.
    #[must_use]
    pub fn known_at_first(&self) -> u32 {
        self.workers - self.joining.map_or(0, |joining| joining.workers)
    }

    /// The role of every worker, in the order of their places.
    pub fn worker_roles(&self) -> impl Iterator<Item = EngineRole> {
        (0..self.workers).map(|worker| self.roles.of(worker))
    }
}

/// Reads `[fleet]`.
pub(super) fn read(node: &Node) -> Result<Fleet, ScenarioError> {
    let section = Section::open(node, "fleet", KEYS)?;
    let preset = preset_of(&section)?;
    let time =
        |key: &str, default_ns| section.get(key).map_or(Ok(default_ns), |field| field.short_duration_ns());
    let workers = section.need("workers")?.whole(1..=MOST_WORKERS)?;
    let roles = Roles::read(&section, workers)?;
    let fleet = Fleet {
        workers,
        ranks: Ranks::read(&section, roles.decode == workers - roles.prefill)?,
        roles,
        preset: preset.name,
        engine: EngineSettings::read(&section, preset)?,
        stream_interval: section.get("stream_interval").map_or(Ok(1), |field| stream_interval(&field))?,
        speed: section.get("speed").map_or(Ok(1.0), |field| speed(&field))?,
        network_ns: time("network", 200_000)?,
        request_overhead_ns: time("request_overhead", 3_000_000)?,
        joining: joining(&section, workers)?,
    };
    if fleet.joining.is_some() && fleet.roles.disaggregated() {
        return Err(section.error(
            "joining",
            "is for fleets without prefill workers",
            "remove it, or fleet.prefill",
        ));
    }
    // Roles have bounds of their own, and ranks that step together share some, which may then be too small.
    for pool in fleet.roles.pools(workers) {
        let role = fleet.roles.of(pool.places.start);
        let ranks = fleet.ranks.of(role);
        ranks.validate(&fleet.engine_config(role)).map_err(|error| engine::blame(&section, &error))?;
    }
    Ok(fleet)
}

/// Reads which workers come later; at least one is there from the start.
fn joining(section: &Section<'_>, workers: u32) -> Result<Option<Joining>, ScenarioError> {
    let count = section.get("joining").map_or(Ok(0), |field| field.whole(0..=workers - 1))?;
    match (count, section.get("join_at")) {
        (0, None) => Ok(None),
        (0, Some(field)) => Err(field.error("says when workers come, and none does", "set fleet.joining")),
        (workers, _) => Ok(Some(Joining { workers, at_ns: section.need("join_at")?.short_duration_ns()? })),
    }
}

/// Tokens per SSE frame.
pub(super) fn stream_interval(field: &Field<'_>) -> Result<u32, ScenarioError> {
    field.whole(1..=1_000_000)
}

/// Speed against real time.
pub(super) fn speed(field: &Field<'_>) -> Result<f64, ScenarioError> {
    field.number(1e-3..=1e3)
}

fn preset_of(section: &Section<'_>) -> Result<&'static Preset, ScenarioError> {
    let name = section.get("preset").map_or(Ok(DEFAULT_PRESET), |field| field.text())?;
    preset::preset(name).ok_or_else(|| {
        let remedy = suggest(name, preset::PRESETS.iter().map(|p| p.name));
        section.error("preset", format!("\"{name}\" is not a preset"), remedy)
    })
}
