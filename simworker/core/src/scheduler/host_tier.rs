//! What the second tier of the cache means for admission.

use super::budget::{Budget, Verdict};
use super::request::Request;
use crate::cache::{Hold, HostTier, KvCache, WritePolicy};
use crate::config::EngineConfig;
use crate::preset::Preset;
use crate::time::Ticks;

/// Memory of the host as a second tier of the cache (`--enable-hierarchical-cache`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostTierConfig {
    /// Tokens that it holds; rounded down to whole pages.
    pub tokens: u64,
    /// When KV is copied there.
    pub write: WritePolicy,
    /// Fewer tokens than this are computed again rather than loaded back.
    pub load_back_threshold: u64,
    /// What gets through from the host to all GPUs of the rank, in bytes per second.
    pub bytes_per_second: f64,
    /// Bytes of KV per token over the whole model.
    pub kv_bytes_per_token: f64,
}

/// What a GPU gets from the host in bytes per second: PCIe 4.0 with 16 lanes, less its overhead.
pub const HOST_BYTES_PER_SECOND: f64 = 25e9;

impl HostTierConfig {
    /// SGLang's defaults for an engine with so many tokens on the device: twice as many on the host.
    #[must_use]
    pub fn of(preset: &Preset, device_tokens: u64) -> Self {
        Self {
            tokens: 2 * device_tokens,
            write: WritePolicy::default(),
            load_back_threshold: 10,
            bytes_per_second: HOST_BYTES_PER_SECOND * f64::from(preset.gpus),
            kv_bytes_per_token: preset.model.kv_bytes_per_token,
        }
    }

    /// How long loading a token back takes.
    pub(crate) fn load_time(&self) -> Ticks {
        Ticks::from_seconds(self.kv_bytes_per_token / self.bytes_per_second)
    }
}

/// The cache with all that the configuration adds to it.
pub(super) fn equip(cache: KvCache, config: &EngineConfig) -> KvCache {
    let cache = match config.kv_events {
        Some(naming) => cache.recording(naming),
        None => cache,
    };
    match config.host_tier {
        Some(HostTierConfig { tokens, write, load_back_threshold, .. }) => {
            cache.with_host(HostTier { capacity_tokens: tokens, write, load_back_threshold })
        }
        None => cache,
    }
}

/// Offers a request to the batch. What the host has of it is loaded back once the batch takes it; where that does not work
/// out, the request must do without.
pub(super) fn offer(
    budget: &mut Budget,
    cache: &mut KvCache,
    request: &Request,
    hold: &mut Hold,
    first: bool,
) -> Verdict {
    let (device, host) = (hold.matched_len() as u64, hold.host_len() as u64);
    let before = (host > 0).then(|| budget.clone());
    let verdict = budget.offer_with_host(cache, request, device, host, first);
    match (before, verdict) {
        (Some(before), Verdict::Take(_)) if cache.load_back(hold) == 0 => {
            *budget = before;
            budget.offer(cache, request, device, first)
        }
        _ => verdict,
    }
}
