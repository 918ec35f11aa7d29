//! Pages in browsers: what answers say about origins, and what browsers are told that ask beforehand.

use crate::common::{Message, Router, Worker};

const PAGE: &str = "https://chat.example";

fn worker() -> Worker {
    let headers =
        "Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\nVary: Accept\r\n";
    Worker::answering("200 OK", headers, "{}")
}

fn preflight(router: &Router, headers: &str) -> Message {
    let mut client = router.client();
    client.send(format!("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: router\r\n{headers}\r\n"));
    client.receive()
}

/// Names of what an answer says about origins.
fn said(answer: &Message) -> Vec<&str> {
    let names = answer.headers.iter().map(|(name, _)| name.as_str());
    names.filter(|name| name.starts_with("access-control-")).collect()
}

#[test]
fn without_origins_nothing_is_said_about_them() {
    let worker = worker();
    let router = Router::start(&[worker.url()], &[]);
    let asked = format!("Origin: {PAGE}\r\nAccess-Control-Request-Method: POST\r\n");
    let refused = preflight(&router, &asked);
    refused.assert_refused(405, "method_not_allowed");
    assert!(said(&refused).is_empty());
    let answer = router.client().post("/generate", &format!("Origin: {PAGE}\r\n"), b"{}");
    assert_eq!((answer.status(), answer.all("vary")), (200, vec!["Accept"]));
    assert!(said(&answer).is_empty(), "a worker does not open what the router keeps closed");
}

#[test]
fn listed_origins_are_allowed_and_no_others() {
    let worker = worker();
    let args = ["--api-key", "secret", "--cors-allowed-origins", "http://localhost:3000", PAGE];
    let router = Router::start(&[worker.url()], &args);
    let asked = format!("Origin: {PAGE}\r\nAccess-Control-Request-Method: POST\r\n");
    let allowed = preflight(&router, &asked);
    assert_eq!((allowed.status(), allowed.body.len()), (204, 0));
    for (name, value) in [
        ("access-control-allow-origin", PAGE),
        ("access-control-allow-methods", "GET, POST, OPTIONS"),
        ("access-control-allow-headers", "content-type, authorization, x-request-id"),
        ("access-control-max-age", "3600"),
        ("vary", "Origin"),
    ] {
        assert_eq!(allowed.all(name), [value], "{name}");
    }
    assert!(allowed.header("x-request-id").is_some());

    for (key, status) in [("secret", 200), ("wrong", 401)] {
        let headers = format!("Origin: {PAGE}\r\nAuthorization: Bearer {key}\r\n");
        let answer = router.client().post("/generate", &headers, b"{}");
        assert_eq!(answer.status(), status);
        assert_eq!(said(&answer).len(), 2, "{:?}", answer.headers);
        assert_eq!(answer.all("access-control-allow-origin"), [PAGE]);
        assert_eq!(answer.all("access-control-expose-headers"), ["x-request-id"]);
        assert!(answer.all("vary").contains(&"Origin"));
    }

    for origin in ["https://evil.example", "http://chat.example", "https://chat.example.evil.example", "null"]
    {
        let asked = format!("Origin: {origin}\r\nAccess-Control-Request-Method: POST\r\n");
        let refused = preflight(&router, &asked);
        refused.assert_refused(405, "method_not_allowed");
        let headers = format!("Origin: {origin}\r\nAuthorization: Bearer secret\r\n");
        let answer = router.client().post("/generate", &headers, b"{}");
        for answer in [refused, answer] {
            assert!(said(&answer).is_empty(), "{origin}");
            assert!(answer.all("vary").contains(&"Origin"), "{origin}");
        }
    }
    // No browser's question.
    preflight(&router, &format!("Origin: {PAGE}\r\n")).assert_refused(405, "method_not_allowed");
}

#[test]
fn any_origin_must_be_asked_for() {
    let worker = worker();
    let router = Router::start(&[worker.url()], &["--cors-allowed-origins", "*"]);
    let asked = "Origin: https://anybody.example\r\nAccess-Control-Request-Method: POST\r\n";
    let allowed = preflight(&router, asked);
    assert_eq!((allowed.status(), allowed.header("access-control-allow-origin")), (204, Some("*")));
    let answer = router.client().post("/generate", "", b"{}");
    assert_eq!(answer.all("access-control-allow-origin"), ["*"]);
    assert_eq!(answer.header("access-control-allow-credentials"), None);
    assert_eq!(answer.all("vary"), ["Accept"]);
}

#[test]
fn a_connection_serves_requests_after_a_preflight() {
    let worker = worker();
    let router = Router::start(&[worker.url()], &["--cors-allowed-origins", PAGE]);
    let mut client = router.client();
    for _ in 0..2 {
        client.send(format!(
            "OPTIONS /generate HTTP/1.1\r\nHost: router\r\nOrigin: {PAGE}\r\nAccess-Control-Request-Method: POST\r\n\r\n"
        ));
        assert_eq!(client.receive().status(), 204);
        assert_eq!(client.post("/generate", "", b"{}").status(), 200);
    }
}
