//! Which code answers which path.

use std::sync::Arc;

use http::{Method, Request, Response};
use hyper::body::Incoming;

use crate::admin;
use crate::body::Body;
use crate::client::Turn;
use crate::error::{Answer, Refusal};
use crate::proxy;
use crate::server::{Context, Surface};

/// A route of the router's own, for GET and HEAD.
struct Route {
    /// Also the value of the metric label.
    path: &'static str,
    answer: fn(&Context) -> Response<Body>,
}

/// What is served beside the proxied endpoints. A new route is a new row.
const OWN_ROUTES: &[Route] = &[
    Route { path: "/health", answer: |_| admin::alive() },
    Route { path: "/liveness", answer: |_| admin::alive() },
    Route { path: "/readiness", answer: |context| admin::readiness(&context.shared) },
    Route { path: "/workers", answer: |context| admin::workers(&context.shared, context.health_checks) },
];

/// Answers one request on a listener of this kind.
pub(crate) async fn respond(
    context: &Context,
    turn: &Arc<Turn>,
    surface: Surface,
    request: Request<Incoming>,
) -> Answer {
    turn.begin();
    match surface {
        Surface::Traffic => traffic(context, turn, request).await,
        Surface::Metrics => metrics(context, &request),
    }
}

async fn traffic(context: &Context, turn: &Arc<Turn>, request: Request<Incoming>) -> Answer {
    let metrics = &context.shared.metrics;
    let answer = match proxy::find(request.uri().path()) {
        Some((at, endpoint)) if request.method() == Method::POST => {
            metrics.arrived(at);
            proxy::handle(context, turn, at, endpoint, request).await
        }
        Some((_, endpoint)) => {
            metrics.arrived_elsewhere(request.method(), endpoint.path);
            Refusal::MethodNotAllowed { allowed: "POST" }.answer()
        }
        None => {
            let route = OWN_ROUTES.iter().find(|route| route.path == request.uri().path());
            metrics.arrived_elsewhere(request.method(), route.map_or("other", |route| route.path));
            own(context, route, request.method())
        }
    };
    metrics.answered(answer.0.status(), answer.1);
    answer
}

fn own(context: &Context, route: Option<&Route>, method: &Method) -> Answer {
    match route {
        None => Refusal::NotFound.answer(),
        Some(route) if matches!(*method, Method::GET | Method::HEAD) => ((route.answer)(context), ""),
        Some(_) => Refusal::MethodNotAllowed { allowed: "GET, HEAD" }.answer(),
    }
}

fn metrics(context: &Context, request: &Request<Incoming>) -> Answer {
    match (request.uri().path(), request.method()) {
        ("/metrics", &Method::GET) => (admin::metrics(&context.shared), ""),
        ("/metrics", _) => Refusal::MethodNotAllowed { allowed: "GET" }.answer(),
        _ => Refusal::NotFound.answer(),
    }
}
