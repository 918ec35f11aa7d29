//! `/v1/loads` and the older `/get_load`.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::header::CONTENT_TYPE;
use protocol::loads::{
    AggregateLoad, DisaggregationLoad, LegacyLoad, LoadsResponse, MemoryLoad, QueueLoad, RankLoad,
};
use serde_json::{Value, json as json_value};
use simworker_core::engine::DecodeMoments;
use simworker_core::{EngineLoads, HandoffLoads};

use super::failure::{Api, Failure};
use super::query::Query;
use super::{info, json, metrics};
use crate::clock::{rfc3339, unix_seconds};
use crate::config::{Compat, WorkerConfig};
use crate::worker::{ToldLoads, Worker};

/// Memory that CUDA graphs take, in GB; the model of the hardware does not know it.
const GRAPH_GB: f64 = 1.3;

/// The routes of such engines.
pub(super) fn routes(compat: Compat) -> Router<Arc<Worker>> {
    let routes = Router::new().route("/v1/loads", get(loads));
    match compat {
        Compat::Current => routes,
        Compat::Older => routes.route("/get_load", get(legacy)),
    }
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
        let Some(include) = include.filter(|list| !list.is_empty()) else { return Ok(Self::ALL) };
        let names: Vec<&str> = include.split(',').map(str::trim).collect();
        if names.contains(&"all") {
            return Ok(Self::ALL);
        }
        names.into_iter().try_fold(Self::NONE, |sections, name| match name {
            "core" | "spec" | "lora" => Ok(sections),
            "memory" => Ok(Self { memory: true, ..sections }),
            "disagg" => Ok(Self { disaggregation: true, ..sections }),
            "queues" => Ok(Self { queues: true, ..sections }),
            _ => Err(Failure::bad_request(format!(
                "Invalid include sections: {{'{name}'}}. Valid options: ['all', 'core', 'disagg', 'lora', \
                 'memory', 'queues', 'spec']"
            ))),
        })
    }
}

async fn loads(State(worker): State<Arc<Worker>>, query: Query) -> Response {
    let began = Instant::now();
    let answer = answer(&worker, &query).unwrap_or_else(|failure| failure.response(Api::OpenAi));
    worker.has_told_loads(began.elapsed());
    answer
}

fn answer(worker: &Worker, query: &Query) -> Result<Response, Failure> {
    let sections = Sections::parse(query.get("include"))?;
    let wanted = query.get("dp_rank").map(parse_rank).transpose()?;
    let told = worker.told_loads();
    // A rank that there is not has no entry.
    let ranks = (0..).zip(&told).filter(|(rank, _)| wanted.is_none_or(|wanted| wanted == i64::from(*rank)));
    let loads: Vec<RankLoad> = ranks.map(|(rank, told)| rank_load(worker, rank, told, sections)).collect();
    if query.get("format") == Some("prometheus") {
        return Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE_TEXT)], prometheus(&loads)).into_response());
    }
    let is_older = worker.config.wire.compat == Compat::Older;
    Ok(json(&LoadsResponse {
        timestamp: rfc3339(unix_seconds()),
        version: info::VERSION.to_owned(),
        accelerator: worker.config.preset.gpu.name.to_owned(),
        num_accelerators: worker.config.preset.gpus,
        dp_rank_count: is_older.then_some(loads.len() as u32),
        aggregate: is_older.then(|| AggregateLoad::of(&loads)),
        loads,
    }))
}

fn parse_rank(text: &str) -> Result<i64, Failure> {
    text.parse().map_err(|_| Failure::bad_request(format!("dp_rank is {text}; a whole number is needed")))
}

fn rank_load(worker: &Worker, dp_rank: u32, told: &ToldLoads, sections: Sections) -> RankLoad {
    let ToldLoads { loads, unix_s, is_paused } = told;
    let total = loads.running + loads.waiting;
    RankLoad {
        timestamp: *unix_s,
        dp_rank,
        num_running_reqs: loads.running,
        num_waiting_reqs: loads.waiting,
        num_total_reqs: (worker.config.wire.compat == Compat::Older).then_some(total),
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
        memory: sections.memory.then(|| memory_load(&worker.config, loads)),
        disaggregation: sections.disaggregation.then(|| disaggregation(&worker.config, &loads.handoff)),
        queues: sections.queues.then_some(QueueLoad {
            waiting: loads.waiting,
            grammar: 0,
            paused: if *is_paused { loads.running } else { 0 },
            retracted: loads.handoff.retracted,
            prealloc_ready: loads.handoff.ready,
        }),
    }
}

fn disaggregation(config: &WorkerConfig, loads: &HandoffLoads) -> DisaggregationLoad {
    DisaggregationLoad {
        mode: config.engine.role.label().to_owned(),
        prefill_bootstrap_queue_reqs: loads.bootstrap,
        prefill_inflight_queue_reqs: loads.inflight,
        decode_prealloc_queue_reqs: loads.prealloc,
        decode_transfer_queue_reqs: loads.transfer,
        decode_retracted_queue_reqs: loads.retracted,
        // SGLang counts the bytes of one GPU.
        kv_transfer_speed_gb_s: loads.transfer_gb_s / f64::from(config.preset.gpus),
        kv_transfer_latency_ms: loads.transfer_ms,
    }
}

fn moments(m: DecodeMoments) -> [f64; 6] {
    [m.steps, m.batch, m.us, m.batch_squared, m.batch_us, m.generated].map(|sum| sum as f64)
}

pub(super) fn memory_load(config: &WorkerConfig, loads: &EngineLoads) -> MemoryLoad {
    let preset = config.preset;
    let gpus = f64::from(preset.gpus);
    let gb = |bytes: f64| (bytes / gpus / f64::from(1 << 30) * 1000.0).round() / 1000.0;
    MemoryLoad {
        weight_gb: gb(preset.model.weight_bytes),
        kv_cache_gb: gb(loads.max_total_tokens as f64 * preset.model.kv_bytes_per_token),
        graph_gb: GRAPH_GB,
        token_capacity: loads.max_total_tokens,
    }
}

/// The same as `/server_info` spells it.
pub(super) fn memory_usage(config: &WorkerConfig, loads: &EngineLoads) -> Value {
    let MemoryLoad { weight_gb, kv_cache_gb, graph_gb, token_capacity } = memory_load(config, loads);
    json_value!({
        "weight": weight_gb, "kvcache": kv_cache_gb, "token_capacity": token_capacity, "graph": graph_gb,
    })
}

/// The numbers of loads as gauges, the ranks of each side by side: `sglang_<key>{dp_rank="0"} v` for rank 0.
fn prometheus(loads: &[RankLoad]) -> String {
    let mut gauges: Vec<(String, String)> = Vec::new();
    let mut add = |name: String, rank: u32, value: &Value| {
        if !value.is_number() {
            return;
        }
        let sample = format!("{name}{{dp_rank=\"{rank}\"}} {value}\n");
        match gauges.iter_mut().find(|(known, _)| *known == name) {
            Some((_, samples)) => samples.push_str(&sample),
            None => gauges.push((name, sample)),
        }
    };
    for load in loads {
        let Ok(Value::Object(entry)) = serde_json::to_value(load) else { continue };
        for (key, value) in entry.iter().filter(|(key, _)| *key != "dp_rank") {
            match value {
                Value::Object(section) => {
                    let prefix = if key == "disaggregation" { "disagg" } else { key };
                    for (key, value) in section {
                        add(format!("sglang_{prefix}_{key}"), load.dp_rank, value);
                    }
                }
                value => add(format!("sglang_{key}"), load.dp_rank, value),
            }
        }
    }
    gauges.into_iter().map(|(name, samples)| format!("# TYPE {name} gauge\n{samples}")).collect()
}

/// `/get_load`, which older engines have in place of `/v1/loads`.
pub(super) async fn legacy(State(worker): State<Arc<Worker>>) -> Response {
    let told = worker.told_loads();
    let entry = |(dp_rank, ToldLoads { loads, .. }): (u32, &ToldLoads)| LegacyLoad {
        dp_rank,
        num_reqs: loads.running + loads.waiting,
        num_waiting_reqs: loads.waiting,
        num_tokens: loads.total_tokens,
    };
    json(&(0..).zip(&told).map(entry).collect::<Vec<_>>())
}
