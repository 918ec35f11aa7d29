//! Connections that are lost, and workers with them: what is sent again, and what is not.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{BODY, QUICK, sent};
use crate::common::worker::dead_url;
use crate::common::{Client, Latch, Router, Worker, wait_until};

const STREAM: &[u8] = br#"{"text":"hello","stream":true}"#;

// radixark/miles#1334
#[test]
fn what_a_worker_may_have_begun_is_repeated_only_if_that_is_allowed() {
    for (args, processed) in [
        (&["--retry-on-reset", "false"][..], 1),
        (&["--disable-retries"], 1),
        (&["--retry-max-retries", "3"], 3),
    ] {
        let (count, active) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (seen, now) = (Arc::clone(&count), Arc::clone(&active));
        let worker = Worker::answering_requests(move |_, _| {
            seen.fetch_add(1, Ordering::SeqCst);
            assert_eq!(now.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
            std::thread::sleep(Duration::from_millis(20));
            now.fetch_sub(1, Ordering::SeqCst);
            false
        });
        let router =
            Router::start(&[worker.url()], &[&QUICK[..], &["--disable-health-check"], args].concat());
        router.post("/generate", BODY).assert_refused(502, "upstream_connection_lost");
        assert_eq!(count.load(Ordering::SeqCst), processed, "{args:?}");
        wait_until("the load to be released", || router.loads() == [0]);
    }
}

// radixark/miles#1334: the old connection is closed before the new try begins.
#[test]
fn two_tries_never_overlap() {
    let first = Arc::new(Worker::answering_requests(|conn, _| {
        conn.write("HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n");
        conn.chunk(b"I go on");
        let read = conn.stream.read(&mut [0]);
        assert!(matches!(read, Ok(0) | Err(_)), "the router sent something");
        false
    }));
    let still_open = Arc::new(AtomicUsize::new(usize::MAX));
    let (one, found) = (Arc::clone(&first), Arc::clone(&still_open));
    let second = Worker::answering_requests(move |conn, _| {
        found.store(one.open_at_peer(), Ordering::SeqCst);
        conn.answer("200 OK", "", b"{}");
        true
    });
    let router =
        Router::start(&[first.url(), second.url()], &[&QUICK[..], &["--disable-health-check"]].concat());
    first.wait_until_asked();
    assert_eq!(router.post("/generate", BODY).status(), 200);
    assert_eq!(first.count("POST"), 1);
    assert_eq!(still_open.load(Ordering::SeqCst), 0);
}

/// A worker that closes each connection on its second request, unread, as one does that had just closed it for having
/// idled.
fn forgetful() -> Worker {
    let known = Mutex::new(Vec::<SocketAddr>::new());
    Worker::start(move |conn, _| {
        let peer = conn.stream.peer_addr().expect("an address");
        let mut known = known.lock().expect("not poisoned");
        if known.contains(&peer) {
            return false;
        }
        known.push(peer);
        conn.answer("200 OK", "", b"{}");
        true
    })
}

// hyperium/hyper#2136
#[test]
fn a_reused_connection_that_turns_out_to_be_closed_costs_nothing() {
    let worker = forgetful();
    let args = ["--retry-budget-percent", "0", "--retry-budget-min", "0"];
    let router =
        Router::start(&[worker.url()], &[&QUICK, &args[..], &["--cb-failure-threshold", "1"]].concat());
    let mut client = router.client();
    let mut second_tries = 0;
    for _ in 0..10 {
        let answer = client.post("/generate", "", BODY);
        assert_eq!(answer.status(), 200);
        second_tries += usize::from(answer.header("x-router-attempts").is_some());
    }
    assert!(second_tries > 0, "connections are reused");
    assert_eq!(router.metric("smg_worker_cb_state"), Some(0.0), "it is no fault of the worker's");
}

// hyperium/hyper#3553: requests that race the close of an idle connection.
#[test]
fn no_request_is_lost_to_a_worker_that_closes_idle_connections() {
    let worker = Worker::start(|conn, _| {
        conn.answer("200 OK", "", b"{}");
        conn.stream.set_read_timeout(Some(Duration::from_millis(4))).expect("an option");
        true
    });
    let router = Router::start(&[worker.url()], &QUICK);
    let mut client = router.client();
    for round in 0..300 {
        assert_eq!(client.post("/generate", "", BODY).status(), 200, "round {round}");
        std::thread::sleep(Duration::from_micros(3000 + round % 20 * 100));
    }
    assert!(worker.connections() > 20, "some idled too long");
    assert_eq!(router.metric("smg_worker_cb_consecutive_failures"), Some(0.0));
}

#[test]
fn failed_connects_are_tried_elsewhere_at_once_and_do_not_draw_on_the_budget() {
    let live = Worker::fixed("{}");
    let args = [
        "--policy",
        "round_robin",
        "--disable-health-check",
        "--disable-circuit-breaker",
        "--retry-initial-backoff-ms",
        "30000",
        "--retry-budget-percent",
        "0",
        "--retry-budget-min",
        "0",
    ];
    let router = Router::start(&[dead_url(), live.url()], &args);
    let begun = Instant::now();
    let answers: Vec<_> = (0..20).map(|_| router.post("/generate", BODY)).collect();
    assert!(answers.iter().all(|answer| answer.status() == 200));
    let again = answers.iter().filter(|answer| answer.header("x-router-attempts") == Some("2")).count();
    assert!(again >= 6, "the dead one had its turns: {again}");
    assert!(begun.elapsed() < Duration::from_secs(20), "nobody waited");
}

#[test]
fn nothing_is_tried_again_once_the_client_has_had_a_byte() {
    let broken = || {
        Worker::answering_requests(|conn, _| {
            conn.begin_stream();
            conn.chunk(b"data: 1\n\n");
            false
        })
    };
    let (one, other) = (broken(), broken());
    let router = Router::start(&[one.url(), other.url()], &QUICK);
    let mut client = router.client();
    client.send_post("/generate", "", STREAM);
    assert_eq!(client.reader.head().expect("a head").expect("a head").header("x-router-attempts"), None);
    assert_eq!(client.reader.chunk().expect("a chunk"), b"data: 1\n\n");
    assert!(client.reader.chunk().is_err(), "neither another chunk nor a clean end");
    wait_until("the loads to be released", || router.loads() == [0, 0]);
    assert_eq!(one.count("POST") + other.count("POST"), 1);
}

#[test]
fn a_killed_worker_costs_only_the_streams_that_had_begun() {
    const PLAIN: usize = 100;
    let go = Latch::default();
    let workers: Vec<Worker> = (0..4).map(|_| held(&go)).collect();
    let urls: Vec<String> = workers.iter().map(Worker::url).collect();
    let router = Router::start(&urls, &QUICK);
    let mut begun: Vec<Client> = Vec::new();
    for _ in 0..4 {
        let mut client = sent(&router, STREAM);
        client.reader.head().expect("a head");
        assert_eq!(client.reader.chunk().expect("a chunk"), b"data: 1\n\n");
        begun.push(client);
    }
    let plain: Vec<Client> = (0..PLAIN).map(|_| sent(&router, BODY)).collect();
    let in_flight = || workers.iter().map(|worker| worker.count("POST")).collect::<Vec<_>>();
    wait_until("all to be in flight", || in_flight() == [26; 4]);

    workers[2].kill();
    wait_until("the survivors to have all", || in_flight().iter().sum::<usize>() == 104 + 25);
    assert_eq!(in_flight()[2], 26);
    go.open();
    for (number, mut client) in plain.into_iter().enumerate() {
        assert_eq!(client.receive().status(), 200, "request {number}");
    }
    for (place, mut client) in begun.into_iter().enumerate() {
        let end = client.reader.chunk();
        assert_eq!(end.is_ok(), place != 2, "the stream of worker {place}: {end:?}");
    }
    wait_until("the loads to be released", || router.loads() == [0; 4]);
}

/// A worker that begins streams, and ends what it was asked for when it may.
fn held(go: &Latch) -> Worker {
    let go = go.clone();
    Worker::start(move |conn, request| {
        let stream = request.body == STREAM;
        if stream {
            conn.begin_stream();
            conn.chunk(b"data: 1\n\n");
        }
        go.wait();
        if stream {
            conn.end_stream();
        } else {
            conn.answer("200 OK", "", b"{}");
        }
        true
    })
}
