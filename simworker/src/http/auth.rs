//! API keys: who may ask what.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::header::CONTENT_TYPE;

use crate::config::WireConfig;
use crate::worker::Worker;

/// Routes that manage a worker. With an admin key they take that one, and no other.
const MANAGING: &[&str] = &["/flush_cache", "/abort_request", "/pause_generation", "/continue_generation"];
/// What is open to everybody begins like this: probes and scrapers send no keys.
const OPEN: &[&str] = &["/health", "/ready", "/metrics"];
/// What those without the key get.
pub(crate) const REFUSED: &str = r#"{"error":"Unauthorized"}"#;

/// Whether a request with these headers may be answered.
pub(crate) fn allows(config: &WireConfig, method: &Method, path: &str, headers: &HeaderMap) -> bool {
    if config.api_key.is_none() && config.admin_api_key.is_none() {
        return true;
    }
    if *method == Method::OPTIONS || OPEN.iter().any(|open| path.starts_with(open)) {
        return true;
    }
    let admin = config.admin_api_key.as_ref().filter(|_| MANAGING.contains(&path));
    let Some(key) = admin.or(config.api_key.as_ref()) else { return true };
    let sent = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
    sent.and_then(bearer).is_some_and(|sent| sent == key.as_bytes())
}

/// The token of an `Authorization` header. The scheme is written in any case.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let blank = value.iter().position(|byte| *byte == b' ')?;
    value[..blank].eq_ignore_ascii_case(b"bearer").then(|| &value[blank + 1..])
}

/// Refuses what is not allowed, known routes and others alike.
pub(super) async fn check(State(worker): State<Arc<Worker>>, request: Request, next: Next) -> Response {
    if allows(&worker.config.wire, request.method(), request.uri().path(), request.headers()) {
        return next.run(request).await;
    }
    (StatusCode::UNAUTHORIZED, [(CONTENT_TYPE, "application/json")], REFUSED).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(api: Option<&str>, admin: Option<&str>, method: &Method, path: &str, sent: Option<&str>) -> bool {
        let config = WireConfig {
            api_key: api.map(str::to_owned),
            admin_api_key: admin.map(str::to_owned),
            ..WireConfig::mock()
        };
        let mut headers = HeaderMap::new();
        if let Some(sent) = sent {
            headers.insert(AUTHORIZATION, sent.parse().unwrap());
        }
        allows(&config, method, path, &headers)
    }

    #[test]
    fn the_key_is_needed_where_sglang_needs_it() {
        let (get, post) = (&Method::GET, &Method::POST);
        let cases = [
            ("no keys at all", None, None, get, "/generate", None, true),
            ("the key", Some("k"), None, post, "/generate", Some("Bearer k"), true),
            ("another case of the scheme", Some("k"), None, post, "/generate", Some("bEARER k"), true),
            ("no key", Some("k"), None, get, "/v1/models", None, false),
            ("another key", Some("k"), None, get, "/server_info", Some("Bearer kk"), false),
            ("another scheme", Some("k"), None, get, "/server_info", Some("Basic k"), false),
            ("only the key", Some("k"), None, get, "/server_info", Some("k"), false),
            ("two blanks", Some("k"), None, get, "/server_info", Some("Bearer  k"), false),
            ("health", Some("k"), None, get, "/health_generate", None, true),
            ("ready", Some("k"), None, get, "/ready", None, true),
            ("metrics", Some("k"), None, get, "/metrics", None, true),
            ("ping is not open", Some("k"), None, get, "/ping", None, false),
            ("options", Some("k"), None, &Method::OPTIONS, "/generate", None, true),
            ("managing by the key alone", Some("k"), None, post, "/flush_cache", Some("Bearer k"), true),
            (
                "managing needs the admin's",
                Some("k"),
                Some("a"),
                post,
                "/flush_cache",
                Some("Bearer k"),
                false,
            ),
            ("the admin's", Some("k"), Some("a"), post, "/abort_request", Some("Bearer a"), true),
            ("the admin's elsewhere", Some("k"), Some("a"), post, "/generate", Some("Bearer a"), false),
            ("only an admin's key: open", None, Some("a"), post, "/generate", None, true),
            ("only an admin's key: managing", None, Some("a"), post, "/pause_generation", None, false),
        ];
        for (case, api, admin, method, path, sent, allowed) in cases {
            assert_eq!(asks(api, admin, method, path, sent), allowed, "{case}");
        }
    }
}
