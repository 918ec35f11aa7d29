//! Defaults of flags, and words that become values.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use protocol::duration;
use simworker_core::cache::Eviction;
use simworker_core::{
    EngineConfig, EngineRole, HandoffConfig, LINKS, Link, LoadBalance, PRESETS, Schedule, link,
};

use crate::config::Compat;

/// The one home of an engine's defaults.
pub(super) fn defaults() -> EngineConfig {
    EngineConfig::of(&PRESETS[0])
}

pub(super) fn handoff() -> HandoffConfig {
    defaults().handoff
}

pub(super) fn default_chunk() -> i64 {
    defaults().chunked_prefill.map_or(-1, i64::from)
}

pub(super) fn compats() -> impl TypedValueParser<Value = Compat> {
    one_of(Compat::ALL.iter().map(|compat| compat.label()), Compat::from_label)
}

/// What RFC 9113, section 6.5.2, recommends at least.
pub(super) const fn default_streams() -> u32 {
    100
}

pub(super) fn schedules() -> impl TypedValueParser<Value = Schedule> {
    one_of(Schedule::ALL.iter().map(|schedule| schedule.label()), Schedule::from_label)
}

pub(super) fn evictions() -> impl TypedValueParser<Value = Eviction> {
    one_of(Eviction::ALL.iter().map(|eviction| eviction.label()), Eviction::from_label)
}

pub(super) fn roles() -> impl TypedValueParser<Value = EngineRole> {
    one_of(EngineRole::ALL.iter().map(|role| role.label()), EngineRole::from_label)
}

pub(super) fn links() -> impl TypedValueParser<Value = Link> {
    let words = LINKS.iter().map(|preset| PossibleValue::new(preset.name).help(describe(preset.link)));
    PossibleValuesParser::new(words).try_map(|word| link(&word).ok_or("an unknown word"))
}

/// The numbers of a link.
fn describe(link: Link) -> String {
    let (gb_s, setup_ms) = (link.bytes_per_second / 1e9, link.setup_ns as f64 / 1e6);
    format!("{gb_s} GB/s, shared by all transfers; {setup_ms} ms to set up each")
}

/// A way of balancing; none is the one that SGLang takes for the role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Balance(pub(super) Option<LoadBalance>);

/// Ways of balancing that SGLang had, and those that have replaced them.
const GONE: &[(&str, LoadBalance)] = &[
    ("shortest_queue", LoadBalance::TotalRequests),
    ("minimum_tokens", LoadBalance::TotalTokens),
    ("decode_round_robin", LoadBalance::RoundRobin),
];

pub(super) fn parse_balance(text: &str) -> Result<Balance, String> {
    if text == "auto" {
        return Ok(Balance(None));
    }
    if let Some(balance) = LoadBalance::from_label(text) {
        return Ok(Balance(Some(balance)));
    }
    if let Some((_, balance)) = GONE.iter().find(|(name, _)| *name == text) {
        return Err(format!("SGLang no longer has it; use {}", balance.label()));
    }
    let labels = LoadBalance::ALL.map(LoadBalance::label).join(", ");
    Err(format!("allowed: auto, {labels}"))
}

/// Takes one of these words, lists them in the help and in the message for any other.
pub(super) fn one_of<T: Clone + Send + Sync + 'static>(
    words: impl Iterator<Item = &'static str>,
    read: fn(&str) -> Option<T>,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words).try_map(move |word| read(&word).ok_or("an unknown word"))
}

pub(super) fn parse_speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| "a number is needed".to_owned())?;
    if (1e-3..=1e4).contains(&speed) { Ok(speed) } else { Err("it must be between 0.001 and 10000".into()) }
}

/// Longest `--request-overhead`: an hour.
const MOST_OVERHEAD_NS: u64 = 3_600_000_000_000;

pub(super) fn parse_overhead(text: &str) -> Result<u64, String> {
    match duration::parse_ns(text) {
        Ok(ns) if ns <= MOST_OVERHEAD_NS => Ok(ns),
        Ok(_) => Err("it must be between 0s and 1h".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Nanoseconds of a number of milliseconds.
pub(super) fn parse_interval(text: &str) -> Result<u64, String> {
    let ms: f64 = text.parse().map_err(|_| "a number of milliseconds is needed".to_owned())?;
    if (0.0..=3.6e6).contains(&ms) {
        Ok((ms * 1e6) as u64)
    } else {
        Err("it must be between 0 and 3600000".into())
    }
}
