//! The histograms of `/metrics` that are of all requests together.

use simworker_core::EngineRole;

use super::describe;
use super::labels::Labels;
use crate::exposition;
use crate::latency::Histogram;
use crate::worker::FullReport;

/// Which process of an engine has the series.
#[derive(Clone, Copy)]
enum From {
    Tokenizer,
    Scheduler,
}

/// One histogram. Times are engine time, but for those of answers about the load.
struct HistogramRow {
    name: &'static str,
    from: From,
    /// Labels beside the usual ones, ready to print.
    labels: &'static str,
    help: &'static str,
    value: fn(&FullReport) -> &Histogram,
}

const fn tokenizer(
    name: &'static str,
    help: &'static str,
    value: fn(&FullReport) -> &Histogram,
) -> HistogramRow {
    HistogramRow { name, from: From::Tokenizer, labels: "", help, value }
}

const fn scheduler(
    name: &'static str,
    labels: &'static str,
    help: &'static str,
    value: fn(&FullReport) -> &Histogram,
) -> HistogramRow {
    HistogramRow { name, from: From::Scheduler, labels, help, value }
}

const STAGE: &str = "Time in a stage.";
const PROCESS: &str = ",stage=\"request_process\"";
const PREFILL: &str = ",stage=\"prefill_forward\"";

/// Series of one name side by side.
const ROWS: &[HistogramRow] = &[
    tokenizer("inter_token_latency_seconds", "From one token to the next.", |r| &r.latencies.inter_token),
    scheduler("queue_time_seconds", "", "From the queue to the first schedule.", |r| &r.latencies.queue),
    scheduler("per_stage_req_latency_seconds", PROCESS, STAGE, |r| &r.tally.process),
    scheduler("per_stage_req_latency_seconds", PREFILL, STAGE, |r| &r.tally.prefill),
    tokenizer("get_loads_duration_seconds", "Real time of answers to /v1/loads.", |r| &r.tally.loads),
];

/// The same, of workers that send KV.
const ROWS_OF_SENDERS: &[HistogramRow] = &[
    scheduler("kv_transfer_speed_gb_s", "", "Speed of a transfer from a GPU, in GB/s.", |r| {
        &r.tally.transfers.speed_gb_s
    }),
    scheduler("kv_transfer_latency_ms", "", "Time of a transfer, in ms.", |r| &r.tally.transfers.latency_ms),
    scheduler("kv_transfer_total_mb", "", "Size of a transfer from a GPU, in MB.", |r| {
        &r.tally.transfers.total_mb
    }),
];

/// A histogram that never has a sample.
struct Empty {
    name: &'static str,
    help: &'static str,
    roles: &'static [EngineRole],
}

const fn empty(name: &'static str, help: &'static str, roles: &'static [EngineRole]) -> Empty {
    Empty { name, help, roles }
}

const ALL: &[EngineRole] = &[EngineRole::Whole, EngineRole::Prefill, EngineRole::Decode];
const PAIRS: &[EngineRole] = &[EngineRole::Prefill, EngineRole::Decode];
const RECEIVERS: &[EngineRole] = &[EngineRole::Decode];

/// What they are about takes no time here, or is counted by the other side.
const EMPTY: &[Empty] = &[
    empty("eviction_duration_seconds", "Time of an eviction, which is part of the step here.", ALL),
    empty("kv_transfer_bootstrap_ms", "Time until both sides have found each other.", PAIRS),
    empty("kv_transfer_alloc_ms", "Time until there were slots.", PAIRS),
    empty("kv_transfer_speed_gb_s", "Speed of a transfer; the prefill worker has it.", RECEIVERS),
    empty("kv_transfer_latency_ms", "Time of a transfer; the prefill worker has it.", RECEIVERS),
    empty("kv_transfer_total_mb", "Size of a transfer; the prefill worker has it.", RECEIVERS),
];

pub(super) fn render(report: &FullReport, role: EngineRole, labels: &Labels, text: &mut String) {
    let of_senders = if role == EngineRole::Prefill { ROWS_OF_SENDERS } else { &[] };
    let mut described = "";
    for HistogramRow { name, from, labels: own, help, value } in ROWS.iter().chain(of_senders) {
        if described != *name {
            describe(text, name, "histogram", help);
            described = name;
        }
        let common = match from {
            From::Tokenizer => labels.tokenizer(None),
            From::Scheduler => labels.scheduler(),
        };
        exposition::histogram(text, &format!("sglang:{name}"), &format!("{common}{own}"), value(report));
    }
    for Empty { name, help, .. } in EMPTY.iter().filter(|empty| empty.roles.contains(&role)) {
        describe(text, name, "histogram", help);
    }
}
