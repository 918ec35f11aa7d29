//! `/metrics`: SGLang's names, as far as an engine without GPUs can fill them. The table is the documentation.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use hyper::header::CONTENT_TYPE;
use simworker_core::{EngineLoads, EngineRole, EngineTotals};

use crate::config::WorkerConfig;
use crate::latency::{Histogram, Latencies};
use crate::worker::Worker;

/// The content type of Prometheus' text format.
pub(super) const CONTENT_TYPE_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What the rows are read from: one rank, or for the tokenizer's rows the sum of all.
struct Source<'a> {
    loads: EngineLoads,
    totals: EngineTotals,
    config: &'a WorkerConfig,
}

/// One series.
struct Row {
    name: &'static str,
    kind: Kind,
    /// Labels beside the usual ones, ready to print.
    labels: &'static str,
    help: &'static str,
    value: fn(&Source<'_>) -> f64,
}

/// Which process of an engine has the series decides its labels.
#[derive(Clone, Copy)]
enum Kind {
    SchedulerGauge,
    SchedulerCounter,
    TokenizerCounter,
}

const fn gauge(name: &'static str, help: &'static str, value: fn(&Source<'_>) -> f64) -> Row {
    Row { name, kind: Kind::SchedulerGauge, labels: "", help, value }
}

const fn counter(name: &'static str, help: &'static str, value: fn(&Source<'_>) -> f64) -> Row {
    Row { name, kind: Kind::SchedulerCounter, labels: "", help, value }
}

const fn tokenizer(name: &'static str, help: &'static str, value: fn(&Source<'_>) -> f64) -> Row {
    Row { name, kind: Kind::TokenizerCounter, labels: "", help, value }
}

const ROWS: &[Row] = &[
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
    gauge("num_paused_reqs", "Requests paused by a change of weights.", |_| 0.0),
    gauge("is_cuda_graph", "Whether the running batch is a CUDA graph, as decode batches are.", |s| {
        f64::from(u8::from(s.loads.running > 0))
    }),
    gauge("utilization", "Running share of what meets the latency goal.", |_| 0.0),
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
    Row {
        name: "realtime_tokens_total",
        kind: Kind::SchedulerCounter,
        labels: ",mode=\"prefill_compute\"",
        help: "Tokens computed by prefill steps.",
        value: |s| s.totals.prefill_uncached_tokens as f64,
    },
    counter("forward_execution_seconds_total", "Engine time spent in steps.", |s| {
        (s.totals.prefill_busy_ns + s.totals.decode_busy_ns) as f64 / 1e9
    }),
    tokenizer("prompt_tokens_total", "Prompt tokens of finished requests.", |s| {
        s.totals.prompt_tokens as f64
    }),
    tokenizer("generation_tokens_total", "Output tokens.", |s| s.totals.generated_tokens as f64),
    Row {
        name: "cached_tokens_total",
        kind: Kind::TokenizerCounter,
        labels: ",cache_source=\"device\"",
        help: "Prompt tokens served from the cache.",
        value: |s| s.totals.cached_tokens as f64,
    },
    tokenizer("num_requests_total", "Requests that ended.", |s| s.totals.finished_requests as f64),
    tokenizer("num_aborted_requests_total", "Requests that were aborted.", |s| {
        s.totals.aborted_requests as f64
    }),
];

/// One histogram, in engine time.
struct HistogramRow {
    name: &'static str,
    /// Labels beside the model and the kind of engine, ready to print.
    labels: &'static str,
    help: &'static str,
    value: fn(&Latencies) -> &Histogram,
}

const STREAMED: &str = ",is_streaming=\"true\"";
const WHOLE: &str = ",is_streaming=\"false\"";
/// The labels of the scheduler's series.
const RANKS: &str = ",tp_rank=\"0\",pp_rank=\"0\",moe_ep_rank=\"0\"";

const fn histogram(
    name: &'static str,
    labels: &'static str,
    help: &'static str,
    value: fn(&Latencies) -> &Histogram,
) -> HistogramRow {
    HistogramRow { name, labels, help, value }
}

/// Series of one name side by side.
const HISTOGRAMS: &[HistogramRow] = &[
    histogram("time_to_first_token_seconds", WHOLE, "From arrival to the first token.", |l| {
        &l.first_token.whole
    }),
    histogram("time_to_first_token_seconds", STREAMED, "From arrival to the first token.", |l| {
        &l.first_token.streamed
    }),
    histogram("inter_token_latency_seconds", "", "From one token to the next.", |l| &l.inter_token),
    histogram("e2e_request_latency_seconds", WHOLE, "From arrival to the end.", |l| &l.end_to_end.whole),
    histogram("e2e_request_latency_seconds", STREAMED, "From arrival to the end.", |l| {
        &l.end_to_end.streamed
    }),
    histogram("queue_time_seconds", RANKS, "From the queue to the first schedule.", |l| &l.queue),
];

pub(super) async fn metrics(State(worker): State<Arc<Worker>>) -> Response {
    let (ranks, latencies) = worker.full_report();
    let mut text = render(&ranks, &worker.config);
    render_histograms(&latencies, &worker.config, &mut text);
    ([(CONTENT_TYPE, CONTENT_TYPE_TEXT)], text).into_response()
}

/// The labels that all series have.
fn common(config: &WorkerConfig) -> String {
    let engine_type = match config.engine.role {
        EngineRole::Whole => "unified",
        EngineRole::Prefill | EngineRole::Decode => config.engine.role.label(),
    };
    format!("model_name=\"{}\",engine_type=\"{engine_type}\"", escape(&config.served_model_name))
}

fn render_histograms(latencies: &Latencies, config: &WorkerConfig, text: &mut String) {
    let common = common(config);
    let mut described = "";
    for HistogramRow { name, labels, help, value } in HISTOGRAMS {
        if described != *name {
            let _ = write!(text, "# HELP sglang:{name} {help}\n# TYPE sglang:{name} histogram\n");
            described = name;
        }
        let labels = format!("{common}{labels}");
        let histogram = value(latencies);
        for (bound, count) in histogram.cumulative() {
            let bound = if bound.is_finite() { format!("{bound:?}") } else { "+Inf".to_owned() };
            let _ = writeln!(text, "sglang:{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
        }
        let _ = writeln!(text, "sglang:{name}_sum{{{labels}}} {}", histogram.sum_s());
        let _ = writeln!(text, "sglang:{name}_count{{{labels}}} {}", histogram.count());
    }
}

fn render(ranks: &[(EngineLoads, EngineTotals)], config: &WorkerConfig) -> String {
    let common = common(config);
    let mut text = String::with_capacity(ROWS.len() * 200 * ranks.len());
    for row in ROWS {
        let Row { name, kind, labels, help, value } = row;
        let word = if matches!(kind, Kind::SchedulerGauge) { "gauge" } else { "counter" };
        // Writing to a string cannot fail.
        let _ = write!(text, "# HELP sglang:{name} {help}\n# TYPE sglang:{name} {word}\n");
        let values =
            ranks.iter().map(|(loads, totals)| value(&Source { loads: *loads, totals: *totals, config }));
        if matches!(kind, Kind::TokenizerCounter) {
            let _ = writeln!(text, "sglang:{name}{{{common}{labels}}} {}", values.sum::<f64>());
            continue;
        }
        for (rank, value) in values.enumerate() {
            // A lone rank does not name itself.
            let dp = if ranks.len() > 1 { format!(",dp_rank=\"{rank}\"") } else { String::new() };
            let _ = writeln!(text, "sglang:{name}{{{common}{RANKS}{dp}{labels}}} {value}");
        }
    }
    text
}

/// A label's value in the text format.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
