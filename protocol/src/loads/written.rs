//! What an engine writes: exact keys in their order.

use serde::{Deserialize, Serialize};

/// The answer to `/v1/loads`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadsResponse {
    /// When the answer was written, RFC 3339 in UTC with microseconds.
    pub timestamp: String,
    /// The engine's version.
    pub version: String,
    /// The name of the GPU.
    pub accelerator: String,
    /// GPUs behind one data-parallel rank.
    pub num_accelerators: u32,
    /// How many ranks there are; only older engines tell it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dp_rank_count: Option<u32>,
    /// One entry per data-parallel rank.
    pub loads: Vec<RankLoad>,
    /// All ranks together; only older engines tell it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<AggregateLoad>,
}

/// All ranks of an older engine together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct AggregateLoad {
    /// Requests in the decode batches.
    pub total_running_reqs: u64,
    /// Requests in the queues.
    pub total_waiting_reqs: u64,
    /// Both.
    pub total_reqs: u64,
    /// KV tokens in use.
    pub total_used_tokens: u64,
    /// Used tokens and the lengths of queued requests.
    pub total_tokens: u64,
    /// Mean over the ranks of the used share of the KV.
    pub avg_token_usage: f64,
    /// Mean over the ranks of output tokens per second.
    pub avg_throughput: f64,
    /// Mean over the ranks of their utilization.
    pub avg_utilization: f64,
}

impl AggregateLoad {
    /// These ranks together.
    #[must_use]
    pub fn of(ranks: &[RankLoad]) -> Self {
        let sum = |number: fn(&RankLoad) -> u64| ranks.iter().map(number).sum::<u64>();
        let mean =
            |number: fn(&RankLoad) -> f64| ranks.iter().map(number).sum::<f64>() / ranks.len().max(1) as f64;
        let (running, waiting) = (sum(|rank| rank.num_running_reqs), sum(|rank| rank.num_waiting_reqs));
        Self {
            total_running_reqs: running,
            total_waiting_reqs: waiting,
            total_reqs: running + waiting,
            total_used_tokens: sum(|rank| rank.num_used_tokens),
            total_tokens: sum(|rank| rank.num_total_tokens),
            avg_token_usage: mean(|rank| rank.token_usage),
            avg_throughput: mean(|rank| rank.gen_throughput),
            avg_utilization: mean(|rank| rank.utilization),
        }
    }
}

/// The load of one data-parallel rank: 18 core keys, then the sections that were asked for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankLoad {
    /// When the numbers were taken, seconds since the epoch.
    pub timestamp: f64,
    /// The rank.
    pub dp_rank: u32,
    /// Requests in the decode batch.
    pub num_running_reqs: u64,
    /// Requests in the queue.
    pub num_waiting_reqs: u64,
    /// Both; only older engines tell it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_total_reqs: Option<u64>,
    /// Prompt tokens of the queue that are expected to be computed, and the rest of a chunked request.
    pub num_waiting_uncached_tokens: u64,
    /// KV tokens in use: capacity − free − evictable.
    pub num_used_tokens: u64,
    /// Used tokens and the lengths of queued requests that hold no KV yet.
    pub num_total_tokens: u64,
    /// Total tokens without those whose KV is still to arrive.
    pub num_active_tokens: u64,
    /// Tokens of pre-allocated requests that are ready (decode servers).
    pub num_prealloc_ready_tokens: u64,
    /// KV capacity in tokens.
    pub max_total_num_tokens: u64,
    /// The most requests that may run at once.
    pub max_running_requests: u64,
    /// Used share of the KV, 0 to 1.
    pub token_usage: f64,
    /// Output tokens per second over the last log interval.
    pub gen_throughput: f64,
    /// Cached share of the prompt tokens of the last log interval, 0 to 1.
    pub cache_hit_rate: f64,
    /// Running share of what the engine could run within its latency goal; 0 when there is no goal.
    pub utilization: f64,
    /// Prompt tokens computed since the start.
    pub total_prefill_uncached_tokens: u64,
    /// Time spent in prefill steps since the start, in microseconds.
    pub total_prefill_busy_us: u64,
    /// `[steps, Σ batch, Σ step µs, Σ batch², Σ batch·µs, Σ generated tokens]` of decode since the start.
    pub decode_moments: Option<[f64; 6]>,
    /// Section `memory`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryLoad>,
    /// Section `disaggregation`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disaggregation: Option<DisaggregationLoad>,
    /// Section `queues`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<QueueLoad>,
}

/// GPU memory, in GB.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MemoryLoad {
    /// Model weights.
    pub weight_gb: f64,
    /// KV cache.
    pub kv_cache_gb: f64,
    /// CUDA graphs.
    pub graph_gb: f64,
    /// KV capacity in tokens.
    pub token_capacity: u64,
}

/// Queues of prefill/decode disaggregation; all zero on a regular worker.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DisaggregationLoad {
    /// `null` (the word), `prefill` or `decode`.
    pub mode: String,
    /// Prefill: waiting for the bootstrap.
    pub prefill_bootstrap_queue_reqs: u64,
    /// Prefill: computed, transfer under way.
    pub prefill_inflight_queue_reqs: u64,
    /// Decode: waiting for KV slots.
    pub decode_prealloc_queue_reqs: u64,
    /// Decode: waiting for the transfer.
    pub decode_transfer_queue_reqs: u64,
    /// Decode: retracted.
    pub decode_retracted_queue_reqs: u64,
    /// Speed of the last transfer.
    pub kv_transfer_speed_gb_s: f64,
    /// Latency of the last transfer.
    pub kv_transfer_latency_ms: f64,
}

/// Lengths of the scheduler's queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct QueueLoad {
    /// Waiting for prefill.
    pub waiting: u64,
    /// Waiting for a grammar.
    pub grammar: u64,
    /// Paused.
    pub paused: u64,
    /// Retracted.
    pub retracted: u64,
    /// Pre-allocated and ready.
    pub prealloc_ready: u64,
}

/// One entry of the older `/get_load`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegacyLoad {
    /// The rank.
    #[serde(default)]
    pub dp_rank: u32,
    /// Requests, running and waiting.
    pub num_reqs: u64,
    /// Requests waiting.
    pub num_waiting_reqs: u64,
    /// KV tokens in use, and the lengths of waiting requests.
    pub num_tokens: u64,
}
