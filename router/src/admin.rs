//! The router's own routes, in the gateway's shapes.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use router_core::{BreakerState, Role};
use serde::Serialize;

use crate::body::Body;
use crate::shared::Shared;

/// The gateway's defaults for what static workers cannot state.
const PRIORITY: u32 = 50;
const COST: f64 = 1.0;

#[derive(Serialize)]
struct WorkerList {
    workers: Vec<WorkerInfo>,
    total: usize,
    stats: RoleCounts,
}

#[derive(Serialize, Default)]
#[expect(clippy::struct_field_names, reason = "the gateway's names")]
struct RoleCounts {
    prefill_count: usize,
    decode_count: usize,
    regular_count: usize,
}

/// One worker under the gateway's names. Optional fields that a static HTTP worker has no value for are left out.
#[derive(Serialize)]
struct WorkerInfo {
    id: String,
    url: String,
    model_id: String,
    priority: u32,
    cost: f64,
    worker_type: &'static str,
    is_healthy: bool,
    circuit_breaker: &'static str,
    /// Requests in flight.
    load: u64,
    connection_mode: &'static str,
    runtime_type: &'static str,
    metadata: Metadata,
    disable_health_check: bool,
}

#[derive(Serialize)]
struct Metadata {
    labels: std::collections::BTreeMap<String, String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Readiness {
    Ready { status: &'static str, healthy_workers: usize, total_workers: usize },
    NotReady { status: &'static str, reason: &'static str },
}

/// `/health` and `/liveness`: the process answers.
pub(crate) fn alive() -> Response<Body> {
    plain("text/plain; charset=utf-8", "OK")
}

/// `/readiness`: at least one worker may get requests, by its health and by its breaker.
pub(crate) fn readiness(shared: &Shared) -> Response<Body> {
    let now_ns = shared.clock.now_ns();
    let (mut total, mut healthy, mut admitting) = (0, 0, 0);
    for row in shared.router.lock().workers(now_ns) {
        total += 1;
        healthy += usize::from(row.worker.healthy);
        admitting += usize::from(row.worker.healthy && row.breaker.state != BreakerState::Open);
    }
    if admitting > 0 {
        let ready = Readiness::Ready { status: "ready", healthy_workers: admitting, total_workers: total };
        return json(StatusCode::OK, &ready);
    }
    let reason = match (total, healthy) {
        (0, _) => "no workers",
        (_, 0) => "insufficient healthy workers",
        _ => "the circuit breakers of all healthy workers are open",
    };
    json(StatusCode::SERVICE_UNAVAILABLE, &Readiness::NotReady { status: "not ready", reason })
}

/// `GET /workers`.
pub(crate) fn workers(shared: &Shared, health_checks: bool) -> Response<Body> {
    let workers: Vec<WorkerInfo> = {
        let router = shared.router.lock();
        let rows = router.workers(shared.clock.now_ns()).map(|row| WorkerInfo {
            id: stable_id(row.worker.id.0),
            url: row.worker.url.clone(),
            model_id: row.worker.model.clone().unwrap_or_else(|| "unknown".to_owned()),
            priority: PRIORITY,
            cost: COST,
            worker_type: row.worker.role.label(),
            is_healthy: row.worker.healthy,
            circuit_breaker: row.breaker.state.label(),
            load: row.load.requests,
            connection_mode: "http",
            runtime_type: "sglang",
            metadata: Metadata { labels: std::collections::BTreeMap::new() },
            disable_health_check: !health_checks,
        });
        rows.collect()
    };
    let count = |role: Role| workers.iter().filter(|worker| worker.worker_type == role.label()).count();
    let stats = RoleCounts {
        prefill_count: count(Role::Prefill),
        decode_count: count(Role::Decode),
        regular_count: count(Role::Regular),
    };
    json(StatusCode::OK, &WorkerList { total: workers.len(), workers, stats })
}

/// `/metrics`.
pub(crate) fn metrics(shared: &Shared) -> Response<Body> {
    plain("application/openmetrics-text; version=1.0.0; charset=utf-8", shared.metrics_text())
}

/// An id in the form of a UUID, as the gateway's users expect, that stays the same for the life of the process.
fn stable_id(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

fn plain(kind: &'static str, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::own(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    // These types have string keys and no failing serializer, so this cannot fail; an empty body would show it.
    let mut response = plain("application/json", serde_json::to_vec(value).unwrap_or_default());
    *response.status_mut() = status;
    response
}
