//! Legs that fail: who is blamed, what becomes of the other leg, and what the client is told.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::json;

use super::legs::{
    Holding, PREFILLED, QUICK, breaker, called_off, decode, decode_after, errors, prefill, rooms, router,
    wait_for,
};
use super::{BODY, ONCE, STREAM, TOKEN, flags, is_idle, many, sent};
use crate::common::worker::dead_url;
use crate::common::{Latch, Router, Worker, wait_until};

// vllm-project/aibrix#2289, sgl-project/sglang#9726
#[test]
fn case_18_a_prefill_worker_that_fails_at_once_ends_the_wait_for_decode() {
    for begin in [Holding::silent, Holding::with_head] {
        let (failing, holding) =
            (Worker::answering("500 Internal Server Error", "X-Reason: mine\r\n", "no"), begin());
        let router = router(&[&failing], &[&holding.worker], &flags(&ONCE));
        let answer = router.post("/generate", STREAM);
        assert_eq!((answer.status(), answer.text().as_str()), (500, "no"));
        assert_eq!(answer.header("x-reason"), Some("mine"));
        assert_eq!(answer.header("x-smg-error-code"), Some("prefill_internal_error"));
        wait_until("decode's connection to be closed", || holding.closed() == 1);
        wait_until("the leases to end", || is_idle(&router));
        assert_eq!((breaker(&router, &failing), breaker(&router, &holding.worker)), (1.0, 0.0));
        assert_eq!((errors(&router, &failing), errors(&router, &holding.worker)), (1.0, 0.0));
    }
}

#[test]
fn a_decode_worker_that_fails_ends_the_prefill_leg_and_is_alone_to_blame() {
    let (holding, failing) = (Holding::silent(), Worker::answering("500 Internal Server Error", "", "no"));
    let router = router(&[&holding.worker], &[&failing], &flags(&ONCE));
    let answer = router.post("/generate", STREAM);
    assert_eq!((answer.status(), answer.text().as_str()), (500, "no"));
    assert_eq!(answer.header("x-router-error-code"), Some("decode_internal_error"));
    wait_until("prefill's connection to be closed", || holding.closed() == 1);
    wait_until("the leases to end", || is_idle(&router));
    assert_eq!((breaker(&router, &holding.worker), breaker(&router, &failing)), (0.0, 1.0));
    assert_eq!((errors(&router, &holding.worker), errors(&router, &failing)), (0.0, 1.0));
}

#[test]
fn codes_of_the_routers_own_errors_name_the_leg() {
    let lost = || Worker::start(|_, _| false);
    let headless = || {
        Worker::start(|conn, _| {
            conn.begin_stream();
            false
        })
    };
    for body in [BODY, STREAM] {
        for (case, failing, code) in
            [("lost", lost(), "connection_lost"), ("after a head", headless(), "connection_lost")]
        {
            let holding = Holding::silent();
            let prefill_fails = router(&[&failing], &[&holding.worker], &flags(&ONCE));
            prefill_fails.post("/generate", body).assert_refused(502, &format!("prefill_{code}"));
            assert_eq!(breaker(&prefill_fails, &holding.worker), 0.0, "{case}");
            let decode_fails = router(&[&holding.worker], &[&failing], &flags(&ONCE));
            decode_fails.post("/generate", body).assert_refused(502, &format!("decode_{code}"));
            assert_eq!(breaker(&decode_fails, &holding.worker), 0.0, "{case}");
            wait_until("both to be closed", || holding.closed() == 2);
        }
    }
    let (prefill, decode) = (prefill(), decode());
    let dead = dead_url();
    let none = ["--disable-health-check", "--disable-retries"];
    let line = |prefill: &str, decode: &str| {
        let pair = ["--pd-disaggregation", "--prefill", prefill, "--decode", decode];
        Router::start(&[], &flags(&[&pair, &none[..]].concat()))
    };
    line(&dead, &decode.url()).post("/generate", BODY).assert_refused(502, "prefill_connect_failed");
    line(&prefill.url(), &dead).post("/generate", BODY).assert_refused(502, "decode_connect_failed");
    assert_eq!(
        (prefill.count("POST"), decode.count("POST")),
        (0, 0),
        "a pair is reached before either is told"
    );
}

#[test]
fn statuses_of_either_leg_pass_and_429_keeps_its_retry_after() {
    for (status, suffix) in [
        ("400 Bad Request", "bad_request"),
        ("404 Not Found", "not_found"),
        ("422 Unprocessable Entity", "error"),
        ("429 Too Many Requests", "too_many_requests"),
        ("503 Service Unavailable", "unavailable"),
    ] {
        for body in [BODY, STREAM] {
            let refusing =
                Worker::answering(status, "Retry-After: 7\r\n", r#"{"object":"error","message":"no"}"#);
            let holding = Holding::silent();
            let ways = [("prefill", [&refusing, &holding.worker]), ("decode", [&holding.worker, &refusing])];
            for (leg, [prefill, decode]) in ways {
                let router = router(&[prefill], &[decode], &flags(&ONCE));
                let answer = router.post("/generate", body);
                assert!(
                    answer.first.ends_with(status) || answer.first.contains(&status[..3]),
                    "{}",
                    answer.first
                );
                assert_eq!(answer.json(), json!({"object": "error", "message": "no"}), "{leg} {status}");
                assert_eq!(answer.header("retry-after"), Some("7"), "{leg} {status}");
                let code = format!("{leg}_{suffix}");
                assert_eq!(answer.header("x-router-error-code"), Some(code.as_str()));
                assert_eq!(
                    (breaker(&router, prefill), breaker(&router, decode)),
                    (0.0, 0.0),
                    "{leg} {status}"
                );
                wait_until("the leases to end", || is_idle(&router));
            }
            wait_until("the other leg to be closed", || holding.closed() == 2);
        }
    }
}

#[test]
fn a_busy_leg_is_tried_elsewhere_with_the_other_leg_as_good_as_before() {
    for leg in ["prefill", "decode"] {
        let busy = Worker::answering("429 Too Many Requests", "Retry-After: 1\r\n", "");
        let good = Arc::new(prefill());
        let (source, other) = (decode_after(&good), prefill());
        let router = match leg {
            "prefill" => router(&[&busy, &good], &[&source], &flags(&[])),
            _ => router(&[&other], &[&busy, &good], &flags(&[])),
        };
        for _ in 0..4 {
            assert_eq!(router.post("/generate", BODY).status(), 200, "{leg}");
        }
        wait_for(4, &[&good]);
        assert!(busy.count("POST") > 0, "{leg}");
        wait_until("the leases to end", || is_idle(&router));
    }
}

#[test]
fn another_try_is_on_another_pair_with_another_room() {
    let failing = Worker::answering("500 Internal Server Error", "", "");
    let good = Arc::new(prefill());
    let decode = decode_after(&good);
    let router = router(&[&failing, &good], &[&decode], &flags(&["--disable-circuit-breaker"]));
    for _ in 0..6 {
        let answer = router.post("/generate", BODY);
        assert_eq!(answer.status(), 200);
    }
    wait_for(6, &[&good]);
    let (first, second, all) = (rooms(&failing), rooms(&good), rooms(&decode));
    assert!(!first.is_empty());
    let different: HashSet<_> = first.iter().chain(&second).collect();
    assert_eq!(different.len(), first.len() + second.len());
    assert!(second.iter().all(|room| all.contains(room)), "both legs of a try have its room");
}

#[test]
fn a_prefill_worker_that_dies_with_many_in_flight_is_replaced() {
    const CLIENTS: usize = 100;
    let (dying, go) = (Holding::silent(), Latch::default());
    let good = prefill();
    let when = go.clone();
    // The first try waits for the prefill worker, the second one has what it needs.
    let decode = Worker::start(move |conn, _| {
        conn.begin_stream();
        when.wait();
        let is_sent = conn.chunk(TOKEN);
        conn.end_stream();
        is_sent
    });
    let router =
        router(&[&dying.worker], &[&decode], &[&QUICK[..], &["--retry-budget-percent", "100"]].concat());
    let mut clients = many(&router, CLIENTS);
    wait_until("all to be in flight", || dying.worker.count("POST") == CLIENTS);
    let added = json!({"url": good.url(), "worker_type": "prefill"}).to_string();
    assert!(router.post("/workers", added.as_bytes()).status() < 300);
    wait_until("the other one to be there", || router.loads().len() == 3 && is_ready(&router, &good));
    dying.worker.kill();
    wait_until("all to be tried anew", || good.count("POST") == CLIENTS);
    go.open();
    for client in &mut clients {
        let answer = client.receive();
        assert_eq!(
            (answer.status(), answer.header("x-router-attempts")),
            (200, Some("2")),
            "{}",
            answer.text()
        );
    }
    wait_until("the leases to end", || is_idle(&router));
    assert_eq!(breaker(&router, &decode), 0.0, "decode has done nothing wrong");
    assert_eq!(errors(&router, &decode), 0.0);
}

fn is_ready(router: &Router, worker: &Worker) -> bool {
    let list = router.get("/workers").json();
    let workers = list["workers"].as_array().expect("a list");
    workers.iter().any(|row| row["url"] == worker.url().as_str() && row["is_healthy"] == true)
}

#[test]
fn a_leg_that_dies_with_many_in_flight_is_told_of_where_nobody_else_is_there() {
    const CLIENTS: usize = 100;
    for leg in ["prefill", "decode"] {
        let (dying, other) = (Holding::with_head(), Holding::with_head());
        let router = match leg {
            "prefill" => router(&[&dying.worker], &[&other.worker], &flags(&["--disable-retries"])),
            _ => router(&[&other.worker], &[&dying.worker], &flags(&["--disable-retries"])),
        };
        let mut clients = many(&router, CLIENTS);
        wait_until("all to be in flight", || {
            dying.worker.count("POST") == CLIENTS && other.worker.count("POST") == CLIENTS
        });
        dying.worker.kill();
        for client in &mut clients {
            client.receive().assert_refused(502, &format!("{leg}_connection_lost"));
        }
        wait_until("the leases to end", || is_idle(&router));
        wait_until("the other leg to be closed", || other.closed() == CLIENTS);
        assert_eq!((breaker(&router, &other.worker), errors(&router, &other.worker)), (0.0, 0.0), "{leg}");
        assert!(errors(&router, &dying.worker) >= CLIENTS as f64, "{leg}");
    }
}

// A connection that is there goes back to the pool if the other one cannot be had.
#[test]
fn a_pair_that_cannot_be_reached_costs_the_other_worker_no_connection() {
    for leg in ["prefill", "decode"] {
        let dying = prefill();
        // Its connections are those of requests alone: questions take as many as there are at a time.
        let other = Worker::answering_requests(|conn, _| {
            conn.answer("200 OK", "", PREFILLED.as_bytes());
            true
        });
        let args = flags(&["--disable-health-check", "--disable-retries", "--threads", "1"]);
        let router = match leg {
            "prefill" => router(&[&dying], &[&other], &args),
            _ => router(&[&other], &[&dying], &args),
        };
        other.wait_until_asked();
        assert_eq!(router.post("/generate", BODY).status(), 200);
        wait_until("both legs to be over", || other.count("POST") == 1 && is_idle(&router));
        dying.kill();
        let before = other.connections();
        // The first one may find its idle connection closed when it is too late to try another one.
        for _ in 0..4 {
            assert!([502, 504].contains(&router.post("/generate", BODY).status()));
        }
        assert!(other.connections() <= before + 1, "{leg}: {before}, then {}", other.connections());
    }
}

#[test]
fn a_decode_worker_that_dies_after_its_head_and_before_a_byte_is_replaced() {
    let dying = Worker::start(|conn, _| {
        conn.begin_stream();
        false
    });
    let (prefill, good) = (prefill(), decode());
    let router = router(&[&prefill], &[&dying, &good], &flags(&["--disable-circuit-breaker"]));
    for _ in 0..4 {
        assert_eq!(router.post("/generate", STREAM).status(), 200);
    }
    assert!(dying.count("POST") > 0);
    assert_eq!(breaker_errors(&router, [&prefill, &good]), 0.0);
}

fn breaker_errors<const N: usize>(router: &Router, workers: [&Worker; N]) -> f64 {
    workers.iter().map(|worker| errors(router, worker)).sum()
}

#[test]
fn a_decode_stream_that_breaks_off_is_broken_off_and_the_prefill_leg_is_ended() {
    let prefill = Holding::silent();
    let decode = Worker::start(|conn, _| {
        conn.begin_stream();
        conn.chunk(TOKEN);
        false
    });
    let router = router(&[&prefill.worker], &[&decode], &flags(&["--cb-failure-threshold", "1"]));
    let mut client = sent(&router, br#"{"text":"hello","stream":true,"rid":"mine-1"}"#);
    client.reader.head().expect("an answer").expect("a head");
    assert_eq!(client.reader.chunk().expect("a chunk"), TOKEN);
    assert!(client.reader.chunk().is_err(), "never a clean end");
    wait_until("the prefill leg to be closed", || prefill.closed() == 1);
    wait_until("it to be called off", || called_off(&prefill.worker) == ["mine-1"]);
    wait_until("the leases to end", || is_idle(&router));
    assert_eq!((breaker(&router, &prefill.worker), breaker(&router, &decode)), (0.0, 1.0));
}

#[test]
fn the_other_engine_is_told_to_abort_by_the_names_that_the_client_gave() {
    for (rid, expected) in [
        (r#","rid":"a-long-name""#, &["a-long-name"][..]),
        (r#","rid":["one","two"]"#, &["one", "two"]),
        (r#","rid":"""#, &[]),
        ("", &[]),
    ] {
        let body = format!(r#"{{"text":"hello"{rid}}}"#);
        for leg in ["prefill", "decode"] {
            let (failing, holding) =
                (Worker::answering("500 Internal Server Error", "", ""), Holding::silent());
            let router = match leg {
                "prefill" => router(&[&failing], &[&holding.worker], &flags(&["--disable-retries"])),
                _ => router(&[&holding.worker], &[&failing], &flags(&["--disable-retries"])),
            };
            assert_eq!(router.post("/generate", body.as_bytes()).status(), 500);
            wait_until("the other leg to be closed", || holding.closed() == 1);
            wait_until("it to be called off", || called_off(&holding.worker) == expected);
            assert!(called_off(&failing).is_empty(), "{leg}: who has failed knows it");
        }
    }
}

#[test]
fn a_refusal_of_prefill_that_breaks_off_is_charged_to_prefill() {
    let failing = Worker::start(|conn, _| {
        conn.write("HTTP/1.1 400 Bad Request\r\nContent-Length: 10\r\n\r\nno");
        false
    });
    let holding = Holding::silent();
    let router = router(&[&failing], &[&holding.worker], &flags(&[]));
    let mut client = sent(&router, STREAM);
    assert_eq!(client.reader.head().expect("an answer").expect("a head").status(), 400);
    wait_until("it to be charged", || errors(&router, &failing) == 1.0);
    assert_eq!(errors(&router, &holding.worker), 0.0);
    wait_until("the leases to end", || is_idle(&router));
}
