//! Which code answers which path.

use std::sync::Arc;

use http::{HeaderValue, Method, Request, Response};
use hyper::body::Incoming;

use crate::admin;
use crate::body::Body;
use crate::client::Turn;
use crate::error::{Answer, Refusal};
use crate::proxy;
use crate::request_id::{self, REQUEST_ID};
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

/// The paths that all workers are asked for, as metric labels.
const ABORT: &str = "/abort_request";
const RESPONSE: &str = "/v1/responses/{id}";
const CANCEL: &str = "/v1/responses/{id}/cancel";

/// What a path of the traffic listener stands for.
enum Target {
    /// This row of the endpoint table.
    Endpoint(usize),
    /// What one of the workers holds; the path as a label, and its method.
    Owned(&'static str, Method),
    /// What all workers are told.
    Everyone,
    Own(&'static Route),
    Nothing,
}

/// Answers one request on a listener of this kind.
pub(crate) async fn respond(
    context: &Arc<Context>,
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

async fn traffic(context: &Arc<Context>, turn: &Arc<Turn>, request: Request<Incoming>) -> Answer {
    let target = target(request.uri().path(), &context.shared.settings.extra_endpoints);
    let prefix = match target {
        Target::Endpoint(at) => proxy::endpoint_at(at).id_prefix,
        _ => "req-",
    };
    let id = request_id::of(request.headers(), &context.shared.settings.request_id_headers, prefix);
    let (mut response, code) = dispatch(context, turn, target, request, id.clone()).await;
    response.headers_mut().insert(REQUEST_ID, id);
    (response, code)
}

/// Whether somebody answers this path already.
pub(crate) fn is_served(path: &str) -> bool {
    !matches!(target(path, &[]), Target::Nothing)
}

fn target(path: &str, extra: &[String]) -> Target {
    if let Some(at) = proxy::find(path, extra) {
        return Target::Endpoint(at);
    }
    if path == ABORT {
        return Target::Everyone;
    }
    if let Some(id) = path.strip_prefix("/v1/responses/") {
        return match id.split_once('/') {
            None if !id.is_empty() => Target::Owned(RESPONSE, Method::GET),
            Some((id, "cancel")) if !id.is_empty() => Target::Owned(CANCEL, Method::POST),
            _ => Target::Nothing,
        };
    }
    OWN_ROUTES.iter().find(|route| route.path == path).map_or(Target::Nothing, Target::Own)
}

async fn dispatch(
    context: &Arc<Context>,
    turn: &Arc<Turn>,
    target: Target,
    request: Request<Incoming>,
    id: HeaderValue,
) -> Answer {
    if let Target::Endpoint(at) = target
        && request.method() == Method::POST
    {
        // It takes its own notes.
        return proxy::handle(context, turn, at, request, id).await;
    }
    let answer = elsewhere(context, turn, target, request, id).await;
    context.shared.metrics.answered(answer.0.status(), answer.1);
    answer
}

async fn elsewhere(
    context: &Arc<Context>,
    turn: &Arc<Turn>,
    target: Target,
    request: Request<Incoming>,
    id: HeaderValue,
) -> Answer {
    let metrics = &context.shared.metrics;
    let method = request.method().clone();
    match target {
        Target::Endpoint(at) => {
            let path = proxy::endpoint_at(at).path;
            metrics.arrived_elsewhere(&method, if path.is_empty() { "other" } else { path });
            Refusal::MethodNotAllowed { allowed: "POST" }.answer()
        }
        Target::Everyone => {
            metrics.arrived_elsewhere(&method, ABORT);
            match method {
                Method::POST => proxy::tell_all(context, turn, request, id).await,
                _ => Refusal::MethodNotAllowed { allowed: "POST" }.answer(),
            }
        }
        Target::Owned(label, served) => {
            metrics.arrived_elsewhere(&method, label);
            match method == served {
                true => proxy::find_owner(context, turn, request, id).await,
                false if served == Method::GET => Refusal::MethodNotAllowed { allowed: "GET" }.answer(),
                false => Refusal::MethodNotAllowed { allowed: "POST" }.answer(),
            }
        }
        Target::Own(route) => {
            metrics.arrived_elsewhere(&method, route.path);
            match method {
                Method::GET | Method::HEAD => ((route.answer)(context), ""),
                _ => Refusal::MethodNotAllowed { allowed: "GET, HEAD" }.answer(),
            }
        }
        Target::Nothing => {
            metrics.arrived_elsewhere(&method, "other");
            Refusal::NotFound.answer()
        }
    }
}

fn metrics(context: &Context, request: &Request<Incoming>) -> Answer {
    match (request.uri().path(), request.method()) {
        ("/metrics", &Method::GET) => (admin::metrics(&context.shared), ""),
        ("/metrics", _) => Refusal::MethodNotAllowed { allowed: "GET" }.answer(),
        _ => Refusal::NotFound.answer(),
    }
}
