//! Routers whose workers lead back to them.

use serde_json::json;

use crate::common::{Message, Router, Worker, wait_until};

const BODY: &[u8] = br#"{"text":"hello"}"#;

/// A loop takes all files that there are; the router's own questions take some dozens while it is slow.
const FEW_FILES: usize = 200;

fn add(router: &Router, url: &str) {
    let answer = router.post("/workers", json!({"url": url}).to_string().as_bytes());
    assert_eq!(answer.status(), 202, "{}", answer.text());
}

fn reason(router: &Router) -> Option<String> {
    let worker = router.get("/workers").json()["workers"][0].clone();
    (worker["state"] == "failed").then(|| worker["reason"].as_str().expect("a reason").to_owned())
}

/// How many routers the request came through that a worker saw last.
fn hops(worker: &Worker) -> usize {
    worker.seen().pop().expect("a request").all("x-router-hops").len()
}

#[test]
fn a_router_is_no_worker_of_its_own() {
    for (args, host) in [(&[][..], "127.0.0.1"), (&["--api-key", "k"], "localhost")] {
        let (router, log) = Router::start_logged(&[], args);
        let port = router.address.rsplit(':').next().expect("a port");
        let url = format!("http://{host}:{port}");
        let answer = router.client().post(
            "/workers",
            "Authorization: Bearer k\r\n",
            json!({"url": url}).to_string().as_bytes(),
        );
        assert_eq!(answer.status(), 202, "{}", answer.text());
        let told = "this is the router itself; give the engine's port";
        wait_until("the log to say so", || {
            log.lines()
                .iter()
                .any(|line| line.contains("ERROR") && line.contains(told) && line.contains(&url))
        });
        assert_eq!(router.get("/readiness").status(), 503);
        if args.is_empty() {
            assert_eq!(reason(&router).as_deref(), Some(told));
            router.post("/generate", BODY).assert_refused(503, "no_available_workers");
        }
    }
}

#[test]
fn a_request_that_comes_back_unasked_goes_no_further() {
    let router = Router::start(&[], &["--disable-health-check"]);
    add(&router, &router.url);
    let files = router.open_files();
    let first = router.post("/generate", BODY);
    first.assert_refused(508, "loop_detected");
    assert!(first.text().contains("engine"), "{}", first.text());
    assert!(router.open_files() < files + FEW_FILES, "from {files} to {}", router.open_files());
}

#[test]
fn two_routers_that_are_each_others_workers_refuse() {
    let a = Router::start(&[], &[]);
    let b = Router::start(std::slice::from_ref(&a.url), &[]);
    add(&a, &b.url);
    wait_until("both to take the other for a worker", || {
        [&a, &b].iter().all(|router| router.get("/readiness").status() == 200)
    });
    for router in [&a, &b] {
        router.post("/generate", BODY).assert_refused(508, "loop_detected");
        // What is asked on the way goes no further either.
        for path in ["/v1/models", "/server_info", "/model_info", "/v1/loads"] {
            router.get(path).assert_refused(503, "no_worker_response");
        }
        router.get("/health_generate").assert_refused(503, "workers_unwell");
        assert_eq!(router.get("/v1/responses/r1").status(), 508);
        assert!(router.open_files() < FEW_FILES, "{}", router.open_files());
    }
}

#[test]
fn a_chain_of_different_routers_works_as_far_as_it_makes_sense() {
    let worker = Worker::fixed("{}");
    let inner = Router::start(&[worker.url()], &[]);
    let outer = Router::start(std::slice::from_ref(&inner.url), &[]);
    assert_eq!((outer.post("/generate", BODY).status(), hops(&worker)), (200, 2));
    let through = |marks: usize| -> Message {
        inner.client().post("/generate", &"x-router-hops: other\r\n".repeat(marks), BODY)
    };
    assert_eq!((through(7).status(), hops(&worker)), (200, 8));
    through(8).assert_refused(508, "loop_detected");
    assert_eq!(worker.count("POST"), 2);
}
