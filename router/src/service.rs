//! Which code answers which path.

use std::sync::Arc;

use http::{HeaderValue, Method, Request, Response};
use hyper::body::Incoming;

use crate::admin;
use crate::body::Body;
use crate::client::Turn;
use crate::error::{Answer, Refusal};
use crate::fleet;
use crate::proxy;
use crate::request_id::{self, REQUEST_ID};
use crate::server::{Context, Surface};

/// A route of the router's own, for GET and HEAD.
struct Route {
    /// Also the value of the metric label.
    path: &'static str,
    /// Whether it shows what only those may see who hold the key, where there is one.
    guarded: bool,
    answer: fn(&Context) -> Response<Body>,
}

/// What is served beside the proxied endpoints. A new route is a new row.
const OWN_ROUTES: &[Route] = &[
    Route { path: "/health", guarded: false, answer: |_| admin::alive() },
    Route { path: "/liveness", guarded: false, answer: |_| admin::alive() },
    Route { path: "/readiness", guarded: false, answer: |context| admin::readiness(&context.shared) },
];

/// Where the fleet is managed.
const WORKERS: &str = "/workers";

/// What a path of the traffic listener stands for.
#[derive(Clone, Copy)]
enum Target {
    /// This place of the endpoint table.
    Endpoint(usize),
    /// A request under way somewhere, to be ended.
    Abort,
    /// A response that one of the workers holds.
    Held,
    /// The same, to be ended.
    Cancel,
    Own(&'static Route),
    /// The fleet, or one of it, with these methods.
    Workers {
        allowed: &'static str,
    },
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
    let answer = match surface {
        Surface::Traffic => traffic(context, turn, request).await,
        Surface::Metrics => metrics(context, &request),
    };
    turn.answered();
    answer
}

async fn traffic(context: &Arc<Context>, turn: &Arc<Turn>, request: Request<Incoming>) -> Answer {
    let target = target(request.uri().path(), &context.shared.settings.extra_endpoints);
    let prefix = match target {
        Target::Endpoint(at) => proxy::endpoint_at(at).id_prefix,
        _ => "req-",
    };
    let id = request_id::of(request.headers(), &context.shared.settings.request_id_headers, prefix);
    let (mut response, refusal) = dispatch(context, turn, target, request, id.clone()).await;
    response.headers_mut().insert(REQUEST_ID, id);
    (response, refusal)
}

/// Whether somebody answers this path already.
pub(crate) fn is_served(path: &str) -> bool {
    !matches!(target(path, &[]), Target::Nothing)
}

fn target(path: &str, extra: &[String]) -> Target {
    if let Some(at) = proxy::find(path, extra) {
        return Target::Endpoint(at);
    }
    if path == "/abort_request" {
        return Target::Abort;
    }
    if let Some(id) = path.strip_prefix("/v1/responses/") {
        return match id.split_once('/') {
            None if !id.is_empty() => Target::Held,
            Some((id, "cancel")) if !id.is_empty() => Target::Cancel,
            _ => Target::Nothing,
        };
    }
    if let Some(allowed) = path.strip_prefix(WORKERS).and_then(fleet::api::allowed) {
        return Target::Workers { allowed };
    }
    OWN_ROUTES.iter().find(|route| route.path == path).map_or(Target::Nothing, Target::Own)
}

impl Target {
    /// The value of the metric label.
    fn label(self) -> &'static str {
        match self {
            // Paths that the operator allows have no name of their own here.
            Self::Endpoint(at) => {
                Some(proxy::endpoint_at(at).path).filter(|path| !path.is_empty()).unwrap_or("other")
            }
            Self::Abort => "/abort_request",
            Self::Held => "/v1/responses/{id}",
            Self::Cancel => "/v1/responses/{id}/cancel",
            Self::Own(route) => route.path,
            Self::Workers { .. } => WORKERS,
            Self::Nothing => "other",
        }
    }

    /// The methods that it is served with, as `Allow` names them.
    fn allowed(self) -> &'static str {
        match self {
            Self::Endpoint(_) | Self::Abort | Self::Cancel => "POST",
            Self::Held => "GET",
            Self::Own(_) => "GET, HEAD",
            Self::Workers { allowed } => allowed,
            Self::Nothing => "",
        }
    }
}

async fn dispatch(
    context: &Arc<Context>,
    turn: &Arc<Turn>,
    target: Target,
    mut request: Request<Incoming>,
    id: HeaderValue,
) -> Answer {
    let is_allowed = target.allowed().split(", ").any(|method| method == request.method().as_str());
    if let (Target::Endpoint(at), true) = (target, is_allowed) {
        // It takes its own notes.
        return proxy::handle(context, turn, at, request, id).await;
    }
    let shared = &context.shared;
    shared.metrics.arrived_elsewhere(request.method(), target.label());
    if !is_allowed {
        // A client that is still sending would not see why this is refused.
        proxy::discard(&mut request).await;
    }
    let answer = match target {
        Target::Nothing => Refusal::NotFound.answer(),
        _ if !is_allowed => Refusal::MethodNotAllowed { allowed: target.allowed() }.answer(),
        Target::Abort | Target::Held | Target::Cancel => proxy::ask_around(context, turn, request, id).await,
        Target::Workers { .. } if !shared.settings.admits(request.headers()) => {
            Refusal::Unauthorized.answer()
        }
        Target::Workers { .. } => {
            let rest = request.uri().path()[WORKERS.len()..].to_owned();
            fleet::api::handle(context, &rest, request).await
        }
        Target::Own(route) if route.guarded && !shared.settings.admits(request.headers()) => {
            Refusal::Unauthorized.answer()
        }
        Target::Own(route) => ((route.answer)(context), None),
        // Only one with another method comes here, and that was refused.
        Target::Endpoint(_) => Refusal::NotFound.answer(),
    };
    shared.metrics.answered(answer.0.status(), answer.1);
    answer
}

fn metrics(context: &Context, request: &Request<Incoming>) -> Answer {
    match (request.uri().path(), request.method()) {
        ("/metrics", &Method::GET) => (admin::metrics(&context.shared), None),
        ("/metrics", _) => Refusal::MethodNotAllowed { allowed: "GET" }.answer(),
        _ => Refusal::NotFound.answer(),
    }
}
