//! Where routes are served when operators have a listener of their own.

use super::{OK, Script, scripted, send, start};
use crate::common::{Client, Router};

const ALL: Script = &[
    ("GET /v1/models ", OK, r#"{"data":[]}"#),
    ("GET /model_info ", OK, "{}"),
    ("GET /health_generate ", OK, ""),
    ("POST /generate ", OK, "{}"),
];

#[test]
fn clients_find_no_admin_route_where_operators_have_a_listener() {
    let worker = scripted(ALL);
    let router = start(&[&worker], &["--admin-port", "0"]);
    for (method, path) in [
        ("GET", "/workers"),
        ("POST", "/workers"),
        ("DELETE", "/workers/7"),
        ("POST", "/workers/7/drain"),
        ("POST", "/flush_cache"),
        ("GET", "/get_loads"),
        ("GET", "/v1/loads"),
        ("GET", "/server_info"),
        ("GET", "/get_server_info"),
        ("GET", "/engine_metrics"),
    ] {
        send(&router, method, path, "").assert_refused(404, "not_found");
    }
    for (method, path) in [
        ("GET", "/health"),
        ("GET", "/readyz"),
        ("GET", "/version"),
        ("GET", "/v1/models"),
        ("GET", "/model_info"),
        ("GET", "/health_generate"),
        ("POST", "/generate"),
    ] {
        assert_eq!(send(&router, method, path, "").status(), 200, "{method} {path}");
    }
    assert_eq!(worker.count("POST /flush_cache"), 0);
}

#[test]
fn who_asks_at_the_wrong_place_is_told_the_right_one() {
    let router = Router::start(&[], &["--admin-port", "0", "--control-plane-api-keys", "1:Ada:admin:sk-ada"]);
    let admin = router.admin.clone().expect("a listener");
    for (address, path, remedy) in [
        (&router.address, "/metrics", "--prometheus-port"),
        (&router.address, "/tokenize", "`/tokenize` here: an engine's path"),
        (&router.address, "/tokenize", "--extra-endpoints"),
        (&router.address, "/workers", "--admin-port"),
        (&admin, "/metrics", "--prometheus-port"),
        (&admin, "/generate", "on the port of --port"),
        (&admin, "/v1/models", "on the port of --port"),
        (&router.metrics, "/health", "Only /metrics is served here"),
        (&router.address, &format!("/{}", "x".repeat(9000)), "--extra-endpoints"),
    ] {
        let answer = Client::get(address, path);
        answer.assert_refused(404, "not_found");
        let message = answer.json()["error"]["message"].as_str().expect("text").to_owned();
        assert!(message.contains(remedy) && message.len() < 400, "{path}: {message}");
    }
    let answer = Client::get(&admin, "/workers");
    answer.assert_refused(401, "invalid_api_key");
    assert!(answer.text().contains("an operator's key, as --control-plane-api-keys"), "{}", answer.text());
}
