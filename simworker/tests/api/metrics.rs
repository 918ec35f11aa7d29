//! The whole list of metrics: names, types and labels.

use std::collections::BTreeSet;

use serde_json::json;
use simworker_core::EngineRole;

use crate::client::{Worker, prompt};

/// Name, type and labels beside those of the group.
const SCHEDULER: &str = "
    num_running_reqs gauge
    num_queue_reqs gauge
    num_grammar_queue_reqs gauge
    gen_throughput gauge
    cache_hit_rate gauge
    token_usage gauge
    full_token_usage gauge
    num_used_tokens gauge
    kv_used_tokens gauge
    kv_available_tokens gauge
    kv_evictable_tokens gauge
    decode_sum_seq_lens gauge
    num_retracted_reqs gauge
    num_paused_reqs gauge
    is_cuda_graph gauge
    utilization gauge
    fwd_occupancy gauge
    num_unique_running_routing_keys gauge
    weight_memory_usage_gb gauge
    kv_cache_memory_usage_gb gauge
    graph_memory_usage_gb gauge phase
    new_token_ratio gauge
    max_total_num_tokens gauge
    page_size gauge
    num_pages gauge
    context_len gauge
    num_prefill_bootstrap_queue_reqs gauge
    num_prefill_inflight_queue_reqs gauge
    num_decode_prealloc_queue_reqs gauge
    num_decode_transfer_queue_reqs gauge
    pending_prealloc_token_usage gauge
    num_bootstrap_failed_reqs_total counter
    num_transfer_failed_reqs_total counter
    num_prefill_retries_total counter
    num_retracted_requests_total counter
    num_retracted_input_tokens_total counter
    num_retracted_output_tokens_total counter
    evicted_tokens_total counter
    realtime_tokens_total counter mode
    cuda_graph_passes_total counter mode
    forward_execution_seconds_total counter category
    scheduler_idle_seconds_total counter
    queue_time_seconds histogram
    per_stage_req_latency_seconds histogram stage";

const TOKENIZER: &str = "
    prompt_tokens_total counter is_streaming
    generation_tokens_total counter is_streaming
    num_requests_total counter is_streaming
    cached_tokens_total counter cache_source
    num_aborted_requests_total counter
    time_to_first_token_seconds histogram is_streaming
    inter_token_latency_seconds histogram
    request_time_per_output_token_seconds histogram is_streaming
    e2e_request_latency_seconds histogram is_streaming
    prompt_tokens_histogram histogram
    uncached_prompt_tokens_histogram histogram
    generation_tokens_histogram histogram
    get_loads_duration_seconds histogram";

/// Known, but without a sample.
const EMPTY: &str = "
    eviction_duration_seconds histogram";

const EMPTY_OF_PAIRS: &str = "
    kv_transfer_bootstrap_ms histogram
    kv_transfer_alloc_ms histogram";

const TRANSFERS: &str = "
    kv_transfer_speed_gb_s histogram
    kv_transfer_latency_ms histogram
    kv_transfer_total_mb histogram";

/// Rows of a list with the labels that all of it have.
fn rows(list: &str, common: &str) -> Vec<String> {
    let lines = list.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| format!("{line} {common}").trim().to_owned()).map(sorted).collect()
}

/// Name and type, then the labels in order.
fn sorted(row: String) -> String {
    let mut words: Vec<&str> = row.split_whitespace().collect();
    words[2..].sort_unstable();
    words.join(" ")
}

/// Each name of a page with its type and its labels.
fn found(page: &str) -> BTreeSet<String> {
    let described = page.lines().filter_map(|line| line.strip_prefix("# TYPE sglang:"));
    let row = |line: &str| {
        let (name, kind) = line.split_once(' ').unwrap();
        let suffix = if kind == "histogram" { "_count" } else { "" };
        let sample = page.lines().find_map(|line| line.strip_prefix(&format!("sglang:{name}{suffix}{{")));
        let labels = sample.map_or("", |sample| sample.split_once('}').unwrap().0);
        let labels: Vec<&str> =
            labels.split(',').filter_map(|label| label.split_once('=')).map(|(name, _)| name).collect();
        sorted(format!("{name} {kind} {}", labels.join(" ")))
    };
    described.map(row).collect()
}

#[test]
fn the_list_of_all_metrics() {
    let worker = Worker::with(|config| config.dp_size = 2);
    let body = json!({"text": prompt(1, 50), "sampling_params": {"max_new_tokens": 3}});
    assert_eq!(worker.post("/generate", &body).status, 200);
    let page = worker.get("/metrics").body;
    let common = "model_name engine_type";
    let scheduler = format!("{common} tp_rank pp_rank moe_ep_rank");
    let ranked = format!("{scheduler} dp_rank");
    let mut expected = rows(SCHEDULER, &ranked);
    // Requests of all ranks are in one histogram.
    for row in &mut expected {
        if row.contains(" histogram ") {
            *row = row.replace("dp_rank ", "");
        }
    }
    expected.extend(rows(TOKENIZER, common));
    expected.extend(rows(EMPTY, ""));
    let expected: BTreeSet<String> = expected.into_iter().collect();
    let found = found(&page);
    let difference: Vec<&String> = found.symmetric_difference(&expected).collect();
    assert!(difference.is_empty(), "{difference:#?}");
    assert_eq!(page.matches("# TYPE sglang:").count(), found.len(), "each is described once");
    assert_eq!(page.matches("# TYPE simworker_").count(), 6, "those of the mock itself");
    assert_eq!(page.matches("# TYPE ").count(), found.len() + 6, "and no others");
}

#[test]
fn workers_of_pairs_have_those_of_transfers_too() {
    let worker = Worker::with(|config| config.engine.role = EngineRole::Prefill);
    let page = worker.get("/metrics").body;
    let found = found(&page);
    let transfers = rows(TRANSFERS, "model_name engine_type tp_rank pp_rank moe_ep_rank");
    for row in rows(EMPTY_OF_PAIRS, "").into_iter().chain(transfers) {
        assert!(found.contains(&row), "{row}");
    }
    assert!(page.contains("engine_type=\"prefill\""));
}

#[test]
fn they_are_there_only_if_asked_for() {
    let worker = Worker::with(|config| config.wire.enable_metrics = false);
    assert_eq!(worker.get("/metrics").status, 404);
    assert_eq!(worker.get("/server_info").json()["enable_metrics"], false);
}
