//! A worker that fails is left alone for a while; one that only refuses is not.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::worker::dead_url;
use crate::common::{Client, Latch, Router, Worker, wait_until};

const BODY: &[u8] = br#"{"text":"a prompt that is long enough to be remembered"}"#;
const ONCE: [&str; 3] = ["--disable-retries", "--policy", "round_robin"];

const CLOSED: f64 = 0.0;
const OPEN: f64 = 1.0;
const HALF_OPEN: f64 = 2.0;

fn start(workers: &[&Worker], args: &[&str]) -> Router {
    let urls: Vec<String> = workers.iter().map(|worker| worker.url()).collect();
    Router::start(&urls, args)
}

fn state(router: &Router, worker: &Worker) -> f64 {
    let series = format!("smg_worker_cb_state{{worker=\"{}\"}}", worker.url());
    router.metric(&series).unwrap_or_else(|| panic!("{series} is not shown"))
}

fn failures(router: &Router, worker: &Worker) -> Option<f64> {
    router.metric(&format!("smg_worker_cb_consecutive_failures{{worker=\"{}\"}}", worker.url()))
}

fn post(router: &Router) -> u16 {
    router.post("/generate", BODY).status()
}

/// Answers 500 while the flag is set; otherwise 200, when it has its turn.
fn sick(ill: &Arc<AtomicBool>, go: &Latch) -> Worker {
    let (ill, go) = (Arc::clone(ill), go.clone());
    Worker::start(move |conn, _| {
        if ill.load(Ordering::SeqCst) {
            conn.answer("500 Internal Server Error", "", b"{}");
        } else {
            go.wait();
            conn.answer("200 OK", "", b"{}");
        }
        true
    })
}

/// Answers like this so many times, and then well.
fn at_first(times: usize, status: &'static str, headers: &'static str) -> Worker {
    let asked = AtomicUsize::new(0);
    Worker::start(move |conn, _| {
        if asked.fetch_add(1, Ordering::SeqCst) < times {
            conn.answer(status, headers, b"{\"object\":\"error\"}");
        } else {
            conn.answer("200 OK", "", b"{}");
        }
        true
    })
}

// sgl-project/sglang#25811
#[test]
fn errors_of_clients_never_open_a_breaker() {
    for status in ["400", "401", "403", "404", "408", "413", "422"] {
        let worker = at_first(20, status, "");
        let router = start(&[&worker], &["--cb-failure-threshold", "3", "--retry-statuses", "500", "503"]);
        for _ in 0..20 {
            let answer = router.post("/generate", BODY);
            assert_eq!(answer.status().to_string(), status);
            assert_eq!(answer.text(), "{\"object\":\"error\"}");
        }
        assert_eq!(post(&router), 200);
        assert_eq!(state(&router, &worker), CLOSED, "{status}");
        assert_eq!(worker.count("POST"), 21, "{status}: none is tried again");
    }
}

// sgl-project/sglang#39464
#[test]
fn a_full_queue_never_opens_a_breaker() {
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        let worker = at_first(20, status, "Retry-After: 5\r\n");
        let args = ["--cb-failure-threshold", "3", "--retry-max-backoff-ms", "100"];
        let router = start(&[&worker], &args);
        for _ in 0..20 {
            let answer = router.post("/generate", BODY);
            assert_eq!(answer.status().to_string(), status[..3]);
            assert_eq!((answer.retry_after(), answer.text().as_str()), (Some(5), "{\"object\":\"error\"}"));
        }
        assert_eq!(post(&router), 200, "at once");
        assert_eq!(state(&router, &worker), CLOSED);
        assert_eq!(worker.count("POST"), 21);
    }
}

#[test]
fn failures_in_a_row_open_it_and_a_success_between_starts_anew() {
    for status in ["500", "501", "502", "504"] {
        let replies = Mutex::new(vec!["200", status, status, "200", status, status]);
        let worker = Worker::start(move |conn, _| {
            let status = replies.lock().expect("not poisoned").pop().unwrap_or("599");
            conn.answer(status, "", b"{}");
            true
        });
        let router = start(&[&worker], &[&ONCE[..], &["--cb-failure-threshold", "3"]].concat());
        for _ in 0..6 {
            assert_ne!(post(&router), 503);
        }
        assert_eq!(state(&router, &worker), CLOSED, "{status}: never three in a row");
        for _ in 0..3 {
            assert_eq!(post(&router), 599);
        }
        assert_eq!(state(&router, &worker), OPEN, "{status}");
    }
}

#[test]
fn connections_that_fail_open_it() {
    let args = ["--cb-failure-threshold", "3", "--disable-health-check"];
    let router = Router::start(&[dead_url()], &[&ONCE[..], &args].concat());
    for _ in 0..3 {
        router.post("/generate", BODY).assert_refused(502, "upstream_connect_failed");
    }
    router.post("/generate", BODY).assert_refused(503, "circuit_breakers_open");
}

#[test]
fn while_one_is_open_the_others_serve_without_trying_it() {
    let (go, ill) = (Latch::default(), Arc::new(AtomicBool::new(true)));
    go.open();
    let (bad, good) = (sick(&ill, &go), Worker::fixed("{}"));
    let router = start(&[&bad, &good], &[&ONCE[..], &["--cb-failure-threshold", "2"]].concat());
    let statuses: Vec<u16> = (0..20).map(|_| post(&router)).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 500).count(), 2, "{statuses:?}");
    assert_eq!((bad.count("POST"), good.count("POST")), (2, 18));
    assert_eq!((state(&router, &bad), state(&router, &good)), (OPEN, CLOSED));
    let ready = router.get("/readiness");
    assert_eq!((ready.status(), ready.json()["healthy_workers"].as_u64()), (200, Some(1)));
    assert_eq!(router.get("/workers").json()["workers"][0]["is_healthy"], true, "health is another fact");
}

#[test]
fn an_open_one_is_tried_by_so_many_at_a_time_and_closed_by_so_many_successes() {
    let (go, ill) = (Latch::default(), Arc::new(AtomicBool::new(true)));
    let worker = sick(&ill, &go);
    let args = ["--cb-failure-threshold", "2", "--cb-timeout-duration-secs", "1"];
    let half_open = ["--cb-half-open-permits", "2", "--cb-success-threshold", "2"];
    let router = start(&[&worker], &[&ONCE[..], &args, &half_open].concat());
    assert_eq!([post(&router), post(&router)], [500, 500]);
    assert_eq!(state(&router, &worker), OPEN);
    let refused = router.post("/generate", BODY);
    refused.assert_refused(503, "circuit_breakers_open");
    assert_eq!(refused.retry_after(), Some(1));
    let ready = router.get("/readiness");
    assert_eq!(ready.status(), 503);
    assert!(ready.text().contains("circuit breakers"), "it says why: {}", ready.text());
    assert_eq!(worker.count("POST"), 2, "an open one gets nothing");

    ill.store(false, Ordering::SeqCst);
    wait_until("the time to be over", || router.get("/readiness").status() == 200);
    assert_eq!(state(&router, &worker), HALF_OPEN);
    let mut trials: Vec<Client> = (0..2).map(|_| router.client()).collect();
    for trial in &mut trials {
        trial.send_post("/generate", "", BODY);
    }
    wait_until("both to be tried", || worker.count("POST") == 4);
    for _ in 0..3 {
        router.post("/generate", BODY).assert_refused(503, "circuit_breakers_open");
    }
    assert_eq!(worker.count("POST"), 4, "no more at a time");
    go.open();
    assert!(trials.iter_mut().all(|trial| trial.receive().status() == 200));
    wait_until("it to close", || state(&router, &worker) == CLOSED);
    assert_eq!(post(&router), 200);
}

#[test]
fn a_half_open_one_opens_again_at_the_first_failure() {
    let (go, ill) = (Latch::default(), Arc::new(AtomicBool::new(true)));
    let worker = sick(&ill, &go);
    let args = ["--cb-failure-threshold", "3", "--cb-timeout-duration-secs", "1"];
    let router = start(&[&worker], &[&ONCE[..], &args].concat());
    assert_eq!([post(&router), post(&router), post(&router)], [500; 3]);
    wait_until("the time to be over", || state(&router, &worker) == HALF_OPEN);
    assert_eq!(post(&router), 500);
    assert_eq!(state(&router, &worker), OPEN);
    router.post("/generate", BODY).assert_refused(503, "circuit_breakers_open");
}

/// A worker that says nothing, or nothing after a first chunk, until the client has gone; but answers bodies of `{}`.
fn silent(begun: bool, status: &'static str) -> Worker {
    Worker::start(move |conn, request| {
        if request.body == b"{}" {
            conn.answer(status, "", b"{}");
            return true;
        }
        if begun {
            conn.begin_stream();
            conn.chunk(b"data: 1\n\n");
        }
        let _ = conn.stream.read(&mut [0]);
        false
    })
}

fn come_and_go(router: &Router, begun: bool) {
    let mut client = router.client();
    client.send_post("/generate", "", BODY);
    if begun {
        client.reader.head().expect("a head");
    }
    wait_until("the request to be in flight", || router.loads() == [1]);
    drop(client);
    wait_until("the load to be released", || router.loads() == [0]);
}

#[test]
fn clients_that_leave_say_nothing_about_the_worker() {
    for begun in [false, true] {
        let worker = silent(begun, "500");
        let router = start(&[&worker], &[&ONCE[..], &["--cb-failure-threshold", "2"]].concat());
        assert_eq!(router.post("/generate", b"{}").status(), 500);
        for _ in 0..3 {
            come_and_go(&router, begun);
        }
        assert_eq!(failures(&router, &worker), Some(1.0), "neither one more nor none, begun: {begun}");
        for outcome in ["success", "failure"] {
            let series =
                format!("smg_worker_cb_outcomes_total{{worker=\"{}\",outcome=\"{outcome}\"}}", worker.url());
            let expected = if outcome == "failure" { 1.0 } else { 0.0 };
            assert_eq!(router.metric(&series), Some(expected), "{outcome}");
        }
    }
}

#[test]
fn a_client_that_leaves_gives_its_half_open_permit_back() {
    let replies = AtomicUsize::new(0);
    let worker = Worker::start(move |conn, request| {
        if request.body == b"{}" {
            let status = if replies.fetch_add(1, Ordering::SeqCst) == 0 { "500" } else { "200 OK" };
            conn.answer(status, "", b"{}");
            return true;
        }
        let _ = conn.stream.read(&mut [0]);
        false
    });
    let args =
        ["--cb-failure-threshold", "1", "--cb-timeout-duration-secs", "1", "--cb-success-threshold", "1"];
    let router = start(&[&worker], &[&ONCE[..], &args].concat());
    assert_eq!(router.post("/generate", b"{}").status(), 500);
    wait_until("the time to be over", || state(&router, &worker) == HALF_OPEN);
    come_and_go(&router, false);
    assert_eq!(state(&router, &worker), HALF_OPEN);
    assert_eq!(router.post("/generate", b"{}").status(), 200);
    wait_until("it to close", || state(&router, &worker) == CLOSED);
}

#[test]
fn a_stream_is_judged_at_its_end() {
    let go = Latch::default();
    let when = go.clone();
    let worker = Worker::start(move |conn, request| {
        if request.body == b"{}" {
            conn.answer("500", "", b"{}");
            return true;
        }
        conn.begin_stream();
        conn.chunk(b"data: 1\n\n");
        when.wait();
        let well = request.body == b"{\"well\":1}";
        if well {
            conn.end_stream();
        }
        well
    });
    let router = start(&[&worker], &[&ONCE[..], &["--cb-failure-threshold", "2"]].concat());
    let begin = |body: &[u8]| {
        let mut client = router.client();
        client.send_post("/generate", "", body);
        client.reader.head().expect("a head");
        assert_eq!(client.reader.chunk().expect("a chunk"), b"data: 1\n\n");
        client
    };
    assert_eq!(router.post("/generate", b"{}").status(), 500);
    let mut good = begin(b"{\"well\":1}");
    assert_eq!(failures(&router, &worker), Some(1.0), "its head is no success yet");
    go.pass(1);
    assert_eq!(good.reader.chunk().expect("the end"), b"");
    wait_until("the success to count", || failures(&router, &worker) == Some(0.0));

    assert_eq!(router.post("/generate", b"{}").status(), 500);
    let mut bad = begin(b"{\"well\":0}");
    assert_eq!(state(&router, &worker), CLOSED);
    go.pass(1);
    assert!(bad.reader.chunk().is_err(), "broken");
    wait_until("the failure to count", || state(&router, &worker) == OPEN);
}

// AMD-AGI/Infera#82
#[test]
fn a_failing_owner_of_a_prefix_is_not_asked_for_ever() {
    let owner = Arc::new(Mutex::new(None));
    let member = |place: usize| {
        let owner = Arc::clone(&owner);
        Worker::start(move |conn, _| {
            let mut owner = owner.lock().expect("not poisoned");
            let status = if *owner == Some(place) { "500 Internal Server Error" } else { "200 OK" };
            // Whoever comes first will own the prefix, and fails from then on.
            owner.get_or_insert(place);
            conn.answer(status, "", b"{}");
            true
        })
    };
    let workers = [member(0), member(1)];
    let args = ["--cb-failure-threshold", "5", "--retry-initial-backoff-ms", "1"];
    let router = start(&[&workers[0], &workers[1]], &args);
    for _ in 0..101 {
        assert_eq!(post(&router), 200);
    }
    let bad = owner.lock().expect("not poisoned").expect("an owner");
    let failed = workers[bad].count("POST") - 1;
    assert!((1..=5).contains(&failed), "{failed}");
}

#[test]
fn when_all_are_open_the_least_bad_one_is_tried_if_the_operator_wants() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let member = |place: usize| {
        let asked = Arc::clone(&asked);
        Worker::start(move |conn, _| {
            asked.lock().expect("not poisoned").push(place);
            conn.answer("500 Internal Server Error", "", b"{}");
            true
        })
    };
    let (one, other) = (member(0), member(1));
    let args = ["--cb-failure-threshold", "1", "--cb-try-least-bad"];
    let router = start(&[&one, &other], &[&ONCE[..], &args].concat());
    for _ in 0..5 {
        assert_eq!(post(&router), 500);
    }
    assert_eq!([state(&router, &one), state(&router, &other)], [OPEN; 2]);
    let asked = asked.lock().expect("not poisoned").clone();
    assert_eq!(asked, [0, 1, 0, 0, 0], "the one that is next to be half-open");
}

#[test]
fn without_breakers_every_request_is_tried() {
    let worker = Worker::answering("500 Internal Server Error", "", "{}");
    let args = ["--cb-failure-threshold", "1", "--disable-circuit-breaker"];
    let router = start(&[&worker], &[&ONCE[..], &args].concat());
    for _ in 0..20 {
        assert_eq!(post(&router), 500);
    }
    assert_eq!(worker.count("POST"), 20);
    assert_eq!(state(&router, &worker), CLOSED);
}
