//! Health: whether the engine still produces tokens.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tokio::time::{Instant, timeout};

use crate::handoff::Handoff;
use crate::latency::Traffic;
use crate::worker::{Job, Output, Worker};

/// How long the engine may show no output, real time.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a busy engine's output is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// `/health`: at once, or by a generation when the worker is so configured.
pub(super) async fn health(State(worker): State<Arc<Worker>>) -> Response {
    if worker.config.health_generation {
        return health_generate(State(worker)).await;
    }
    StatusCode::OK.into_response()
}

/// `/health_generate`: one token is generated. Any output of the engine since then counts, because on a busy engine
/// the probe itself may wait for long. (SGLang looks once a second; this answers as soon as it knows.)
pub(super) async fn health_generate(State(worker): State<Arc<Worker>>) -> Response {
    let before = output_tokens(&worker);
    let job = Job {
        rid: format!("HEALTH_CHECK_{}", worker.fresh_rid()),
        prompt: Arc::new([0]),
        output: Output::Tokens(1),
        ignore_eos: true,
        priority: 0,
        namespace: 0,
        traffic: Traffic::Probe,
        rank: None,
        handoff: Handoff::with_nobody(worker.config.engine.role),
    };
    let Ok(mut probe) = worker.submit(job) else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if timeout(LOOK_EVERY, probe.end()).await.is_ok() || output_tokens(&worker) > before {
            return StatusCode::OK.into_response();
        }
    }
    StatusCode::SERVICE_UNAVAILABLE.into_response()
}

fn output_tokens(worker: &Worker) -> u64 {
    worker.report().iter().map(|(_, totals)| totals.generated_tokens).sum()
}
