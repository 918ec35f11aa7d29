//! How workers come.

use std::net::TcpListener;

use super::engine::HOLD;
use super::{BODY, Engine, add, add_as, add_ready, encoded, listed, remove, router, shown, state};
use crate::common::worker::dead_url;
use crate::common::{Router, wait_until};
use serde_json::json;

/// No probe that hangs is given up while a test waits.
const PATIENT: [&str; 2] = ["--health-check-timeout-secs", "600"];

/// Addresses where nobody is, or nobody says a word.
struct Unreachable {
    urls: Vec<String>,
    /// They accept connections, as the system does it for them.
    silent: Vec<TcpListener>,
}

impl Unreachable {
    /// Five of each kind.
    fn ten() -> Self {
        let silent: Vec<_> = (0..5).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
        let addresses = silent.iter().map(|listener| listener.local_addr().expect("an address"));
        let mut urls: Vec<_> = addresses.map(|address| format!("http://{address}")).collect();
        urls.extend((0..5).map(|_| dead_url()));
        Self { urls, silent }
    }
}

fn assert_none_ready(router: &Router, urls: &[String]) {
    for url in urls {
        let worker = shown(router, &encoded(url));
        assert_eq!((&worker["state"], &worker["is_healthy"]), (&"probing".into(), &false.into()), "{worker}");
    }
}

/// Probes that hang are given up after five seconds; until then nothing is said of those who let them hang.
fn assert_first_probes_hang(router: &Router, unreachable: &Unreachable) {
    for url in &unreachable.urls[..unreachable.silent.len()] {
        let worker = shown(router, &encoded(url));
        assert!(
            worker.get("reason").is_none(),
            "the next one was ready only after it was given up: {worker}"
        );
    }
}

#[test]
fn workers_that_are_unreachable_do_not_delay_the_next_one() {
    let unreachable = Unreachable::ten();
    let router = router(&["--health-check-timeout-secs", "5"]);
    for url in &unreachable.urls {
        add(&router, url);
    }
    let engine = Engine::start();
    add_ready(&router, &engine.url());
    assert_first_probes_hang(&router, &unreachable);
    assert_none_ready(&router, &unreachable.urls);
    for _ in 0..20 {
        assert_eq!(router.post("/generate", BODY).status(), 200);
    }
    assert_eq!(engine.requests(), 20);
    assert_eq!(listed(&router).len(), 11);
}

#[test]
fn workers_of_the_command_line_that_are_unreachable_do_not_delay_the_next_one() {
    let unreachable = Unreachable::ten();
    let engine = Engine::start();
    let urls = [&unreachable.urls[..], &[engine.url()]].concat();
    let router = Router::start(&urls, &PATIENT);
    wait_until("the reachable one to be ready", || state(&router, &encoded(&engine.url())) == "ready");
    assert_none_ready(&router, &unreachable.urls);
    assert_eq!((router.post("/generate", BODY).status(), engine.requests()), (200, 1));
}

#[test]
fn a_worker_that_answers_later_joins_later() {
    let (early, late) = (Engine::start(), Engine::start());
    late.worker.kill();
    let router = router(&["--policy", "round_robin"]);
    let id = add(&router, &late.url());
    add_ready(&router, &early.url());
    wait_until("nobody to be found", || shown(&router, &id)["reason"].is_string());
    let unwell = shown(&router, &id);
    assert!(unwell["reason"].as_str().expect("a reason").contains("connect"), "{unwell}");
    for _ in 0..10 {
        assert_eq!(router.post("/generate", BODY).status(), 200);
    }
    let late = Engine::start_at(&late.worker.address);
    wait_until("it to be ready", || state(&router, &id) == "ready");
    for _ in 0..10 {
        assert_eq!(router.post("/generate", BODY).status(), 200);
    }
    assert_eq!((early.requests(), late.requests()), (15, 5));
}

#[test]
fn a_request_that_comes_before_the_first_probe_is_over_waits_for_it() {
    let engine = Engine::start();
    engine.say("/health", "200 OK", HOLD);
    let router = router(&PATIENT);
    add(&router, &engine.url());
    wait_until("the probe", || engine.asked("/health") == 1);
    let mut client = router.client();
    client.send_post("/generate", "", BODY);
    // Whoever came after it and needs no worker has been served.
    assert_eq!((router.get("/health").status(), engine.requests()), (200, 0));
    engine.go.open();
    let answer = client.receive();
    assert_eq!((answer.status(), engine.requests()), (200, 1), "{}", answer.text());
}

#[test]
fn a_request_does_not_wait_for_a_worker_that_was_not_there_when_it_was_asked() {
    let engine = Engine::unwell();
    let router = router(&PATIENT);
    let id = add(&router, &engine.url());
    wait_until("the probe to be judged", || shown(&router, &id)["reason"].is_string());
    router.post("/generate", BODY).assert_refused(503, "no_available_workers");
}

#[test]
fn a_worker_that_does_not_come_in_its_time_has_failed_and_can_be_registered_again() {
    let engine = Engine::unwell();
    let router = router(&["--worker-startup-timeout-secs", "1"]);
    let said = json!({"url": engine.url(), "priority": 1});
    let id = add_as(&router, &said);
    wait_until("the worker to fail", || state(&router, &id) == "failed");
    let failed = shown(&router, &id);
    let reason = failed["reason"].as_str().expect("a reason");
    assert!(reason.contains("1 s") && reason.contains("503"), "{reason}");
    assert_eq!((&failed["job_status"]["status"], &failed["is_healthy"]), (&json!("failed"), &json!(false)));
    router.post("/generate", BODY).assert_refused(503, "no_available_workers");

    // At once, and after pauses that double from 50 ms on: the seventh probe would come after three seconds.
    let probes = engine.asked("/health");
    assert!((2..=7).contains(&probes), "{probes}");

    // What is said now counts, as before it was not there.
    engine.get_well();
    assert_eq!(add_as(&router, &json!({"url": engine.url(), "priority": 2})), id);
    wait_until("the worker to be ready", || state(&router, &id) == "ready");
    assert_eq!((listed(&router), &shown(&router, &id)["priority"]), (vec![engine.url()], &json!(2)));
    assert_eq!((router.post("/generate", BODY).status(), engine.requests()), (200, 1));
}

#[test]
fn a_worker_that_has_failed_can_be_removed() {
    let engine = Engine::unwell();
    let router = router(&["--worker-startup-timeout-secs", "1"]);
    let id = add(&router, &engine.url());
    wait_until("the worker to fail", || state(&router, &id) == "failed");
    remove(&router, &id);
    wait_until("it to be gone", || listed(&router).is_empty());
}

#[test]
fn nobody_waits_for_a_worker_that_is_not_probed() {
    // Well, but of another model than is asked for: a request that waited for news would wait for ever.
    let engines = [Engine::start(), Engine::start()];
    let ask = r#"{"model":"other","text":"hello"}"#.as_bytes();
    let of = |engine: &Engine, model: &str, is_probed: bool| json!({"url": engine.url(), "model_id": model, "disable_health_check": !is_probed});
    for (args, is_probed) in [(&["--disable-health-check"][..], true), (&[], false)] {
        let router = router(&[args, &["--request-timeout-secs", "60"]].concat());
        for (engine, model) in engines.iter().zip(["a", "b"]) {
            let id = add_as(&router, &of(engine, model, is_probed));
            wait_until("the worker to be ready", || state(&router, &id) == "ready");
        }
        router.post("/generate", ask).assert_refused(404, "model_not_found");
    }
}
