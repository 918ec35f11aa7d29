//! The series of a cache with a second tier.

use super::rows::{Kind, Row, Source, counter, gauge};

/// Beside the series of the same name for the device.
pub(super) const CACHED: Row = Row {
    name: "cached_tokens_total",
    kind: Kind::TokenizerCounter,
    labels: ",cache_source=\"host\"",
    help: "Prompt tokens served from the cache.",
    value: |s| s.totals.host_tokens as f64,
};

/// What only workers with a second tier have.
pub(super) const ROWS: &[Row] = &[
    gauge("hicache_host_used_tokens", "KV tokens on the host.", |s| host(s).0 as f64),
    gauge("hicache_host_total_tokens", "KV tokens that the host can hold.", |s| host(s).1 as f64),
    counter("load_back_tokens_total", "Tokens copied from the host to the device.", |s| {
        s.totals.host.loaded_back as f64
    }),
    counter("load_back_bytes_total", "Bytes copied from the host to the device.", |s| {
        s.totals.host.loaded_back as f64 * bytes(s)
    }),
    counter("hicache_backup_tokens_total", "Tokens copied from the device to the host.", |s| {
        s.totals.host.backed_up as f64
    }),
    counter("hicache_backup_bytes_total", "Bytes copied from the device to the host.", |s| {
        s.totals.host.backed_up as f64 * bytes(s)
    }),
    Row {
        name: "hicache_dropped_tokens_total",
        kind: Kind::SchedulerCounter,
        labels: ",reason=\"host_pressure\",pool=\"kv\"",
        help: "Tokens that the device gave up without a copy on the host.",
        value: |s| s.totals.host.dropped as f64,
    },
];

fn host(source: &Source<'_>) -> (u64, u64) {
    source.loads.host_tokens.unwrap_or_default()
}

/// SGLang counts those of one GPU.
fn bytes(source: &Source<'_>) -> f64 {
    let preset = source.config.preset;
    preset.model.kv_bytes_per_token / f64::from(preset.gpus)
}
