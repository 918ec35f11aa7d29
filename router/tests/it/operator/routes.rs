//! Which methods a path is served with, and what stands for it in the metrics.

use super::{OK, Script, scripted, send, start};
use crate::common::wait_until;

const GETS: [&str; 17] = [
    "/health",
    "/healthz",
    "/liveness",
    "/readiness",
    "/readyz",
    "/version",
    "/v1/models",
    "/model_info",
    "/get_model_info",
    "/server_info",
    "/get_server_info",
    "/get_loads",
    "/v1/loads",
    "/engine_metrics",
    "/health_generate",
    "/v1/responses/r1",
    "/workers",
];

const ALL: Script = &[
    ("GET /health_generate ", OK, ""),
    ("GET /v1/models ", OK, r#"{"data":[{"id":"m"}]}"#),
    ("GET /model_info ", OK, r#"{"model_path":"m"}"#),
    ("GET /server_info ", OK, r#"{"tp_size":1}"#),
    ("GET /metrics ", OK, "x 1\n"),
    ("GET /v1/responses/r1 ", OK, "{}"),
    ("GET /v1/loads", OK, r#"{"loads":[{"num_running_reqs":0,"num_waiting_reqs":0,"num_total_tokens":5}]}"#),
    ("POST /abort_request ", OK, ""),
    ("POST /flush_cache ", OK, ""),
];

#[test]
fn head_is_answered_where_get_is_with_the_same_head() {
    let worker = scripted(ALL);
    let router = start(&[&worker], &[]);
    for path in GETS {
        let (get, head) = (router.get(path), send(&router, "HEAD", path, ""));
        assert_eq!((get.status(), head.status()), (200, 200), "{path}");
        assert_eq!(get.header("content-type"), head.header("content-type"), "{path}");
        // Answers that change from one to the next differ in length too.
        assert_eq!(head.header("content-length").is_some(), get.header("content-length").is_some(), "{path}");
        for method in ["OPTIONS", "PATCH", "DELETE"] {
            let refused = send(&router, method, path, "");
            refused.assert_refused(405, "method_not_allowed");
            let allow = refused.header("allow").expect("a list");
            assert!(allow.starts_with("GET, HEAD"), "{method} {path}: {allow}");
        }
    }
    for path in ["/flush_cache", "/abort_request", "/v1/responses/r1/cancel", "/workers/7/drain"] {
        for method in ["GET", "HEAD", "OPTIONS", "PUT"] {
            let refused = send(&router, method, path, "");
            assert_eq!((refused.status(), refused.header("allow")), (405, Some("POST")), "{method} {path}");
        }
    }
    let refused = send(&router, "POST", "/workers/7", "");
    assert_eq!((refused.status(), refused.header("allow")), (405, Some("GET, HEAD, PUT, DELETE")));
    let refused = send(&router, "PUT", "/workers", "");
    assert_eq!((refused.status(), refused.header("allow")), (405, Some("GET, HEAD, POST")));
}

#[test]
fn every_answer_has_an_id_and_ids_in_paths_are_no_labels() {
    let worker = scripted(ALL);
    let router = start(&[&worker], &[]);
    for path in GETS {
        let answer = send(&router, "GET", path, "X-Request-Id: mine\r\n");
        assert_eq!(answer.header("x-request-id"), Some("mine"), "{path}");
    }
    send(&router, "GET", "/workers/http%3A%2F%2F127.0.0.1%3A9", "");
    for path in ["/v1/responses/{id}", "/workers/{id}", "/engine_metrics"] {
        let series = format!(r#"smg_http_requests_total{{method="GET",path="{path}"}}"#);
        wait_until("the request to be counted", || router.metric(&series) == Some(1.0));
    }
    let asked = worker.seen().into_iter().find(|request| request.first.starts_with("GET /metrics "));
    assert_eq!(
        asked.expect("a question").header("x-request-id"),
        Some("mine"),
        "the worker knows it by the same"
    );
}

#[test]
fn a_worker_is_named_by_its_url_in_the_path() {
    let worker = scripted(ALL);
    let router = start(&[&worker], &[]);
    let encoded = worker.url().replace(':', "%3A").replace('/', "%2F");
    let shown = router.get(&format!("/workers/{encoded}"));
    assert_eq!((shown.status(), &shown.json()["url"]), (200, &worker.url().into()));
    assert_eq!(router.get("/workers/http%3A%2F%2F127.0.0.1%3A9").status(), 404);
    assert_eq!(router.get("/workers/%zz").status(), 400);
    let drained = send(&router, "POST", &format!("/workers/{encoded}/drain"), "");
    assert_eq!(drained.status(), 202, "{}", drained.text());
    wait_until("it to be gone", || router.get("/workers").json()["total"] == 0);
}
