//! What the worker says about itself.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use protocol::openai::{ModelCard, ModelList};
use protocol::sglang::ModelInfo;
use serde_json::{Value, json};
use simworker_core::cache::WritePolicy;

use super::query;
use crate::config::{KvEventsConfig, WorkerConfig};
use crate::kv::ports::Described;
use crate::worker::{RankReport, Worker};

/// Where models are told one by one.
const MODELS: &str = "/v1/models/";
/// The engine version that is emulated.
pub(super) const VERSION: &str = "0.5.23";
/// The version of the weights.
pub(super) const WEIGHT_VERSION: &str = "default";

pub(super) async fn model_info(State(worker): State<Arc<Worker>>) -> Response {
    let config = &worker.config;
    super::json(&ModelInfo {
        model_path: &config.model_path,
        served_model_name: &config.served_model_name,
        tokenizer_path: tokenizer_path(config),
        is_generation: !config.wire.is_embedding,
        preferred_sampling_params: None,
        weight_version: WEIGHT_VERSION,
        load_format: &config.wire.load_format,
        reasoning_parser: config.wire.reasoning_parser.as_deref(),
        tool_call_parser: config.wire.tool_call_parser.as_deref(),
        disaggregation_mode: config.engine.role.label(),
        has_image_understanding: false,
        has_audio_understanding: false,
        model_type: "llama",
        architectures: &["LlamaForCausalLM"],
    })
}

pub(super) async fn models(State(worker): State<Arc<Worker>>) -> Response {
    super::json(&ModelList { object: "list", data: vec![card(&worker)] })
}

pub(super) async fn model(State(worker): State<Arc<Worker>>, uri: Uri) -> Response {
    let id = query::after(MODELS, &uri);
    if id == worker.config.served_model_name {
        return super::json(&card(&worker));
    }
    let error = json!({
        "message": format!("The model '{id}' does not exist"),
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    });
    (StatusCode::NOT_FOUND, super::json(&json!({ "error": error }))).into_response()
}

fn card(worker: &Worker) -> ModelCard<'_> {
    let name = worker.config.served_model_name.as_str();
    ModelCard {
        id: name,
        object: "model",
        created: worker.started() as u64,
        owned_by: "sglang",
        root: name,
        parent: None,
        max_model_len: worker.config.engine.context_len,
    }
}

/// One flat object: the server's arguments, facts of the scheduler, and the state of each rank.
pub(super) async fn server_info(State(worker): State<Arc<Worker>>) -> Response {
    let report = worker.report();
    let config = &worker.config;
    let states = report.iter().map(|RankReport { loads, .. }| {
        let mut state = arguments(config);
        extend(
            &mut state,
            json!({
                "effective_max_running_requests_per_dp": loads.max_running,
                "last_gen_throughput": loads.gen_throughput,
                "memory_usage": super::loads::memory_usage(config, loads),
            }),
        );
        state
    });
    let mut info = arguments(config);
    extend(
        &mut info,
        json!({
            "max_total_num_tokens": report.first().map(|rank| rank.loads.max_total_tokens),
            "max_req_input_len": worker.limits.max_input_len(),
            "status": "ready",
            "startup_time": worker.started(),
            "kv_events": kv_events(&worker),
            "internal_states": states.collect::<Vec<_>>(),
            "version": VERSION,
            "frontend": "python",
        }),
    );
    super::json(&info)
}

/// The resolved arguments, by SGLang's names.
fn arguments(config: &WorkerConfig) -> Value {
    let engine = &config.engine;
    let mut arguments = json!({
        "model_path": config.model_path,
        "served_model_name": config.served_model_name,
        "tp_size": config.wire.tp_size.unwrap_or(config.preset.gpus),
        "pp_size": 1,
        "dp_size": config.dp_size,
        "context_length": engine.context_len,
        "page_size": engine.page_size,
        "max_total_tokens": engine.kv_tokens,
        "chunked_prefill_size": engine.chunked_prefill.map_or(-1, i64::from),
        "max_prefill_tokens": engine.max_prefill_tokens,
        "max_running_requests": engine.max_running,
        "max_queued_requests": engine.max_queued,
        "schedule_policy": engine.schedule.label(),
        "schedule_conservativeness": engine.conservativeness,
        "radix_eviction_policy": engine.eviction.label(),
        "disable_radix_cache": engine.disable_prefix_cache,
        "enable_hierarchical_cache": engine.host_tier.is_some(),
        "hicache_ratio": engine.host_tier.map(|tier| tier.tokens as f64 / engine.kv_tokens as f64),
        "hicache_size": 0,
        "hicache_write_policy": engine.host_tier.map_or(WritePolicy::default(), |tier| tier.write).label(),
        "kv_events_config": config.kv_events.as_ref().map(KvEventsConfig::to_json),
        "disable_overlap_schedule": !engine.overlap,
        "enable_mixed_chunk": engine.mixed_chunk,
        "prefill_max_requests": engine.prefill_max_requests,
        "enable_priority_scheduling": engine.queue.priority.is_some(),
        "schedule_low_priority_values_first": engine.queue.priority.is_some_and(|p| p.low_values_first),
        "disaggregation_transfer_backend": "mooncake",
        "enable_dp_attention": config.dp_attention,
        "load_balance_method": config.dp().balance.label(),
        "disaggregation_mode": engine.role.label(),
        "disaggregation_bootstrap_port": config.bootstrap_port,
        "disaggregation_decode_enable_radix_cache": engine.handoff.decode_radix_cache,
        "num_reserved_decode_tokens": engine.handoff.num_reserved_decode_tokens,
    });
    extend(&mut arguments, wire_arguments(config));
    arguments
}

/// Those about what clients see.
fn wire_arguments(config: &WorkerConfig) -> Value {
    let wire = &config.wire;
    json!({
        "tokenizer_path": tokenizer_path(config),
        "load_format": wire.load_format,
        "stream_interval": config.stream_interval,
        "incremental_streaming_output": config.incremental_streaming_output,
        "stream_response_default_include_usage": wire.stream_include_usage,
        "enable_cache_report": config.enable_cache_report,
        "enable_metrics": wire.enable_metrics,
        "enable_http2": wire.http2.is_some(),
        "allow_auto_truncate": wire.allow_auto_truncate,
        "is_embedding": wire.is_embedding,
        "default_priority_value": wire.default_priority,
    })
}

fn tokenizer_path(config: &WorkerConfig) -> &str {
    config.wire.tokenizer_path.as_deref().unwrap_or(&config.model_path)
}

/// Where to subscribe: the port of rank 0, which the others follow.
fn kv_events(worker: &Worker) -> Value {
    let Some(publisher) = &worker.kv else { return Value::Null };
    let Described { host, port_base, replay_port_base, topic } = &publisher.described;
    let mut described = json!({
        "publisher": "zmq",
        "endpoint_host": host,
        "endpoint_port_base": port_base,
        "topic": topic,
        "block_size": worker.config.engine.page_size,
        "dp_size": worker.config.dp_size,
    });
    if let Some(port) = replay_port_base {
        described["replay_endpoint_port_base"] = (*port).into();
    }
    described
}

fn extend(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}
