//! The part of `[fleet]` that configures the engine itself, and the same as flags of a live worker.

use simworker_core::cache::Eviction;
use simworker_core::preset::Preset;
use simworker_core::{ConfigError, EngineConfig, Schedule};

use super::error::{ScenarioError, suggest};
use super::roles;
use super::section::{Field, Section};

/// Evictions that SGLang has and the emulation has not.
const UNEMULATED_EVICTIONS: &[&str] = &["tlru"];

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

    /// The settings as command-line arguments of a mock worker; the flags are SGLang's, but for
    /// `--share-chunks-first`, which the emulation adds.
    #[must_use]
    pub fn flags(&self) -> Vec<String> {
        let config = &self.config;
        let chunk = config.chunked_prefill.map_or_else(|| "-1".to_owned(), |tokens| tokens.to_string());
        let pairs = [
            ("--max-total-tokens", config.kv_tokens.to_string()),
            ("--page-size", config.page_size.to_string()),
            ("--schedule-policy", config.schedule.label().to_owned()),
            ("--context-length", config.context_len.to_string()),
            ("--chunked-prefill-size", chunk),
            ("--max-prefill-tokens", config.max_prefill_tokens.to_string()),
            ("--max-running-requests", config.max_running.to_string()),
            ("--radix-eviction-policy", config.eviction.label().to_owned()),
        ];
        let mut flags: Vec<String> =
            pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
        if let Some(most) = config.max_queued {
            flags.extend(["--max-queued-requests".to_owned(), most.to_string()]);
        }
        if !config.overlap {
            flags.push("--disable-overlap-schedule".to_owned());
        }
        if config.mixed_chunk {
            flags.push("--enable-mixed-chunk".to_owned());
        }
        if config.share_chunks_first {
            flags.push("--share-chunks-first".to_owned());
        }
        flags
    }

    /// Reads the engine's keys of `[fleet]`.
    pub(super) fn read(section: &Section<'_>, preset: &Preset) -> Result<Self, ScenarioError> {
        let default = EngineConfig::of(preset);
        let tokens = |key: &str, default: u32| {
            section.get(key).map_or(Ok(default), |field| field.whole(1..=MOST_TOKENS))
        };
        let flag = |key: &str, default: bool| section.get(key).map_or(Ok(default), |field| field.boolean());
        let kv_tokens = section
            .get("kv_tokens")
            .map_or(Ok(default.kv_tokens), |field| field.whole(1..=1_000_000_000_000))?;
        let schedules = Schedule::ALL.map(|schedule| (schedule.label(), schedule));
        let schedule =
            section.get("schedule").map_or(Ok(default.schedule), |field| field.choice(&schedules))?;
        let evictions = Eviction::ALL.map(|eviction| (eviction.label(), eviction));
        let eviction = section
            .get("eviction")
            .map_or(Ok(default.eviction), |field| emulated(&field, &evictions, UNEMULATED_EVICTIONS))?;
        let config = EngineConfig {
            kv_tokens,
            page_size: section.get("page").map_or(Ok(1), |field| field.whole(1..=4096))?,
            schedule,
            context_len: tokens("context", default.context_len)?,
            chunked_prefill: section.get("chunked_prefill").map_or(Ok(default.chunked_prefill), chunk)?,
            max_prefill_tokens: tokens("max_prefill_tokens", default.max_prefill_tokens)?,
            max_running: tokens("max_running", default.max_running)?,
            max_queued: section
                .get("max_queued")
                .map_or(Ok(0), |field| field.whole(0..=MOST_TOKENS))
                .map(queue)?,
            eviction,
            overlap: flag("overlap", default.overlap)?,
            mixed_chunk: flag("mixed_chunk", default.mixed_chunk)?,
            share_chunks_first: flag("share_chunks_first", default.share_chunks_first)?,
            handoff: roles::handoff(section, &default.handoff)?,
            ..default
        };
        config.validate().map_err(|error| blame(section, &error))?;
        Ok(Self { config })
    }
}

/// One of `words`; a word that SGLang knows too is not called unknown.
fn emulated<T: Clone>(
    field: &Field<'_>,
    words: &[(&'static str, T)],
    unemulated: &[&str],
) -> Result<T, ScenarioError> {
    let given = field.text()?;
    if unemulated.contains(&given) {
        let remedy = suggest("", words.iter().map(|(word, _)| *word));
        return Err(field.error(format!("\"{given}\" is not emulated"), remedy));
    }
    field.choice(words)
}

/// A bound on waiting requests; 0 is none.
fn queue(most: u32) -> Option<u32> {
    Some(most).filter(|most| *most > 0)
}

/// A slice of a prompt; −1 switches slicing off, as the engine's own flag does.
fn chunk(field: Field<'_>) -> Result<Option<u32>, ScenarioError> {
    if field.is_integer(-1) {
        return Ok(None);
    }
    field.whole(1..=MOST_TOKENS).map(Some)
}

/// What the engine refuses, blamed on the key that it is about.
pub(super) fn blame(section: &Section<'_>, error: &ConfigError) -> ScenarioError {
    let key = match error {
        ConfigError::NoPage => "page",
        ConfigError::TooLittleKv { .. } => "kv_tokens",
        ConfigError::ContextTooShort { .. } => "context",
        ConfigError::ChunkBelowPage { .. } => "chunked_prefill",
        ConfigError::NoPrefill => "max_prefill_tokens",
        ConfigError::NothingRuns | ConfigError::TooFewToShare { .. } => "max_running",
        ConfigError::NoRank => "dp_size",
        ConfigError::ScheduleWithoutPriorities { .. } | ConfigError::ScheduleNeedsCache => "schedule",
        // Not keys of scenarios: the engine's defaults are good ones.
        ConfigError::Conservativeness(_)
        | ConfigError::NothingPrefills
        | ConfigError::NoLogInterval
        | ConfigError::Bandwidth(_)
        | ConfigError::HostBandwidth(_)
        | ConfigError::BytesPerToken(_) => "preset",
    };
    section.error(key, error.to_string(), "")
}
