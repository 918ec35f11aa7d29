//! Which code answers which path.

use http::{Method, Request};
use hyper::body::Incoming;

use crate::admin;
use crate::error::{Answer, Refusal};
use crate::proxy;
use crate::server::{Context, Surface};

/// The router's own routes, for the methods they allow and for the metric label.
const OWN_ROUTES: &[&str] = &["/health", "/liveness", "/readiness", "/workers", "/metrics"];

/// Answers one request on a listener of this kind.
pub(crate) async fn respond(context: &Context, surface: Surface, request: Request<Incoming>) -> Answer {
    match surface {
        Surface::Traffic => traffic(context, request).await,
        Surface::Metrics => metrics(context, &request),
    }
}

async fn traffic(context: &Context, request: Request<Incoming>) -> Answer {
    let metrics = &context.shared.metrics;
    let answer = match proxy::find(request.uri().path()) {
        Some((at, endpoint)) if request.method() == Method::POST => {
            metrics.arrived(at);
            proxy::handle(context, at, endpoint, request).await
        }
        Some((_, endpoint)) => {
            metrics.arrived_elsewhere(request.method(), endpoint.path);
            Refusal::MethodNotAllowed { allowed: "POST" }.answer()
        }
        None => {
            let path = request.uri().path();
            let label = OWN_ROUTES.iter().find(|own| **own == path).copied().unwrap_or("other");
            metrics.arrived_elsewhere(request.method(), label);
            own(context, &request)
        }
    };
    metrics.answered(answer.0.status(), answer.1);
    answer
}

fn own(context: &Context, request: &Request<Incoming>) -> Answer {
    let shared = &context.shared;
    let answer: &dyn Fn() -> _ = match request.uri().path() {
        "/health" | "/liveness" => &admin::alive,
        "/readiness" => &|| admin::readiness(shared),
        "/workers" => &|| admin::workers(shared, context.health_checks),
        _ => return Refusal::NotFound.answer(),
    };
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        (answer(), "")
    } else {
        Refusal::MethodNotAllowed { allowed: "GET, HEAD" }.answer()
    }
}

fn metrics(context: &Context, request: &Request<Incoming>) -> Answer {
    match (request.uri().path(), request.method()) {
        ("/metrics", &Method::GET) => (admin::metrics(&context.shared), ""),
        ("/metrics", _) => Refusal::MethodNotAllowed { allowed: "GET" }.answer(),
        _ => Refusal::NotFound.answer(),
    }
}
