//! What the router answers by itself, in the gateway's shapes.

use http::{HeaderMap, StatusCode};
use router_core::BreakerState;
use serde::Serialize;
use serde_json::json;

use super::reply;
use crate::error::Answer;
use crate::metrics::Format;
use crate::shared::Shared;
use crate::stop::Stop;

#[derive(Serialize)]
#[serde(untagged)]
enum Readiness {
    Ready { status: &'static str, healthy_workers: usize, total_workers: usize },
    NotReady { status: &'static str, reason: &'static str },
}

/// `/health`, `/healthz` and `/liveness`: the process answers.
pub(crate) fn alive() -> Answer {
    reply::text("text/plain; charset=utf-8", "OK")
}

/// `/version`.
pub(crate) fn version() -> Answer {
    reply::json(&json!({"version": env!("CARGO_PKG_VERSION"), "name": "router"}))
}

/// `/readiness` and `/readyz`: at least one worker may get requests, by its health and by its breaker, and the router is
/// not about to stop.
pub(crate) fn readiness(shared: &Shared) -> Answer {
    if shared.has_come_to(Stop::Leave) {
        return not_ready("shutting down");
    }
    let now_ns = shared.clock.now_ns();
    let (mut total, mut healthy, mut admitting) = (0, 0, 0);
    for row in shared.books.lock().router.workers(now_ns) {
        total += 1;
        healthy += usize::from(row.worker.takes_requests());
        admitting += usize::from(row.worker.takes_requests() && row.breaker.state != BreakerState::Open);
    }
    if admitting > 0 {
        let ready = Readiness::Ready { status: "ready", healthy_workers: admitting, total_workers: total };
        return reply::json(&ready);
    }
    let reason = match (total, healthy) {
        (0, _) => "no workers",
        (_, 0) => "insufficient healthy workers",
        _ => "the circuit breakers of all healthy workers are open",
    };
    not_ready(reason)
}

fn not_ready(reason: &'static str) -> Answer {
    reply::json_with(StatusCode::SERVICE_UNAVAILABLE, &Readiness::NotReady { status: "not ready", reason })
}

/// `/metrics`, in the format that is asked for.
pub(crate) fn metrics(shared: &Shared, headers: &HeaderMap) -> Answer {
    let format = Format::wanted(headers);
    reply::metrics(format, shared.metrics_text(format))
}
