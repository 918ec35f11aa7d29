//! Workers that are not there, and how the router says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::worker::dead_url;
use crate::common::{Message, Router, Worker, wait_until};

const PROMPT: &[u8] = br#"{"text":"a prompt that is long enough to be remembered","sampling_params":{}}"#;

/// The shape that every refusal of the router has.
fn assert_refusal(answer: &Message, status: u16, code: &str, worker: &str) {
    assert_eq!(answer.status(), status);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("x-router-error-code"), Some(code));
    assert_eq!(answer.header("x-smg-error-code"), Some(code));
    let error = &answer.json()["error"];
    assert_eq!(error["code"], code);
    assert!(error["message"].is_string() && error["type"].is_string());
    let address = worker.trim_start_matches("http://");
    assert!(!answer.text().contains(address), "a client learns no worker's address");
}

#[test]
fn a_worker_that_is_not_there_gives_one_clear_502() {
    let dead = dead_url();
    for policy in ["round_robin", "cache_aware"] {
        let router =
            Router::start(std::slice::from_ref(&dead), &["--policy", policy, "--disable-health-check"]);
        assert_refusal(&router.post("/generate", PROMPT), 502, "upstream_connect_failed", &dead);
        assert_eq!(router.loads(), [0]);
    }
}

#[test]
fn a_worker_that_hangs_up_before_its_answer_gives_a_502() {
    let lost = ("", "--disable-retries", "upstream_connection_lost");
    let garbled = ("SSH-2.0-x\r\n", "--retry-max-retries=3", "upstream_invalid_answer");
    let cut = ("HTTP/1.1 200 OK\r\nConte", "--retry-max-retries=3", "upstream_connection_lost");
    for (said, flag, code) in [lost, garbled, cut] {
        let worker = Worker::start(move |conn, _| {
            conn.write(said);
            false
        });
        let router = Router::start(&[worker.url()], &[flag]);
        assert_refusal(&router.post("/generate", PROMPT), 502, code, &worker.url());
        assert_eq!(worker.seen().len(), 1, "what was sent, or answered in part, is not sent again");
        assert_eq!(router.loads(), [0]);
    }
}

#[test]
fn what_a_worker_never_answered_is_not_taken_for_cached() {
    let dead = dead_url();
    let args = ["--policy", "cache_aware", "--disable-health-check"];
    let router = Router::start(std::slice::from_ref(&dead), &args);
    assert_eq!(router.post("/generate", PROMPT).status(), 502);
    wait_until("nothing to be believed", || router.metric("smg_router_index_nodes") == Some(0.0));

    let live = Worker::fixed("{}");
    let router = Router::start(&[live.url()], &["--policy", "cache_aware"]);
    assert_eq!(router.post("/generate", PROMPT).status(), 200);
    assert_ne!(router.metric("smg_router_index_nodes"), Some(0.0), "and what was answered is");
}

#[test]
fn without_workers_the_router_runs_and_says_so() {
    let router = Router::start(&[], &[]);
    let refused = router.post("/v1/chat/completions", b"{}");
    assert_refusal(&refused, 503, "no_workers", "http://x");
    assert!(refused.text().contains("--worker-urls"), "the remedy is named");
    assert!(refused.retry_after().is_some_and(|secs| secs > 0), "a router with workers may come");
    assert_eq!(router.get("/health").status(), 200);
    assert_eq!(router.get("/readiness").status(), 503);
    assert_eq!(router.get("/workers").json()["total"], 0);
}

#[test]
fn when_no_worker_is_healthy_the_client_learns_when_to_come_back() {
    let worker = flapping(&Arc::new(AtomicBool::new(false)));
    let args = ["--health-check-interval-secs", "1", "--health-failure-threshold", "1"];
    let router = Router::start(&[worker.url()], &args);
    wait_until("the probe to fail", || !first_is_healthy(&router));
    let refused = router.post("/generate", PROMPT);
    assert_refusal(&refused, 503, "no_available_workers", &worker.url());
    assert_eq!(refused.header("retry-after"), Some("2"), "two good probes, a second apart");
}

#[test]
fn a_target_that_is_not_there_is_named_as_the_reason() {
    let worker = Worker::fixed("{}");
    let router = Router::start(&[worker.url()], &["--policy", "consistent_hashing"]);
    let ask = |target: &str| {
        router.client().post("/generate", &format!("X-SMG-Target-Worker: {target}\r\n"), PROMPT)
    };
    assert_eq!(ask("0").status(), 200);
    let refused = ask("7");
    assert_refusal(&refused, 503, "target_worker_unavailable", &worker.url());
    assert!(refused.text().contains("X-SMG-Target-Worker"));
    assert!(refused.retry_after().is_some_and(|secs| secs > 0), "it may come back");
}

#[test]
fn error_answers_of_a_worker_pass_unchanged() {
    let worker = Worker::start(|conn, _| {
        conn.answer("503 Service Unavailable", "Retry-After: 3\r\n", b"{\"object\":\"error\"}");
        true
    });
    let router = Router::start(&[worker.url()], &[]);
    let answer = router.post("/generate", PROMPT);
    assert_eq!((answer.status(), answer.text().as_str()), (503, "{\"object\":\"error\"}"));
    assert_eq!(answer.header("retry-after"), Some("3"));
    assert_eq!(answer.header("x-router-error-code"), None, "it is the worker's answer, not ours");
    wait_until("the load to be released", || router.loads() == [0]);
}

/// A worker that answers every request, and its health probes by what `well` says.
fn flapping(well: &Arc<AtomicBool>) -> Worker {
    let state = Arc::clone(well);
    Worker::probed(move |conn, request| {
        let sick = request.first.starts_with("GET /health") && !state.load(Ordering::SeqCst);
        conn.answer(if sick { "503 Service Unavailable" } else { "200 OK" }, "", b"{}");
        true
    })
}

fn first_is_healthy(router: &Router) -> bool {
    let list = router.get("/workers").json();
    list["workers"][0]["is_healthy"].as_bool().expect("a flag")
}

#[test]
fn an_unhealthy_worker_gets_nothing_until_it_is_well_again() {
    let well = Arc::new(AtomicBool::new(true));
    let flapping = flapping(&well);
    let other = Worker::fixed("{}");
    let args =
        ["--policy", "round_robin", "--health-check-interval-secs", "1", "--health-failure-threshold", "2"];
    let router = Router::start(&[flapping.url(), other.url()], &args);
    let healthy = || first_is_healthy(&router);
    assert!(healthy(), "it was well at first");
    well.store(false, Ordering::SeqCst);
    wait_until("the probes to fail", || !healthy());
    let served = || flapping.count("POST");
    for _ in 0..6 {
        assert_eq!(router.post("/generate", PROMPT).status(), 200);
    }
    assert_eq!(served(), 0);
    assert_eq!(router.get("/readiness").json()["healthy_workers"], 1);
    well.store(true, Ordering::SeqCst);
    wait_until("the probes to succeed", healthy);
    for _ in 0..6 {
        assert_eq!(router.post("/generate", PROMPT).status(), 200);
    }
    assert_eq!(served(), 3);
}

#[test]
fn a_worker_that_was_down_starts_without_a_prefix_and_earns_new_ones() {
    let well = Arc::new(AtomicBool::new(true));
    let worker = flapping(&well);
    let args = ["--decision-headers", "--health-check-interval-secs", "1", "--health-failure-threshold", "1"];
    let router = Router::start(
        &[worker.url()],
        &[&args[..], &["--health-success-threshold", "1", "--policy", "cache_aware"]].concat(),
    );
    let reason = || {
        let answer = router.post("/generate", PROMPT);
        assert_eq!(answer.status(), 200);
        answer.header("x-router-reason").expect("a reason").to_owned()
    };
    assert_ne!(reason(), "cache_hit");
    assert_eq!(reason(), "cache_hit");
    well.store(false, Ordering::SeqCst);
    wait_until("the probe to fail", || !first_is_healthy(&router));
    well.store(true, Ordering::SeqCst);
    wait_until("the probe to succeed", || first_is_healthy(&router));
    assert_ne!(reason(), "cache_hit", "its cache may be lost");
    assert_eq!(reason(), "cache_hit", "and fills again");
}

/// Well below the default probe interval of a minute: what happens within this time was not left to that.
const SOON: Duration = Duration::from_secs(30);

#[test]
fn workers_that_are_dead_at_the_start_are_found_out_and_welcomed_when_they_come() {
    let dead = dead_url();
    let router = Router::start(std::slice::from_ref(&dead), &[]);
    let begun = Instant::now();
    wait_until("the dead worker to be noticed", || router.get("/readiness").status() == 503);
    assert!(begun.elapsed() < SOON, "after {:?}", begun.elapsed());
    assert_refusal(&router.post("/generate", PROMPT), 503, "no_available_workers", &dead);

    let address = dead.trim_start_matches("http://");
    let _worker = Worker::start_at(address, |conn, _| {
        conn.answer("200 OK", "", b"{}");
        true
    });
    let begun = Instant::now();
    wait_until("the worker to be noticed", || router.get("/readiness").status() == 200);
    assert!(begun.elapsed() < SOON, "after {:?}", begun.elapsed());
    assert_eq!(router.post("/generate", PROMPT).status(), 200);
}

#[test]
fn refused_connections_take_a_worker_out_without_waiting_for_the_next_probe() {
    let dying = Worker::fixed("{}");
    let other = Worker::fixed("{}");
    let router =
        Router::start(&[dying.url(), other.url()], &["--policy", "round_robin", "--disable-retries"]);
    dying.kill();

    let begun = Instant::now();
    let mut refused = 0;
    wait_until("the worker to be taken out", || {
        refused += usize::from(router.post("/generate", PROMPT).status() == 502);
        !first_is_healthy(&router)
    });
    assert!(begun.elapsed() < SOON, "after {:?}", begun.elapsed());
    assert!(refused > 0, "it was believed in before");
    for _ in 0..4 {
        assert_eq!(router.post("/generate", PROMPT).status(), 200);
    }
}

#[test]
fn an_answer_that_the_router_did_not_ask_for_is_a_502() {
    for answer in [
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ] {
        let worker = Worker::start(move |conn, _| {
            conn.write(answer);
            true
        });
        let router = Router::start(&[worker.url()], &["--policy", "cache_aware"]);
        let mut client = router.client();
        let refused = client.post("/generate", "Connection: Upgrade\r\nUpgrade: websocket\r\n", PROMPT);
        assert_refusal(&refused, 502, "upstream_invalid_answer", &worker.url());
        assert_eq!(router.loads(), [0]);
        assert_eq!(router.metric("smg_router_index_nodes"), Some(0.0));
    }
}

#[test]
fn an_error_that_might_have_been_tried_again_tells_how_often_it_was_tried() {
    for (status, attempts) in
        [("503 Busy", Some("1")), ("429 Busy", Some("1")), ("400 Bad", None), ("200 OK", None)]
    {
        let worker = Worker::answering(status, "", "{}");
        let router = Router::start(&[worker.url()], &["--disable-retries"]);
        let answer = router.post("/generate", PROMPT);
        assert_eq!(answer.header("x-router-attempts"), attempts, "{status}");
    }
}
