//! The series of one number. The table is the documentation.

use simworker_core::{EngineLoads, EngineTotals};

use super::tier;
use crate::config::WorkerConfig;
use crate::http::loads;

/// What the rows are read from: one rank, or for the tokenizer's rows the sum of all.
pub(super) struct Source<'a> {
    pub(super) loads: EngineLoads,
    pub(super) totals: EngineTotals,
    pub(super) config: &'a WorkerConfig,
    /// Engine time since the start of the process, and as much of it as no step was in progress.
    pub(super) up_ns: u64,
    pub(super) idle_ns: u64,
    pub(super) is_paused: bool,
}

/// One series.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Labels beside the usual ones, ready to print.
    pub(super) labels: &'static str,
    pub(super) help: &'static str,
    pub(super) value: fn(&Source<'_>) -> f64,
}

/// Which process of an engine has the series decides its labels.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    SchedulerGauge,
    SchedulerCounter,
    TokenizerCounter,
}

pub(super) const fn gauge(name: &'static str, help: &'static str, value: fn(&Source<'_>) -> f64) -> Row {
    Row { name, kind: Kind::SchedulerGauge, labels: "", help, value }
}

pub(super) const fn counter(name: &'static str, help: &'static str, value: fn(&Source<'_>) -> f64) -> Row {
    Row { name, kind: Kind::SchedulerCounter, labels: "", help, value }
}

const fn tokenizer(name: &'static str, help: &'static str, value: fn(&Source<'_>) -> f64) -> Row {
    Row { name, kind: Kind::TokenizerCounter, labels: "", help, value }
}

pub(super) const ROWS: &[Row] = &[
    gauge("num_running_reqs", "Requests in the decode batch.", |s| s.loads.running as f64),
    gauge("num_queue_reqs", "Requests in the waiting queue.", |s| s.loads.waiting as f64),
    gauge("num_grammar_queue_reqs", "Requests waiting for a grammar.", |_| 0.0),
    gauge("gen_throughput", "Output tokens per second.", |s| s.loads.gen_throughput),
    gauge("cache_hit_rate", "Cached share of the last prefill batch.", |s| s.loads.cache_hit_rate),
    gauge("token_usage", "Used share of the KV.", |s| s.loads.token_usage),
    gauge("full_token_usage", "Used share of the full-attention KV.", |s| s.loads.token_usage),
    gauge("num_used_tokens", "KV tokens in use.", |s| s.loads.used_tokens as f64),
    gauge("kv_used_tokens", "KV tokens in use.", |s| s.loads.used_tokens as f64),
    gauge("kv_available_tokens", "KV tokens that are free.", |s| s.loads.free_tokens as f64),
    gauge("kv_evictable_tokens", "KV tokens that are cached and idle.", |s| s.loads.evictable_tokens as f64),
    gauge("decode_sum_seq_lens", "Tokens with KV over the running requests.", |s| {
        s.loads.context_tokens as f64
    }),
    gauge("num_retracted_reqs", "Requests retracted in the last interval.", |s| {
        s.loads.retracted_lately as f64
    }),
    gauge("num_paused_reqs", "Requests that a pause of the generation holds up.", |s| {
        if s.is_paused { s.loads.running as f64 } else { 0.0 }
    }),
    gauge("is_cuda_graph", "Whether the running batch is a CUDA graph, as decode batches are.", |s| {
        f64::from(u8::from(s.loads.running > 0))
    }),
    gauge("utilization", "Running share of what meets the latency goal.", |_| 0.0),
    gauge("fwd_occupancy", "Share of the time with a step in progress, in percent.", |s| {
        100.0 * s.up_ns.saturating_sub(s.idle_ns) as f64 / s.up_ns.max(1) as f64
    }),
    gauge("num_unique_running_routing_keys", "Routing keys in the running batch.", |s| {
        s.loads.routing_keys as f64
    }),
    gauge("weight_memory_usage_gb", "Memory of the weights in GB.", |s| {
        loads::memory_load(s.config, &s.loads).weight_gb
    }),
    gauge("kv_cache_memory_usage_gb", "Memory of the KV in GB.", |s| {
        loads::memory_load(s.config, &s.loads).kv_cache_gb
    }),
    labelled(
        gauge("graph_memory_usage_gb", "Memory of device graphs in GB.", |s| {
            loads::memory_load(s.config, &s.loads).graph_gb
        }),
        ",phase=\"decode\"",
    ),
    gauge("new_token_ratio", "Share of outstanding output that is reserved.", |s| s.loads.new_token_ratio),
    gauge("max_total_num_tokens", "KV capacity in tokens.", |s| s.loads.max_total_tokens as f64),
    gauge("page_size", "Tokens per KV page.", |s| f64::from(s.config.engine.page_size)),
    gauge("num_pages", "KV capacity in pages.", |s| {
        s.loads.max_total_tokens as f64 / f64::from(s.config.engine.page_size)
    }),
    gauge("context_len", "Context length in tokens.", |s| f64::from(s.config.engine.context_len)),
    gauge("num_prefill_bootstrap_queue_reqs", "Requests that the decode side has not asked for.", |s| {
        s.loads.handoff.bootstrap as f64
    }),
    gauge("num_prefill_inflight_queue_reqs", "Requests whose KV is on its way.", |s| {
        s.loads.handoff.inflight as f64
    }),
    gauge("num_decode_prealloc_queue_reqs", "Requests that wait for KV slots.", |s| {
        s.loads.handoff.prealloc as f64
    }),
    gauge("num_decode_transfer_queue_reqs", "Requests whose KV has not arrived.", |s| {
        s.loads.handoff.transfer as f64
    }),
    gauge("pending_prealloc_token_usage", "Share of the KV that those waiting for slots will take.", |s| {
        s.loads.handoff.pending_usage
    }),
    counter("num_bootstrap_failed_reqs_total", "Requests whose two sides did not find each other.", |s| {
        s.totals.bootstrap_failed_requests as f64
    }),
    counter("num_transfer_failed_reqs_total", "Requests whose KV did not get through.", |s| {
        s.totals.transfer_failed_requests as f64
    }),
    counter("num_retracted_requests_total", "Retractions.", |s| s.totals.retractions as f64),
    counter("num_retracted_input_tokens_total", "Prompt tokens of retracted requests.", |s| {
        s.totals.retracted_input_tokens as f64
    }),
    counter("num_retracted_output_tokens_total", "Output tokens of retracted requests.", |s| {
        s.totals.retracted_output_tokens as f64
    }),
    counter("evicted_tokens_total", "Tokens evicted from the prefix cache.", |s| {
        s.totals.evicted_tokens as f64
    }),
    counter("num_prefill_retries_total", "Prefills tried again.", |_| 0.0),
    labelled(
        counter("realtime_tokens_total", "Tokens processed.", |s| s.totals.prefill_uncached_tokens as f64),
        ",mode=\"prefill_compute\"",
    ),
    labelled(
        counter("realtime_tokens_total", "Tokens processed.", |s| s.totals.cached_tokens as f64),
        ",mode=\"prefill_cache\"",
    ),
    labelled(
        counter("realtime_tokens_total", "Tokens processed.", |s| s.totals.generated_tokens as f64),
        ",mode=\"decode\"",
    ),
    labelled(
        counter("cuda_graph_passes_total", "Steps by whether they were device graphs.", |s| {
            s.totals.prefill_steps as f64
        }),
        ",mode=\"prefill_none\"",
    ),
    labelled(
        counter("cuda_graph_passes_total", "Steps by whether they were device graphs.", |s| {
            s.totals.decode_steps as f64
        }),
        ",mode=\"decode_cuda_graph\"",
    ),
    labelled(
        counter("forward_execution_seconds_total", "Engine time spent in steps.", |s| {
            s.totals.prefill_busy_ns as f64 / 1e9
        }),
        ",category=\"extend\"",
    ),
    labelled(
        counter("forward_execution_seconds_total", "Engine time spent in steps.", |s| {
            s.totals.decode_busy_ns as f64 / 1e9
        }),
        ",category=\"decode\"",
    ),
    counter("scheduler_idle_seconds_total", "Engine time without a step.", |s| s.idle_ns as f64 / 1e9),
    labelled(
        tokenizer("cached_tokens_total", "Prompt tokens served from the cache.", |s| {
            (s.totals.cached_tokens - s.totals.host_tokens) as f64
        }),
        ",cache_source=\"device\"",
    ),
    tier::CACHED,
    tokenizer("num_aborted_requests_total", "Requests that were aborted.", |s| {
        s.totals.aborted_requests as f64
    }),
];

/// The same series with more labels, ready to print.
const fn labelled(row: Row, labels: &'static str) -> Row {
    Row { labels, ..row }
}
