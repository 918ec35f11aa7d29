//! The routes besides the proxied endpoints: which paths and methods there are, who may use them, where they are served.
//! A new route is a new row.

use std::sync::LazyLock;

use http::Method;

use crate::operator::{self, Answering, Asked, Guard, Handler};
use crate::proxy;
use crate::server::Surface;

/// One path.
pub(super) struct Route {
    /// Also the value of the metric label. A segment in braces stands for any.
    pub(super) path: &'static str,
    pub(super) guard: Guard,
    methods: &'static [(Verb, Handler)],
}

/// A method that a route may be served with. HEAD comes with GET.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Get,
    Post,
    Put,
    Delete,
}

const fn get(handler: Handler) -> (Verb, Handler) {
    (Verb::Get, handler)
}

const fn post(handler: Handler) -> (Verb, Handler) {
    (Verb::Post, handler)
}

const fn put(handler: Handler) -> (Verb, Handler) {
    (Verb::Put, handler)
}

const fn delete(handler: Handler) -> (Verb, Handler) {
    (Verb::Delete, handler)
}

const fn row(path: &'static str, guard: Guard, methods: &'static [(Verb, Handler)]) -> Route {
    Route { path, guard, methods }
}

const ALIVE: &[(Verb, Handler)] = &[get(|_| at_once(operator::alive()))];
const READY: &[(Verb, Handler)] = &[get(|asked| at_once(operator::readiness(&asked.context.shared)))];
const MODEL_INFO: &[(Verb, Handler)] = &[get(operator::model_info)];
const SERVER_INFO: &[(Verb, Handler)] = &[get(operator::server_info)];

/// Every route.
pub(super) static ROUTES: &[Route] = &[
    row("/health", Guard::Public, ALIVE),
    row("/healthz", Guard::Public, ALIVE),
    row("/liveness", Guard::Public, ALIVE),
    row("/readiness", Guard::Public, READY),
    row("/readyz", Guard::Public, READY),
    row("/version", Guard::Public, &[get(|_| at_once(operator::version()))]),
    row("/v1/models", Guard::Data, &[get(operator::models)]),
    row("/model_info", Guard::Data, MODEL_INFO),
    row("/get_model_info", Guard::Data, MODEL_INFO),
    row("/health_generate", Guard::Data, &[get(operator::health_generate)]),
    row("/abort_request", Guard::Data, &[post(ask_around)]),
    row("/v1/responses/{id}", Guard::Data, &[get(ask_around)]),
    row("/v1/responses/{id}/cancel", Guard::Data, &[post(ask_around)]),
    row("/server_info", Guard::Admin, SERVER_INFO),
    row("/get_server_info", Guard::Admin, SERVER_INFO),
    row("/get_loads", Guard::Admin, &[get(operator::token_loads)]),
    row("/v1/loads", Guard::Admin, &[get(operator::loads)]),
    row("/engine_metrics", Guard::Admin, &[get(operator::engine_metrics)]),
    row("/flush_cache", Guard::Admin, &[post(operator::flush_cache)]),
    row("/workers", Guard::Admin, &[get(operator::workers), post(operator::workers)]),
    row(
        "/workers/{id}",
        Guard::Admin,
        &[get(operator::workers), put(operator::workers), delete(operator::workers)],
    ),
    row("/workers/{id}/drain", Guard::Admin, &[post(operator::workers)]),
];

fn at_once(answer: crate::error::Answer) -> Answering {
    Box::pin(std::future::ready(answer))
}

fn ask_around(asked: Asked) -> Answering {
    Box::pin(async move { proxy::ask_around(&asked.context, &asked.turn, asked.request, asked.id).await })
}

/// The methods of each route, as `Allow` names them.
static ALLOWED: LazyLock<Vec<String>> = LazyLock::new(|| {
    let names =
        |route: &Route| route.methods.iter().map(|(verb, _)| verb.name()).collect::<Vec<_>>().join(", ");
    ROUTES.iter().map(names).collect()
});

/// The list of all workers as some clients spell it.
const WORKERS: (&str, &str) = ("/workers/", "/workers");

/// The place of the route that serves this path.
pub(super) fn find(path: &str) -> Option<usize> {
    let path = if path == WORKERS.0 { WORKERS.1 } else { path };
    ROUTES.iter().position(|route| route.matches(path))
}

/// The methods of the route at this place, as `Allow` names them.
pub(super) fn allowed(at: usize) -> &'static str {
    &ALLOWED[at]
}

impl Route {
    fn matches(&self, path: &str) -> bool {
        let (mut own, mut given) = (self.path.split('/'), path.split('/'));
        loop {
            match (own.next(), given.next()) {
                (None, None) => return true,
                (Some(own), Some(given)) if own == given || (is_variable(own) && !given.is_empty()) => {}
                _ => return false,
            }
        }
    }

    /// What answers this method.
    pub(super) fn handler(&self, method: &Method) -> Option<Handler> {
        let verb = Verb::of(method)?;
        self.methods.iter().find(|(served, _)| *served == verb).map(|(_, handler)| *handler)
    }

    /// Whether it is there on such a listener; `apart` if operators have one of their own.
    pub(super) fn is_served_on(&self, surface: Surface, apart: bool) -> bool {
        match (self.guard, surface) {
            (_, Surface::Metrics) => false,
            (Guard::Public, _) => true,
            (Guard::Data, surface) => surface == Surface::Traffic,
            (Guard::Admin, surface) => surface == Surface::Admin || !apart,
        }
    }
}

fn is_variable(segment: &str) -> bool {
    segment.starts_with('{')
}

impl Verb {
    fn of(method: &Method) -> Option<Self> {
        Some(match *method {
            Method::GET | Method::HEAD => Self::Get,
            Method::POST => Self::Post,
            Method::PUT => Self::Put,
            Method::DELETE => Self::Delete,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Get => "GET, HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_at_most_one_route() {
        for (at, route) in ROUTES.iter().enumerate() {
            assert_eq!(find(&route.path.replace(['{', '}'], "")), Some(at), "{}", route.path);
            assert_eq!(proxy::find(route.path, &[]), None, "{}", route.path);
        }
        for path in [
            "",
            "/",
            "health",
            "/health/",
            "/v1",
            "/v1/responses/",
            "/v1/responses//cancel",
            "/workers//",
            "//workers",
            "/workers//drain",
            "/workers/x/y",
            "/workers/x/drain/y",
        ] {
            assert_eq!(find(path), None, "{path}");
        }
        assert!(find("/workers").is_some() && find("/workers/") == find("/workers"));
    }

    #[test]
    fn operators_have_a_listener_of_their_own_where_there_is_one() {
        let on = |guard| {
            let route = Route { path: "/x", guard, methods: &[] };
            let served = |surface, apart| route.is_served_on(surface, apart);
            [
                served(Surface::Traffic, false),
                served(Surface::Traffic, true),
                served(Surface::Admin, true),
                served(Surface::Metrics, true),
            ]
        };
        assert_eq!(on(Guard::Public), [true, true, true, false]);
        assert_eq!(on(Guard::Data), [true, true, false, false]);
        assert_eq!(on(Guard::Admin), [true, false, true, false]);
    }

    #[test]
    fn head_goes_where_get_does_and_allow_names_all() {
        let at = |path: &str| find(path).expect(path);
        let serves = |path: &str, method: Method| ROUTES[at(path)].handler(&method).is_some();
        assert!(serves("/workers", Method::GET) && serves("/workers", Method::HEAD));
        assert!(serves("/flush_cache", Method::POST) && !serves("/flush_cache", Method::GET));
        assert!(!serves("/health", Method::OPTIONS) && !serves("/health", Method::PATCH));
        for (path, names) in [
            ("/health", "GET, HEAD"),
            ("/flush_cache", "POST"),
            ("/workers", "GET, HEAD, POST"),
            ("/workers/http%3A%2F%2F127.0.0.1%3A9", "GET, HEAD, PUT, DELETE"),
            ("/workers/7/drain", "POST"),
        ] {
            assert_eq!(allowed(at(path)), names, "{path}");
        }
    }

    /// Everything that tells of workers or touches them is guarded.
    #[test]
    fn only_what_says_nothing_of_workers_is_public() {
        let public = ROUTES.iter().filter(|route| route.guard == Guard::Public).map(|route| route.path);
        let expected = ["/health", "/healthz", "/liveness", "/readiness", "/readyz", "/version"];
        assert_eq!(public.collect::<Vec<_>>(), expected);
    }
}
