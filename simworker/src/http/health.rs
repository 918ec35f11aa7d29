//! Health: whether the engine still produces tokens.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tokio::time::{Instant, sleep, timeout};

use crate::config::Health;
use crate::handoff::Handoff;
use crate::latency::Traffic;
use crate::reply::Wish;
use crate::worker::{Job, Worker};

/// How long the engine may show no output, real time.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often SGLang looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a busy engine's output is looked at where the answer comes as soon as there is one.
const LOOK_OFTEN: Duration = Duration::from_millis(100);

/// `/health`: at once, or by a generation.
pub(super) async fn health(State(worker): State<Arc<Worker>>) -> Response {
    match worker.config.wire.health {
        Health::AtOnce => StatusCode::OK.into_response(),
        Health::Generation => health_generate(State(worker)).await,
    }
}

/// `/health_generate`: one token is generated. Any output of the engine since then counts, because on a busy engine
/// the probe itself may wait for long.
pub(super) async fn health_generate(State(worker): State<Arc<Worker>>) -> Response {
    let before = output(&worker);
    let Ok(mut probe) = worker.submit(probe(&worker)) else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let has_output = match worker.config.wire.health {
            Health::AtOnce => timeout(LOOK_OFTEN, probe.end()).await.is_ok() || output(&worker) > before,
            Health::Generation => {
                // Even the first look comes after a while.
                sleep(LOOK_EVERY).await;
                output(&worker) > before
            }
        };
        if has_output {
            return StatusCode::OK.into_response();
        }
    }
    StatusCode::SERVICE_UNAVAILABLE.into_response()
}

fn probe(worker: &Worker) -> Job {
    Job {
        rid: format!("HEALTH_CHECK_{}", worker.fresh_rid()),
        traffic: Traffic::Probe,
        is_prefill_only: worker.config.wire.is_embedding,
        handoff: Handoff::with_nobody(worker.config.engine.role),
        ..Job::new(Arc::new([0]), Wish::exactly(1))
    }
}

/// What the engine has put out since its start: tokens and ends.
fn output(worker: &Worker) -> u64 {
    worker.report().iter().map(|rank| rank.totals.generated_tokens + rank.totals.finished_requests).sum()
}
