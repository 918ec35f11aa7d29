//! `/v1/loads` and the older `/get_load`.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::header::CONTENT_TYPE;
use protocol::loads::{DisaggregationLoad, LegacyLoad, LoadsResponse, MemoryLoad, QueueLoad, RankLoad};
use serde::Deserialize;
use simworker_core::EngineLoads;
use simworker_core::engine::DecodeMoments;

use super::failure::{Api, Failure};
use super::{info, json, metrics};
use crate::clock::{rfc3339, unix_seconds};
use crate::worker::Worker;

/// Memory that CUDA graphs take, in GB; the model of the hardware does not know it.
const GRAPH_GB: f64 = 1.3;

pub(super) fn routes() -> Router<Arc<Worker>> {
    Router::new().route("/v1/loads", get(loads))
}

/// The query of `/v1/loads`. Numbers stay text, so that a wrong one gets the right error body.
#[derive(Debug, Deserialize)]
pub(super) struct LoadsQuery {
    dp_rank: Option<String>,
    include: Option<String>,
    format: Option<String>,
}

/// Sections that may be asked for beside the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sections {
    memory: bool,
    disaggregation: bool,
    queues: bool,
}

impl Sections {
    const NONE: Self = Self { memory: false, disaggregation: false, queues: false };
    const ALL: Self = Self { memory: true, disaggregation: true, queues: true };

    /// Reads the comma list of `include`. Speculation and adapters are known sections that are never active here.
    fn parse(include: Option<&str>) -> Result<Self, Failure> {
        let Some(include) = include.filter(|list| !list.trim().is_empty()) else { return Ok(Self::ALL) };
        include.split(',').map(str::trim).try_fold(Self::NONE, |sections, name| match name {
            "all" => Ok(Self::ALL),
            "core" | "spec" | "lora" => Ok(sections),
            "memory" => Ok(Self { memory: true, ..sections }),
            "disagg" => Ok(Self { disaggregation: true, ..sections }),
            "queues" => Ok(Self { queues: true, ..sections }),
            _ => Err(Failure::bad_request(format!(
                "Invalid include section '{name}'. Allowed: core, memory, spec, lora, disagg, queues, all"
            ))),
        })
    }
}

async fn loads(State(worker): State<Arc<Worker>>, Query(query): Query<LoadsQuery>) -> Response {
    answer(&worker, &query).unwrap_or_else(|failure| failure.response(Api::OpenAi))
}

fn answer(worker: &Worker, query: &LoadsQuery) -> Result<Response, Failure> {
    let sections = Sections::parse(query.include.as_deref())?;
    if let Some(rank) = query.dp_rank.as_deref().filter(|rank| *rank != "0") {
        return Err(Failure::bad_request(format!("dp_rank is {rank}; it must be in the range [0, 1)")));
    }
    let now = unix_seconds();
    let load = rank_load(worker, sections);
    match query.format.as_deref() {
        None | Some("json") => Ok(json(&LoadsResponse {
            timestamp: rfc3339(now),
            version: info::VERSION.to_owned(),
            accelerator: worker.config.preset.gpu.name.to_owned(),
            num_accelerators: worker.config.preset.gpus,
            loads: vec![load],
        })),
        Some("prometheus") => {
            Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE_TEXT)], prometheus(&load)).into_response())
        }
        Some(other) => {
            Err(Failure::bad_request(format!("Invalid format '{other}'. Allowed: json, prometheus")))
        }
    }
}

fn rank_load(worker: &Worker, sections: Sections) -> RankLoad {
    let (loads, timestamp) = worker.told_loads();
    RankLoad {
        timestamp,
        dp_rank: 0,
        num_running_reqs: loads.running,
        num_waiting_reqs: loads.waiting,
        num_waiting_uncached_tokens: loads.waiting_uncached_tokens,
        num_used_tokens: loads.used_tokens,
        num_total_tokens: loads.total_tokens,
        // No KV is ever on its way to a regular worker.
        num_active_tokens: loads.total_tokens,
        num_prealloc_ready_tokens: 0,
        max_total_num_tokens: loads.max_total_tokens,
        max_running_requests: loads.max_running,
        token_usage: loads.token_usage,
        gen_throughput: loads.gen_throughput,
        cache_hit_rate: loads.cache_hit_rate,
        utilization: 0.0,
        total_prefill_uncached_tokens: loads.total_prefill_uncached_tokens,
        total_prefill_busy_us: loads.total_prefill_busy_us,
        decode_moments: loads.decode_moments.map(moments),
        memory: sections.memory.then(|| memory_load(worker, &loads)),
        disaggregation: sections
            .disaggregation
            .then(|| DisaggregationLoad { mode: "null".into(), ..DisaggregationLoad::default() }),
        queues: sections.queues.then(|| QueueLoad { waiting: loads.waiting, ..QueueLoad::default() }),
    }
}

fn moments(m: DecodeMoments) -> [f64; 6] {
    [m.steps, m.batch, m.us, m.batch_squared, m.batch_us, m.generated].map(|sum| sum as f64)
}

fn memory_load(worker: &Worker, loads: &EngineLoads) -> MemoryLoad {
    let preset = worker.config.preset;
    let gpus = f64::from(preset.gpus);
    let gb = |bytes: f64| (bytes / gpus / f64::from(1 << 30) * 100.0).round() / 100.0;
    MemoryLoad {
        weight_gb: gb(preset.model.weight_bytes),
        kv_cache_gb: gb(loads.max_total_tokens as f64 * preset.model.kv_bytes_per_token),
        graph_gb: GRAPH_GB,
        token_capacity: loads.max_total_tokens,
    }
}

/// The same as `/server_info` spells it.
pub(super) fn memory_usage(worker: &Worker, loads: &EngineLoads) -> serde_json::Value {
    let MemoryLoad { weight_gb, kv_cache_gb, graph_gb, token_capacity } = memory_load(worker, loads);
    serde_json::json!({
        "weight": weight_gb, "kvcache": kv_cache_gb, "token_capacity": token_capacity, "graph": graph_gb,
    })
}

/// The numbers of a load as gauges: `sglang_<key>{dp_rank="0"} v`.
fn prometheus(load: &RankLoad) -> String {
    let mut text = String::new();
    if let Ok(serde_json::Value::Object(entry)) = serde_json::to_value(load) {
        for (key, value) in &entry {
            match value {
                serde_json::Value::Object(section) => {
                    let section_name = if key == "disaggregation" { "disagg" } else { key };
                    for (key, value) in section.iter().filter(|(_, value)| value.is_number()) {
                        text += &format!("sglang_{section_name}_{key}{{dp_rank=\"0\"}} {value}\n");
                    }
                }
                value if value.is_number() && !matches!(key.as_str(), "timestamp" | "dp_rank") => {
                    text += &format!("sglang_{key}{{dp_rank=\"0\"}} {value}\n");
                }
                _ => {}
            }
        }
    }
    text
}

/// `/get_load`, which older engines have in place of `/v1/loads`.
pub(super) async fn legacy(State(worker): State<Arc<Worker>>) -> Response {
    let (loads, _) = worker.told_loads();
    json(&[LegacyLoad {
        dp_rank: 0,
        num_reqs: loads.running + loads.waiting,
        num_waiting_reqs: loads.waiting,
        num_tokens: loads.total_tokens,
    }])
}
