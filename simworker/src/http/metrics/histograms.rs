//! The histograms of `/metrics`.

use std::fmt::Write;

use simworker_core::EngineRole;

use super::{RANKS, STREAMED, WHOLE, describe};
use crate::latency::Histogram;
use crate::worker::FullReport;

/// One histogram. Times are engine time, but for those of answers about the load.
struct HistogramRow {
    name: &'static str,
    /// Labels beside the model and the kind of engine, ready to print.
    labels: &'static str,
    help: &'static str,
    value: fn(&FullReport) -> &Histogram,
}

const fn histogram(
    name: &'static str,
    labels: &'static str,
    help: &'static str,
    value: fn(&FullReport) -> &Histogram,
) -> HistogramRow {
    HistogramRow { name, labels, help, value }
}

const FIRST: &str = "From arrival to the first token.";
const PER_TOKEN: &str = "From the first token to the end, for each further token.";
const WHOLE_TIME: &str = "From arrival to the end.";
const STAGE: &str = "Time in a stage.";
const PROCESS: &str = ",tp_rank=\"0\",pp_rank=\"0\",moe_ep_rank=\"0\",stage=\"request_process\"";
const PREFILL: &str = ",tp_rank=\"0\",pp_rank=\"0\",moe_ep_rank=\"0\",stage=\"prefill_forward\"";

/// Series of one name side by side.
const ROWS: &[HistogramRow] = &[
    histogram("time_to_first_token_seconds", WHOLE, FIRST, |r| &r.latencies.first_token.whole),
    histogram("time_to_first_token_seconds", STREAMED, FIRST, |r| &r.latencies.first_token.streamed),
    histogram("inter_token_latency_seconds", "", "From one token to the next.", |r| &r.latencies.inter_token),
    histogram("request_time_per_output_token_seconds", WHOLE, PER_TOKEN, |r| &r.tally.per_token.whole),
    histogram("request_time_per_output_token_seconds", STREAMED, PER_TOKEN, |r| &r.tally.per_token.streamed),
    histogram("e2e_request_latency_seconds", WHOLE, WHOLE_TIME, |r| &r.latencies.end_to_end.whole),
    histogram("e2e_request_latency_seconds", STREAMED, WHOLE_TIME, |r| &r.latencies.end_to_end.streamed),
    histogram("queue_time_seconds", RANKS, "From the queue to the first schedule.", |r| &r.latencies.queue),
    histogram("per_stage_req_latency_seconds", PROCESS, STAGE, |r| &r.tally.process),
    histogram("per_stage_req_latency_seconds", PREFILL, STAGE, |r| &r.tally.prefill),
    histogram("prompt_tokens_histogram", "", "Lengths of prompts.", |r| &r.tally.prompt),
    histogram("uncached_prompt_tokens_histogram", "", "Lengths of what was computed of prompts.", |r| {
        &r.tally.uncached
    }),
    histogram("generation_tokens_histogram", "", "Lengths of replies.", |r| &r.tally.generated),
    histogram("get_loads_duration_seconds", "", "Real time of answers to /v1/loads.", |r| &r.tally.loads),
];

/// Histograms that never have a sample, as what they are about takes no time here.
const EMPTY: &[(&str, &str)] =
    &[("eviction_duration_seconds", "Time of an eviction, which is part of the step here.")];
/// The same, of workers that hand KV over.
const EMPTY_OF_PAIRS: &[(&str, &str)] = &[
    ("kv_transfer_speed_gb_s", "Speed of a transfer; /v1/loads has the last one."),
    ("kv_transfer_latency_ms", "Time of a transfer; /v1/loads has the last one."),
    ("kv_transfer_bootstrap_ms", "Time until both sides have found each other."),
    ("kv_transfer_alloc_ms", "Time until there were slots."),
    ("kv_transfer_total_mb", "Size of a transfer."),
];

pub(super) fn render(report: &FullReport, role: EngineRole, common: &str, text: &mut String) {
    let mut described = "";
    for HistogramRow { name, labels, help, value } in ROWS {
        if described != *name {
            describe(text, name, "histogram", help);
            described = name;
        }
        series(text, name, &format!("{common}{labels}"), value(report));
    }
    let of_pairs = if role == EngineRole::Whole { &[] } else { EMPTY_OF_PAIRS };
    for (name, help) in EMPTY.iter().chain(of_pairs) {
        describe(text, name, "histogram", help);
    }
}

fn series(text: &mut String, name: &str, labels: &str, histogram: &Histogram) {
    // Writing to a string cannot fail.
    for (bound, count) in histogram.cumulative() {
        let bound = if bound.is_finite() { format!("{bound:?}") } else { "+Inf".to_owned() };
        let _ = writeln!(text, "sglang:{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
    }
    let _ = writeln!(text, "sglang:{name}_sum{{{labels}}} {}", histogram.sum_s());
    let _ = writeln!(text, "sglang:{name}_count{{{labels}}} {}", histogram.count());
}
