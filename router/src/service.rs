//! Which code answers which path.

mod table;

use std::sync::Arc;

use http::{HeaderValue, Method, Request};
use hyper::body::Incoming;

use crate::client::Turn;
use crate::error::{Answer, Refusal};
use crate::operator::{self, Asked, Call, Guard};
use crate::proxy;
use crate::request_id::{self, REQUEST_ID};
use crate::server::{Context, Surface};
use crate::upstream::without_userinfo;
use table::ROUTES;

/// What a path stands for on a listener.
#[derive(Clone, Copy)]
enum Target {
    /// This place of the endpoint table.
    Endpoint(usize),
    /// This place of the routes.
    Route(usize),
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
        Surface::Traffic | Surface::Admin => serve(context, turn, surface, request).await,
        Surface::Metrics => match context.shared.mark.judge(request.headers()) {
            Ok(()) => metrics(context, &request),
            Err(refusal) => refusal.answer(),
        },
    };
    turn.answered();
    answer
}

async fn serve(
    context: &Arc<Context>,
    turn: &Arc<Turn>,
    surface: Surface,
    request: Request<Incoming>,
) -> Answer {
    let settings = &context.shared.settings;
    let target = target(request.uri().path(), &settings.extra_endpoints).on(surface, context.admin_apart);
    let prefix = match target {
        Target::Endpoint(at) => proxy::endpoint_at(at).id_prefix,
        _ => "req-",
    };
    let id = request_id::of(request.headers(), &settings.request_id_headers, prefix);
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
    table::find(path).map_or(Target::Nothing, Target::Route)
}

impl Target {
    /// What it is on such a listener; `apart` if operators have one of their own.
    fn on(self, surface: Surface, apart: bool) -> Self {
        let is_there = match self {
            Self::Endpoint(_) => surface == Surface::Traffic,
            Self::Route(at) => ROUTES[at].is_served_on(surface, apart),
            Self::Nothing => false,
        };
        if is_there { self } else { Self::Nothing }
    }

    /// The value of the metric label.
    fn label(self) -> &'static str {
        match self {
            // Paths that the operator allows have no name of their own here.
            Self::Endpoint(at) => {
                Some(proxy::endpoint_at(at).path).filter(|path| !path.is_empty()).unwrap_or("other")
            }
            Self::Route(at) => ROUTES[at].path,
            Self::Nothing => "other",
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
    if let (Target::Endpoint(at), &Method::POST) = (target, request.method()) {
        // It takes its own notes.
        return proxy::handle(context, turn, at, request, id).await;
    }
    let metrics = &context.shared.metrics;
    metrics.arrived_elsewhere(request.method(), target.label());
    let answer = match target {
        _ if context.shared.mark.judge(request.headers()).is_err() => {
            refuse(Refusal::Loop, &mut request).await
        }
        Target::Route(at) => operate(context, turn, at, request, id).await,
        Target::Endpoint(_) => refuse(Refusal::MethodNotAllowed { allowed: "POST" }, &mut request).await,
        Target::Nothing => {
            proxy::discard(&mut request).await;
            not_found(&request, context.admin_apart)
        }
    };
    metrics.answered(answer.0.status(), answer.1);
    answer
}

/// Answers a request to the route at this place.
async fn operate(
    context: &Arc<Context>,
    turn: &Arc<Turn>,
    at: usize,
    mut request: Request<Incoming>,
    id: HeaderValue,
) -> Answer {
    let route = &ROUTES[at];
    let Some(handler) = route.handler(request.method()) else {
        return refuse(Refusal::MethodNotAllowed { allowed: table::allowed(at) }, &mut request).await;
    };
    let settings = &context.shared.settings;
    let call = Call::of(settings, route.guard, &request, &id);
    let identified = operator::identify(settings, route.guard, request.headers());
    let visitor = identified.clone().ok();
    let admitted = identified.and_then(|visitor| visitor.may(request.method()).map(|()| visitor));
    let answer = match admitted {
        Ok(visitor) => {
            let (context, turn) = (Arc::clone(context), Arc::clone(turn));
            handler(Asked { context, turn, request, id, visitor }).await
        }
        Err(Refusal::Unauthorized) if route.guard == Guard::Admin && !settings.admin_keys.is_empty() => {
            proxy::discard(&mut request).await;
            Refusal::Unauthorized.answer_saying(OPERATORS_ONLY)
        }
        Err(refusal) => refuse(refusal, &mut request).await,
    };
    if let Some(call) = call {
        call.log(visitor.as_ref(), answer.0.status());
    }
    answer
}

/// To who may have shown the clients' key.
const OPERATORS_ONLY: &str = "This takes an operator's key, as --control-plane-api-keys gives it, and that is missing or \
                              wrong. Send it as `Authorization: Bearer KEY`.";

/// Tells who asked at the wrong place where the right one is; `apart` if operators have a listener of their own.
fn not_found(request: &Request<Incoming>, apart: bool) -> Answer {
    let path: String = request.uri().path().chars().take(MAX_PATH).collect();
    let whereabouts = match target(&path, &[]) {
        _ if path == "/metrics" => "it is served on the port of --prometheus-port.",
        Target::Endpoint(_) => "it is served where clients are, on the port of --port.",
        Target::Route(at) if ROUTES[at].is_served_on(Surface::Admin, apart) => {
            "operators are served on a listener of their own, on the port of --admin-port."
        }
        Target::Route(_) => "it is served where clients are, on the port of --port.",
        Target::Nothing => {
            "an engine's path that the router does not know is one that --extra-endpoints names."
        }
    };
    let shown = without_userinfo(&path);
    Refusal::NotFound.answer_saying(&format!("The router has no path `{shown}` here: {whereabouts}"))
}

/// As much of a path as is repeated, in characters.
const MAX_PATH: usize = 128;

/// Refuses. A client that is still sending would not see why, so what it sends is taken first.
async fn refuse(refusal: Refusal, request: &mut Request<Incoming>) -> Answer {
    proxy::discard(request).await;
    refusal.answer()
}

fn metrics(context: &Context, request: &Request<Incoming>) -> Answer {
    match (request.uri().path(), request.method()) {
        ("/metrics", &(Method::GET | Method::HEAD)) => operator::metrics(&context.shared, request.headers()),
        ("/metrics", _) => Refusal::MethodNotAllowed { allowed: "GET, HEAD" }.answer(),
        _ => Refusal::NotFound
            .answer_saying("Only /metrics is served here; the rest is on the port of --port."),
    }
}
