//! Whether the router is there, is ready, and whether its workers generate.

use serde_json::json;

use super::{OK, is_json, scripted, send, start, wait_until_ready};
use crate::common::Router;
use crate::common::worker::dead_url;

#[test]
fn it_is_alive_without_any_worker_and_tells_its_version() {
    let router = Router::start(&[], &["--api-key", "k"]);
    for path in ["/health", "/healthz", "/liveness"] {
        let answer = router.get(path);
        assert_eq!((answer.status(), answer.text().as_str()), (200, "OK"), "{path}");
    }
    let version = router.get("/version");
    assert_eq!((version.status(), is_json(&version)), (200, true));
    assert_eq!(version.json(), json!({"version": env!("CARGO_PKG_VERSION"), "name": "router"}));
    for path in ["/readiness", "/readyz"] {
        let answer = router.get(path);
        assert_eq!((answer.status(), is_json(&answer)), (503, true), "{path}");
        assert_eq!(answer.json(), json!({"status": "not ready", "reason": "no workers"}));
    }
}

#[test]
fn it_is_ready_with_a_worker_that_may_have_requests() {
    let worker = scripted(&[("POST /generate", "500 Oh", "")]);
    let args = ["--cb-failure-threshold", "1", "--disable-retries"];
    let router = Router::start(&[worker.url(), dead_url()], &args);
    wait_until_ready(&router, 1);
    for path in ["/readiness", "/readyz"] {
        let expected = json!({"status": "ready", "healthy_workers": 1, "total_workers": 2});
        assert_eq!(router.get(path).json(), expected);
    }
    router.post("/generate", b"{}");
    let reason = "the circuit breakers of all healthy workers are open";
    let answer = router.get("/readyz");
    assert_eq!((answer.status(), answer.json()), (503, json!({"status": "not ready", "reason": reason})));
    assert_eq!(send(&router, "HEAD", "/readyz", "").status(), 503);
}

const WELL: super::Script = &[("GET /health_generate ", OK, "")];

#[test]
fn it_generates_if_every_healthy_worker_does() {
    let (a, b) = (scripted(WELL), scripted(WELL));
    let router = Router::start(&[a.url(), dead_url(), b.url()], &[]);
    wait_until_ready(&router, 2);
    let answer = router.get("/health_generate");
    assert_eq!((answer.status(), is_json(&answer)), (200, true));
    assert_eq!(answer.json(), json!({"status": "healthy", "workers": 2}));
    assert_eq!(
        (a.count("GET /health_generate "), b.count("GET /health_generate ")),
        (1, 1),
        "they were asked"
    );
}

#[test]
fn who_does_not_generate_is_named() {
    let (a, b) = (scripted(WELL), scripted(&[("GET /health_generate ", "503 Unwell", "stuck")]));
    let router = start(&[&a, &b], &[]);
    let answer = router.get("/health_generate");
    answer.assert_refused(503, "workers_unwell");
    assert_eq!(answer.json()["failed"], json!([{"worker": b.url(), "error": "status 503: stuck"}]));
    Router::start(&[], &[]).get("/health_generate").assert_refused(503, "no_workers");
}
