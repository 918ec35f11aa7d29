//! Flags about KV and its cache.

use clap::Args;
use simworker_core::cache::{Eviction, WritePolicy};
use simworker_core::{HOST_BYTES_PER_SECOND, HostTierConfig, Preset};

use super::words::{defaults, evictions, one_of};
use crate::config::KvEventsConfig;

#[derive(Debug, Args)]
#[command(next_help_heading = "KV cache")]
pub(super) struct CacheArgs {
    /// KV capacity in tokens [default: the preset's].
    #[arg(long, alias = "max-total-tokens", value_name = "TOKENS")]
    pub(in crate::cli) kv_tokens: Option<u64>,
    /// Tokens per KV page [default: 1, or that of the preset's file].
    #[arg(long, value_name = "TOKENS")]
    pub(in crate::cli) page_size: Option<u32>,
    /// Which cached tokens go first.
    #[arg(long, value_name = "POLICY", default_value = defaults().eviction.label(), value_parser = evictions())]
    pub(in crate::cli) radix_eviction_policy: Eviction,
    /// Nothing is ever found in the cache.
    #[arg(long)]
    pub(in crate::cli) disable_radix_cache: bool,
    /// Publish what becomes of blocks in the cache: a JSON object with publisher (zmq or null), endpoint
    /// (tcp://*:5557), bind, replay_endpoint, topic, buffer_steps, max_queue_size, hwm (100000 whatever it says) and format
    /// (default or dynamo). Each rank has a port, from that of the endpoint on; the ranks of the next worker follow.
    #[arg(long, value_name = "JSON", value_parser = parse_kv_events)]
    pub(in crate::cli) kv_events_config: Option<Published>,
    /// Keep KV that the GPUs give up in memory of the host.
    #[arg(long)]
    pub(in crate::cli) enable_hierarchical_cache: bool,
    /// KV that the host keeps, as a multiple of what the GPUs do.
    #[arg(long, value_name = "FACTOR", default_value_t = 2.0, value_parser = parse_ratio)]
    pub(in crate::cli) hicache_ratio: f64,
    /// The same in gigabytes for each GPU; if it is not 0, the ratio does not count.
    #[arg(long, value_name = "GB", default_value_t = 0)]
    pub(in crate::cli) hicache_size: u32,
    /// When KV is copied to the host: at once, when it has been used twice, or when the GPUs give it up.
    #[arg(long, value_name = "POLICY", default_value = WritePolicy::default().label(), value_parser = write_policies())]
    pub(in crate::cli) hicache_write_policy: WritePolicy,
    /// What each GPU gets from the host, in gigabytes per second. SGLang has no such flag: it is a property of the machine.
    #[arg(long, value_name = "GB", default_value_t = HOST_BYTES_PER_SECOND / 1e9, value_parser = parse_bandwidth)]
    pub(in crate::cli) hicache_bandwidth: f64,
}

impl CacheArgs {
    /// The host's share, if it has one.
    pub(super) fn host_tier(&self, preset: &Preset) -> Option<HostTierConfig> {
        if !self.enable_hierarchical_cache {
            return None;
        }
        let (usual, gpus) = (HostTierConfig::of(preset, preset.kv_tokens), f64::from(preset.gpus));
        let tokens = match self.hicache_size {
            0 => preset.kv_tokens as f64 * self.hicache_ratio,
            size => f64::from(size) * 1e9 * gpus / usual.kv_bytes_per_token,
        };
        Some(HostTierConfig {
            tokens: tokens as u64,
            write: self.hicache_write_policy,
            bytes_per_second: self.hicache_bandwidth * 1e9 * gpus,
            ..usual
        })
    }
}

/// What `--kv-events-config` says; none if nothing is published.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Published(pub(in crate::cli) Option<KvEventsConfig>);

fn parse_kv_events(text: &str) -> Result<Published, String> {
    KvEventsConfig::parse(text).map(Published)
}

fn write_policies() -> impl clap::builder::TypedValueParser<Value = WritePolicy> {
    one_of(WritePolicy::ALL.iter().map(|policy| policy.label()), WritePolicy::from_label)
}

fn parse_ratio(text: &str) -> Result<f64, String> {
    within(text, 0.001, 1000.0)
}

fn parse_bandwidth(text: &str) -> Result<f64, String> {
    within(text, 0.01, 10_000.0)
}

fn within(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "a number is needed".to_owned())?;
    if (least..=most).contains(&number) {
        Ok(number)
    } else {
        Err(format!("it must be between {least} and {most}"))
    }
}
