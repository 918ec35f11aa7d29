//! `/v1/loads` and the older `/get_load`.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::header::CONTENT_TYPE;
use protocol::loads::{DisaggregationLoad, LegacyLoad, LoadsResponse, MemoryLoad, QueueLoad, RankLoad};
use serde::Deserialize;
use simworker_core::engine::DecodeMoments;
use simworker_core::{EngineLoads, HandoffLoads};

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
    let (loads, timestamp) = worker.told_loads();
    let wanted = query.dp_rank.as_deref().map(|text| parse_rank(text, loads.len())).transpose()?;
    let now = unix_seconds();
    let ranks = (0..).zip(&loads).filter(|(rank, _)| wanted.is_none_or(|wanted| wanted == *rank));
    let loads: Vec<RankLoad> =
        ranks.map(|(rank, loads)| rank_load(worker, rank, loads, timestamp, sections)).collect();
    match query.format.as_deref() {
        None | Some("json") => Ok(json(&LoadsResponse {
            timestamp: rfc3339(now),
            version: info::VERSION.to_owned(),
            accelerator: worker.config.preset.gpu.name.to_owned(),
            num_accelerators: worker.config.preset.gpus,
            loads,
        })),
        Some("prometheus") => {
            let text: String = loads.iter().map(prometheus).collect();
            Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE_TEXT)], text).into_response())
        }
        Some(other) => {
            Err(Failure::bad_request(format!("Invalid format '{other}'. Allowed: json, prometheus")))
        }
    }
}

fn parse_rank(text: &str, ranks: usize) -> Result<u32, Failure> {
    let known = text.parse().ok().filter(|rank| (*rank as usize) < ranks);
    let wrong = || format!("dp_rank is {text}; it must be in the range [0, {ranks})");
    known.ok_or_else(|| Failure::bad_request(wrong()))
}

fn rank_load(
    worker: &Worker,
    dp_rank: u32,
    loads: &EngineLoads,
    timestamp: f64,
    sections: Sections,
) -> RankLoad {
    RankLoad {
        timestamp,
        dp_rank,
        num_running_reqs: loads.running,
        num_waiting_reqs: loads.waiting,
        num_waiting_uncached_tokens: loads.waiting_uncached_tokens,
        num_used_tokens: loads.used_tokens,
        num_total_tokens: loads.total_tokens,
        num_active_tokens: loads.active_tokens,
        num_prealloc_ready_tokens: loads.handoff.ready_tokens,
        max_total_num_tokens: loads.max_total_tokens,
        max_running_requests: loads.max_running,
        token_usage: loads.token_usage,
        gen_throughput: loads.gen_throughput,
        cache_hit_rate: loads.cache_hit_rate,
        utilization: 0.0,
        total_prefill_uncached_tokens: loads.total_prefill_uncached_tokens,
        total_prefill_busy_us: loads.total_prefill_busy_us,
        decode_moments: loads.decode_moments.map(moments),
        memory: sections.memory.then(|| memory_load(worker, loads)),
        disaggregation: sections
            .disaggregation
            .then(|| disaggregation(worker.config.engine.role.label(), &loads.handoff)),
        queues: sections.queues.then_some(QueueLoad {
            waiting: loads.waiting,
            grammar: 0,
            paused: 0,
            retracted: loads.handoff.retracted,
            prealloc_ready: loads.handoff.ready,
        }),
    }
}

fn disaggregation(mode: &str, loads: &HandoffLoads) -> DisaggregationLoad {
    DisaggregationLoad {
        mode: mode.to_owned(),
        prefill_bootstrap_queue_reqs: loads.bootstrap,
        prefill_inflight_queue_reqs: loads.inflight,
        decode_prealloc_queue_reqs: loads.prealloc,
        decode_transfer_queue_reqs: loads.transfer,
        decode_retracted_queue_reqs: loads.retracted,
        kv_transfer_speed_gb_s: loads.transfer_gb_s,
        kv_transfer_latency_ms: loads.transfer_ms,
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

/// The numbers of a load as gauges: `sglang_<key>{dp_rank="0"} v` for rank 0.
fn prometheus(load: &RankLoad) -> String {
    let (mut text, rank) = (String::new(), load.dp_rank);
    if let Ok(serde_json::Value::Object(entry)) = serde_json::to_value(load) {
        for (key, value) in &entry {
            match value {
                serde_json::Value::Object(section) => {
                    let section_name = if key == "disaggregation" { "disagg" } else { key };
                    for (key, value) in section.iter().filter(|(_, value)| value.is_number()) {
                        text += &format!("sglang_{section_name}_{key}{{dp_rank=\"{rank}\"}} {value}\n");
                    }
                }
                value if value.is_number() && !matches!(key.as_str(), "timestamp" | "dp_rank") => {
                    text += &format!("sglang_{key}{{dp_rank=\"{rank}\"}} {value}\n");
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
    let entry = |(dp_rank, loads): (u32, &EngineLoads)| LegacyLoad {
        dp_rank,
        num_reqs: loads.running + loads.waiting,
        num_waiting_reqs: loads.waiting,
        num_tokens: loads.total_tokens,
    };
    json(&(0..).zip(&loads).map(entry).collect::<Vec<_>>())
}
