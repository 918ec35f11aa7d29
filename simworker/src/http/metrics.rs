//! `/metrics`: SGLang's names, types and labels (`metrics_collector.py`), as far as an engine without GPUs can fill
//! them. The tables are the documentation.

mod histograms;

mod tier;

use std::fmt::Write;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::header::CONTENT_TYPE;
use simworker_core::{EngineLoads, EngineRole, EngineTotals};

use super::loads;
use crate::config::WorkerConfig;
use crate::lag;
use crate::tally::{Counts, Tally};
use crate::worker::{FullReport, Worker};

/// The content type of Prometheus' text format.
pub(super) const CONTENT_TYPE_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What the rows are read from: one rank, or for the tokenizer's rows the sum of all.
struct Source<'a> {
    loads: EngineLoads,
    totals: EngineTotals,
    config: &'a WorkerConfig,
    /// Engine time since the start.
    up_ns: u64,
    is_paused: bool,
}

impl Source<'_> {
    fn busy_ns(&self) -> u64 {
        self.totals.prefill_busy_ns + self.totals.decode_busy_ns
    }
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
    gauge("num_paused_reqs", "Requests that a pause of the generation holds up.", |s| {
        if s.is_paused { s.loads.running as f64 } else { 0.0 }
    }),
    gauge("is_cuda_graph", "Whether the running batch is a CUDA graph, as decode batches are.", |s| {
        f64::from(u8::from(s.loads.running > 0))
    }),
    gauge("utilization", "Running share of what meets the latency goal.", |_| 0.0),
    gauge("fwd_occupancy", "Share of the time with a step in progress, in percent.", |s| {
        if s.up_ns == 0 { 0.0 } else { 100.0 * s.busy_ns() as f64 / s.up_ns as f64 }
    }),
    gauge("num_unique_running_routing_keys", "Routing keys in the running batch.", |_| 0.0),
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
    counter("scheduler_idle_seconds_total", "Engine time without a step.", |s| {
        s.up_ns.saturating_sub(s.busy_ns()) as f64 / 1e9
    }),
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

/// A counter of requests that have ended: one series for whole answers, one for streams.
struct CountRow {
    name: &'static str,
    help: &'static str,
    value: fn(&Counts) -> u64,
}

const COUNTS: &[CountRow] = &[
    CountRow {
        name: "prompt_tokens_total",
        help: "Prompt tokens of requests that ended.",
        value: |counts| counts.prompt_tokens,
    },
    CountRow {
        name: "generation_tokens_total",
        help: "Output tokens of requests that ended.",
        value: |counts| counts.generated_tokens,
    },
    CountRow { name: "num_requests_total", help: "Requests that ended.", value: |counts| counts.requests },
];

const STREAMED: &str = ",is_streaming=\"true\"";
const WHOLE: &str = ",is_streaming=\"false\"";
/// The labels of the scheduler's series.
const RANKS: &str = ",tp_rank=\"0\",pp_rank=\"0\",moe_ep_rank=\"0\"";

/// The route.
pub(super) fn routes(config: &WorkerConfig) -> Router<Arc<Worker>> {
    if config.wire.enable_metrics { Router::new().route("/metrics", get(metrics)) } else { Router::new() }
}

async fn metrics(State(worker): State<Arc<Worker>>) -> Response {
    let report = worker.full_report();
    let config = &worker.config;
    let mut text = render(&report, config);
    render_counts(&report.tally, &common(config), &mut text);
    histograms::render(&report, config.engine.role, &common(config), &mut text);
    lag::render(worker.index(), &worker.lag.report(), &report.latencies, &mut text);
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

/// The lines before the samples of a name. Writing to a string cannot fail.
fn describe(text: &mut String, name: &str, word: &str, help: &str) {
    let _ = write!(text, "# HELP sglang:{name} {help}\n# TYPE sglang:{name} {word}\n");
}

/// A kind of answer that was never given has no sample, as with SGLang.
fn render_counts(tally: &Tally, common: &str, text: &mut String) {
    for CountRow { name, help, value } in COUNTS {
        describe(text, name, "counter", help);
        for (counts, labels) in [(&tally.whole, WHOLE), (&tally.streamed, STREAMED)] {
            if counts.requests > 0 {
                let _ = writeln!(text, "sglang:{name}{{{common}{labels}}} {}", value(counts));
            }
        }
    }
}

fn render(report: &FullReport, config: &WorkerConfig) -> String {
    let FullReport { ranks, up_ns, is_paused, .. } = report;
    let common = common(config);
    let mut text = String::with_capacity(ROWS.len() * 200 * ranks.len());
    let mut described = "";
    let of_tier = config.engine.host_tier.is_some().then_some(tier::ROWS);
    for row in ROWS.iter().chain(of_tier.into_iter().flatten()) {
        let Row { name, kind, labels, help, value } = row;
        if described != *name {
            let word = if matches!(kind, Kind::SchedulerGauge) { "gauge" } else { "counter" };
            describe(&mut text, name, word, help);
            described = name;
        }
        let source = |(loads, totals): &(EngineLoads, EngineTotals)| {
            value(&Source { loads: *loads, totals: *totals, config, up_ns: *up_ns, is_paused: *is_paused })
        };
        let values = ranks.iter().map(source);
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
