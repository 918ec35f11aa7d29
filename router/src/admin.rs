//! The router's own routes, in the gateway's shapes.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use router_core::BreakerState;
use serde::Serialize;

use crate::body::Body;
use crate::shared::Shared;

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
    for row in shared.books.lock().router.workers(now_ns) {
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

/// `/metrics`.
pub(crate) fn metrics(shared: &Shared) -> Response<Body> {
    plain("application/openmetrics-text; version=1.0.0; charset=utf-8", shared.metrics_text())
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
