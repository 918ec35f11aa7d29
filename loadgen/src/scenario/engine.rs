//! The part of `[fleet]` that configures the engine itself, and the same as flags of a live worker.

use simworker_core::cache::Eviction;
use simworker_core::preset::Preset;
use simworker_core::{ConfigError, EngineConfig, Schedule};

use super::error::{ScenarioError, suggest};
use super::section::{Field, Section};

/// Queue orders by name.
const SCHEDULES: [(&str, Schedule); 2] = [("fcfs", Schedule::Fcfs), ("lpm", Schedule::Lpm)];
/// Queue orders that SGLang has and the emulation has not.
const PLANNED_SCHEDULES: &[&str] =
    &["dfs-weight", "hrrn", "shortest-prefill-first", "lof", "random", "routing-key"];

/// Evictions by name.
const EVICTIONS: [(&str, Eviction); 4] = [
    ("lru", Eviction::Lru),
    ("lfu", Eviction::Lfu),
    ("slru", Eviction::Slru),
    ("priority", Eviction::Priority),
];
/// Evictions that SGLang has and the emulation has not.
const PLANNED_EVICTIONS: &[&str] = &["fifo", "filo", "mru"];

/// Largest number of tokens that a key may name where the engine counts in 32 bits.
const MOST_TOKENS: u32 = u32::MAX >> 1;

/// Settings of one engine, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineSettings {
    config: EngineConfig,
}

impl EngineSettings {
    /// The settings in the engine's own form.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The settings as command-line arguments of a mock worker; the flags are SGLang's.
    #[must_use]
    pub fn flags(&self) -> Vec<String> {
        let config = &self.config;
        let chunk = config.chunked_prefill.map_or_else(|| "-1".to_owned(), |tokens| tokens.to_string());
        let pairs = [
            ("--max-total-tokens", config.kv_tokens.to_string()),
            ("--page-size", config.page_size.to_string()),
            ("--schedule-policy", word(&SCHEDULES, config.schedule)),
            ("--context-length", config.context_len.to_string()),
            ("--chunked-prefill-size", chunk),
            ("--max-prefill-tokens", config.max_prefill_tokens.to_string()),
            ("--max-running-requests", config.max_running.to_string()),
            ("--radix-eviction-policy", word(&EVICTIONS, config.eviction)),
        ];
        let mut flags: Vec<String> =
            pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
        if !config.overlap {
            flags.push("--disable-overlap-schedule".to_owned());
        }
        flags
    }

    /// Reads the engine's keys of `[fleet]`.
    pub(super) fn read(section: &Section<'_>, preset: &Preset) -> Result<Self, ScenarioError> {
        let default = EngineConfig::of(preset);
        let tokens = |key: &str, default: u32| {
            section.get(key).map_or(Ok(default), |field| field.whole(1..=MOST_TOKENS))
        };
        let kv_tokens = section
            .get("kv_tokens")
            .map_or(Ok(default.kv_tokens), |field| field.whole(1..=1_000_000_000_000))?;
        let schedule = section
            .get("schedule")
            .map_or(Ok(default.schedule), |field| emulated(&field, &SCHEDULES, PLANNED_SCHEDULES))?;
        let eviction = section
            .get("eviction")
            .map_or(Ok(default.eviction), |field| emulated(&field, &EVICTIONS, PLANNED_EVICTIONS))?;
        let config = EngineConfig {
            kv_tokens,
            page_size: section.get("page").map_or(Ok(1), |field| field.whole(1..=4096))?,
            schedule,
            context_len: tokens("context", default.context_len)?,
            chunked_prefill: section.get("chunked_prefill").map_or(Ok(default.chunked_prefill), chunk)?,
            max_prefill_tokens: tokens("max_prefill_tokens", default.max_prefill_tokens)?,
            max_running: tokens("max_running", default.max_running)?,
            eviction,
            overlap: section.get("overlap").map_or(Ok(default.overlap), |field| field.boolean())?,
            ..default
        };
        config.validate().map_err(|error| blame(section, &error))?;
        Ok(Self { config })
    }
}

fn word<T: PartialEq>(words: &[(&str, T)], meaning: T) -> String {
    words.iter().find(|(_, m)| *m == meaning).map_or_else(String::new, |(word, _)| (*word).to_owned())
}

/// One of `words`; a word that SGLang knows too is not called unknown.
fn emulated<T: Clone>(field: &Field<'_>, words: &[(&str, T)], planned: &[&str]) -> Result<T, ScenarioError> {
    let given = field.text()?;
    if planned.contains(&given) {
        let remedy = suggest("", words.iter().map(|(word, _)| *word));
        return Err(field.error(format!("\"{given}\" is not available yet"), remedy));
    }
    field.choice(words)
}

/// A slice of a prompt; −1 switches slicing off, as the engine's own flag does.
fn chunk(field: Field<'_>) -> Result<Option<u32>, ScenarioError> {
    if field.is_integer(-1) {
        return Ok(None);
    }
    field.whole(1..=MOST_TOKENS).map(Some)
}

/// What the engine refuses, blamed on the key that it is about.
fn blame(section: &Section<'_>, error: &ConfigError) -> ScenarioError {
    let key = match error {
        ConfigError::NoPage => "page",
        ConfigError::TooLittleKv { .. } => "kv_tokens",
        ConfigError::ContextTooShort { .. } => "context",
        ConfigError::ChunkBelowPage { .. } => "chunked_prefill",
        ConfigError::NoPrefill => "max_prefill_tokens",
        ConfigError::NothingRuns => "max_running",
        // Not a key of scenarios: the engine's default is a good one.
        ConfigError::Conservativeness(_) => "preset",
    };
    section.error(key, error.to_string(), "")
}
