//! Where routes are served when operators have a listener of their own.

use super::{OK, Script, scripted, send, start};

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
