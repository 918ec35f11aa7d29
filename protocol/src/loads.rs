//! Load reports: `/v1/loads` of current engines and `/get_load` of older ones, written by the worker, read by
//! the router.
//!
//! Writing is exact (keys and their order). Reading is tolerant and gives a [`LoadSummary`]: what an engine does
//! not say stays `None`, because unknown is neither zero nor the worst.

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

/// What a router takes from a report, summed over the worker's ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadSummary {
    /// Requests in the decode batch.
    pub running: u64,
    /// Requests in the queue.
    pub waiting: u64,
    /// KV tokens in use and the lengths of queued requests.
    pub total_tokens: u64,
    /// KV tokens in use.
    pub used_tokens: Option<u64>,
    /// KV capacity in tokens.
    pub max_tokens: Option<u64>,
    /// Used share of the KV, mean over ranks, 0 to 1.
    pub token_usage: Option<f64>,
    /// Cached share of recent prompt tokens, mean over ranks, 0 to 1.
    pub cache_hit_rate: Option<f64>,
    /// Output tokens per second.
    pub gen_throughput: Option<f64>,
}

/// The same of one data-parallel rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankSummary {
    /// The rank, as the engine counts; `None` if it does not say it.
    pub dp_rank: Option<u32>,
    /// Its load.
    pub load: LoadSummary,
}

/// A report that says nothing usable.
#[derive(Debug, thiserror::Error)]
pub enum LoadsError {
    /// Not JSON, or not of a known form.
    #[error("the load report cannot be read: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A report without a rank.
    #[error("the load report has no entry")]
    Empty,
    /// No token count under any of the known names.
    #[error("the load report has no token count")]
    NoTokens,
}

/// Either form of a report, as far as it is read.
#[derive(Deserialize)]
#[serde(untagged)]
enum Report {
    Current { loads: Vec<Entry> },
    Legacy(Vec<LegacyEntry>),
}

#[derive(Deserialize)]
struct LegacyEntry {
    dp_rank: Option<i64>,
    #[serde(flatten)]
    load: LegacyLoad,
}

#[derive(Deserialize)]
struct Entry {
    dp_rank: Option<i64>,
    num_running_reqs: u64,
    num_waiting_reqs: u64,
    num_total_tokens: Option<u64>,
    num_used_tokens: Option<u64>,
    max_total_num_tokens: Option<u64>,
    token_usage: Option<f64>,
    cache_hit_rate: Option<f64>,
    gen_throughput: Option<f64>,
}

impl LoadSummary {
    /// Reads the body of `/v1/loads` or of `/get_load`.
    ///
    /// # Errors
    /// [`LoadsError`] when the body is neither, or has no rank or no token count.
    pub fn parse(body: &[u8]) -> Result<Self, LoadsError> {
        let ranks = RankSummary::parse(body)?;
        Self::sum(&ranks).ok_or(LoadsError::Empty)
    }

    /// All of these together; nothing if there are none.
    #[must_use]
    pub fn sum(ranks: &[RankSummary]) -> Option<Self> {
        let count = ranks.len() as f64;
        let sum = ranks.iter().map(|rank| rank.load).reduce(Self::plus)?;
        Some(Self {
            token_usage: sum.token_usage.map(|sum| sum / count),
            cache_hit_rate: sum.cache_hit_rate.map(|sum| sum / count),
            ..sum
        })
    }

    fn of_entry(entry: &Entry) -> Result<Self, LoadsError> {
        Ok(Self {
            running: entry.num_running_reqs,
            waiting: entry.num_waiting_reqs,
            total_tokens: entry.num_total_tokens.or(entry.num_used_tokens).ok_or(LoadsError::NoTokens)?,
            used_tokens: entry.num_used_tokens,
            max_tokens: entry.max_total_num_tokens,
            token_usage: entry.token_usage,
            cache_hit_rate: entry.cache_hit_rate,
            gen_throughput: entry.gen_throughput,
        })
    }

    fn of_legacy(load: &LegacyLoad) -> Self {
        Self {
            running: load.num_reqs.saturating_sub(load.num_waiting_reqs),
            waiting: load.num_waiting_reqs,
            total_tokens: load.num_tokens,
            used_tokens: None,
            max_tokens: None,
            token_usage: None,
            cache_hit_rate: None,
            gen_throughput: None,
        }
    }

    /// Adds up two ranks; what one of them does not know, the sum does not know.
    fn plus(self, other: Self) -> Self {
        Self {
            running: self.running.saturating_add(other.running),
            waiting: self.waiting.saturating_add(other.waiting),
            total_tokens: self.total_tokens.saturating_add(other.total_tokens),
            used_tokens: both(self.used_tokens, other.used_tokens, u64::saturating_add),
            max_tokens: both(self.max_tokens, other.max_tokens, u64::saturating_add),
            token_usage: both(self.token_usage, other.token_usage, |a, b| a + b),
            cache_hit_rate: both(self.cache_hit_rate, other.cache_hit_rate, |a, b| a + b),
            gen_throughput: both(self.gen_throughput, other.gen_throughput, |a, b| a + b),
        }
    }
}

impl RankSummary {
    /// Reads the body of `/v1/loads` or of `/get_load`, rank by rank in the order of the report.
    ///
    /// # Errors
    /// As [`LoadSummary::parse`].
    pub fn parse(body: &[u8]) -> Result<Vec<Self>, LoadsError> {
        // A number that is none of a rank is none at all.
        let rank = |number: Option<i64>| number.and_then(|number| u32::try_from(number).ok());
        let ranks: Vec<Self> = match serde_json::from_slice(body)? {
            Report::Current { loads } => {
                let one = |entry: &Entry| {
                    Ok(Self { dp_rank: rank(entry.dp_rank), load: LoadSummary::of_entry(entry)? })
                };
                loads.iter().map(one).collect::<Result<_, LoadsError>>()?
            }
            Report::Legacy(loads) => loads
                .iter()
                .map(|entry| Self { dp_rank: rank(entry.dp_rank), load: LoadSummary::of_legacy(&entry.load) })
                .collect(),
        };
        if ranks.is_empty() { Err(LoadsError::Empty) } else { Ok(ranks) }
    }
}

fn both<T>(a: Option<T>, b: Option<T>, add: impl FnOnce(T, T) -> T) -> Option<T> {
    a.zip(b).map(|(a, b)| add(a, b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(dp_rank: u32) -> RankLoad {
        RankLoad {
            timestamp: 1.5,
            dp_rank,
            num_running_reqs: 3,
            num_waiting_reqs: 1,
            num_total_reqs: None,
            num_waiting_uncached_tokens: 2048,
            num_used_tokens: 9000,
            num_total_tokens: 11_100,
            num_active_tokens: 11_100,
            num_prealloc_ready_tokens: 0,
            max_total_num_tokens: 444_500,
            max_running_requests: 2048,
            token_usage: 0.02,
            gen_throughput: 812.5,
            cache_hit_rate: 0.41,
            utilization: 0.0,
            total_prefill_uncached_tokens: 5,
            total_prefill_busy_us: 6,
            decode_moments: None,
            memory: None,
            disaggregation: None,
            queues: None,
        }
    }

    fn response(ranks: u32) -> String {
        serde_json::to_string(&LoadsResponse {
            timestamp: "2026-01-01T00:00:00.000000+00:00".into(),
            version: "0".into(),
            accelerator: "A100".into(),
            num_accelerators: 1,
            dp_rank_count: None,
            loads: (0..ranks).map(rank).collect(),
            aggregate: None,
        })
        .unwrap()
    }

    #[test]
    fn core_keys_and_their_order() {
        let text = response(1);
        let keys = "timestamp dp_rank num_running_reqs num_waiting_reqs num_waiting_uncached_tokens num_used_tokens \
            num_total_tokens num_active_tokens num_prealloc_ready_tokens max_total_num_tokens max_running_requests \
            token_usage gen_throughput cache_hit_rate utilization total_prefill_uncached_tokens \
            total_prefill_busy_us decode_moments";
        let (_, entry) = text.split_once("\"loads\":[{").unwrap();
        let written: Vec<&str> =
            entry.trim_end_matches("}]}").split(',').map(|m| m.split('"').nth(1).unwrap()).collect();
        assert_eq!(written, keys.split_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn what_is_written_is_read() {
        let one = LoadSummary::parse(response(1).as_bytes()).unwrap();
        assert_eq!((one.running, one.waiting, one.total_tokens), (3, 1, 11_100));
        assert_eq!(
            (one.used_tokens, one.max_tokens, one.token_usage),
            (Some(9000), Some(444_500), Some(0.02))
        );
        let two = LoadSummary::parse(response(2).as_bytes()).unwrap();
        assert_eq!((two.running, two.total_tokens, two.token_usage), (6, 22_200, Some(0.02)));
        assert_eq!(two.gen_throughput, Some(1625.0));
    }

    #[test]
    fn older_forms() {
        let legacy = r#"[{"dp_rank":0,"num_reqs":5,"num_waiting_reqs":2,"num_tokens":700}]"#;
        let load = LoadSummary::parse(legacy.as_bytes()).unwrap();
        assert_eq!((load.running, load.waiting, load.total_tokens, load.token_usage), (3, 2, 700, None));
        let older = r#"{"dp_rank_count":1,"aggregate":{"total_reqs":4},
            "loads":[{"num_running_reqs":3,"num_waiting_reqs":1,"num_total_reqs":4,"num_used_tokens":60}]}"#;
        let load = LoadSummary::parse(older.as_bytes()).unwrap();
        assert_eq!((load.running, load.waiting, load.total_tokens), (3, 1, 60));
    }

    #[test]
    fn each_rank_is_known_by_its_number_as_far_as_that_is_told() {
        let numbers = |body: &str| -> Vec<(Option<u32>, u64)> {
            let ranks = RankSummary::parse(body.as_bytes()).unwrap();
            ranks.iter().map(|rank| (rank.dp_rank, rank.load.total_tokens)).collect()
        };
        let entry = |rank: &str, tokens: u32| {
            format!(r#"{{{rank}"num_running_reqs":1,"num_waiting_reqs":0,"num_used_tokens":{tokens}}}"#)
        };
        let [four, five] = [entry(r#""dp_rank":4,"#, 40), entry(r#""dp_rank":5,"#, 50)];
        let expected = [(Some(5), 50), (Some(4), 40)];
        assert_eq!(
            numbers(&format!(r#"{{"loads":[{five},{four}]}}"#)),
            expected,
            "in the order of the report"
        );
        let [untold, wrong] = [entry("", 7), entry(r#""dp_rank":-1,"#, 8)];
        assert_eq!(numbers(&format!(r#"{{"loads":[{untold},{wrong}]}}"#)), [(None, 7), (None, 8)]);
        let legacy = r#"{"num_reqs":5,"num_waiting_reqs":2,"num_tokens":700"#;
        let legacy = format!(r#"[{legacy}}},{legacy},"dp_rank":1}}]"#);
        assert_eq!(numbers(&legacy), [(None, 700), (Some(1), 700)]);
    }

    #[test]
    fn unusable_reports_are_errors() {
        let cases = [
            ("no ranks", r#"{"loads":[]}"#),
            ("no ranks, older", "[]"),
            ("no tokens", r#"{"loads":[{"num_running_reqs":3,"num_waiting_reqs":1}]}"#),
            ("negative", r#"{"loads":[{"num_running_reqs":-3,"num_waiting_reqs":1,"num_used_tokens":1}]}"#),
            ("another answer", r#"{"status":"ok"}"#),
            ("not JSON", "<html>"),
        ];
        for (case, body) in cases {
            assert!(LoadSummary::parse(body.as_bytes()).is_err(), "{case}");
        }
    }
}
