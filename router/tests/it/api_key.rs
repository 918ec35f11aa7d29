//! The router's own key: who gets in, and what it is not used for.

use crate::common::{Client, Router, Worker};

const KEY: &str = "sk-of-ours";
const OURS: &str = "Authorization: Bearer sk-of-ours\r\n";

#[test]
fn data_routes_need_the_key_and_the_operators_do_not() {
    let worker = Worker::fixed("{}");
    let router = Router::start(&[worker.url()], &["--api-key", KEY]);
    for path in ["/generate", "/v1/completions", "/v1/chat/completions"] {
        for headers in ["", "Authorization: Bearer sk-of-theirs\r\n", "Authorization: sk-of-ours\r\n"] {
            let refused = router.client().post(path, headers, b"{}");
            assert_eq!(refused.status(), 401, "{path}, {headers:?}");
            assert_eq!(refused.header("x-router-error-code"), Some("invalid_api_key"));
            assert_eq!(refused.header("x-smg-error-code"), Some("invalid_api_key"));
            assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
            assert_eq!(refused.json()["error"]["code"], "invalid_api_key");
            assert!(!refused.text().contains(KEY));
        }
        assert_eq!(router.client().post(path, OURS, b"{}").status(), 200, "{path}");
    }
    assert_eq!(worker.seen().len(), 3, "what is refused reaches no worker");
    assert_eq!(router.get("/health").status(), 200);
    assert_eq!(router.get("/workers").status(), 401, "it shows where the workers are");
    let mut client = router.client();
    client.send(format!("GET /workers HTTP/1.1\r\nHost: router\r\n{OURS}\r\n"));
    let workers = client.receive();
    assert_eq!(workers.status(), 200);
    assert!(!workers.text().contains(KEY));
    let metrics = Client::get(&router.metrics, "/metrics").text();
    assert!(!metrics.contains(KEY));
    assert!(metrics.contains(r#"status_code="401",error_code="invalid_api_key"} 10"#), "{metrics}");
}

#[test]
fn a_client_that_sends_a_long_body_without_the_key_sees_the_refusal() {
    let router = Router::start(&[], &["--api-key", KEY]);
    let refused = router.client().post("/generate", "", &vec![b'x'; 4 << 20]);
    assert_eq!((refused.status(), refused.header("connection")), (401, Some("close")));
}

#[test]
fn the_routers_own_key_tells_no_clients_apart() {
    let worker = Worker::fixed("{}");
    let args = ["--policy", "consistent_hashing", "--decision-headers"];
    let reason = |router: &Router, headers: &str| {
        let answer = router.client().post("/generate", headers, b"{}");
        answer.header("x-router-reason").expect("a reason").to_owned()
    };
    let open = Router::start(&[worker.url()], &args);
    assert_eq!(reason(&open, OURS), "implicit_key_hit", "without --api-key it is the client's");
    let closed = Router::start(&[worker.url()], &[&args[..], &["--api-key", KEY]].concat());
    assert_eq!(reason(&closed, OURS), "random_fallback");
    assert_eq!(reason(&closed, &format!("{OURS}X-Forwarded-For: 192.0.2.7\r\n")), "implicit_key_hit");
}
