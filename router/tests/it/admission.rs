//! How many requests are under way, who waits, and who is sent away.

use std::io::Read;
use std::time::{Duration, Instant};

use crate::common::{Client, Latch, Message, Router, Worker, wait_until};

const BODY: &[u8] = br#"{"text":"hello"}"#;

/// Answers each request when it has its turn.
fn held(go: &Latch) -> Worker {
    let go = go.clone();
    Worker::start(move |conn, _| {
        go.wait();
        conn.answer("200 OK", "", b"{}");
        true
    })
}

fn send(router: &Router, body: &[u8]) -> Client {
    let mut client = router.client();
    client.send_post("/generate", "", body);
    client
}

fn depth(router: &Router) -> Option<f64> {
    router.metric("smg_router_queue_depth")
}

fn wait_depth(router: &Router, expected: f64) {
    wait_until(&format!("{expected} to wait"), || depth(router) == Some(expected));
}

/// What is never limited answers.
fn assert_reachable(router: &Router) {
    for path in ["/health", "/liveness", "/readiness", "/workers"] {
        assert_eq!(router.get(path).status(), 200, "{path}");
    }
    assert_eq!(Client::get(&router.metrics, "/metrics").status(), 200);
}

// sgl-project/sglang#9656
#[test]
fn so_many_run_so_many_wait_for_so_long_and_the_rest_is_sent_away() {
    let go = Latch::default();
    let worker = held(&go);
    let args = ["--max-concurrent-requests", "2", "--queue-size", "2", "--queue-timeout-secs", "1"];
    let router = Router::start(&[worker.url()], &args);
    let mut running: Vec<Client> = (0..2).map(|_| send(&router, BODY)).collect();
    wait_until("two to run", || worker.count("POST") == 2);
    let sent = Instant::now();
    let mut waiting: Vec<Client> = (0..2).map(|_| send(&router, BODY)).collect();
    wait_depth(&router, 2.0);
    for _ in 0..2 {
        let refused = router.post("/generate", BODY);
        refused.assert_refused(429, "queue_full");
        assert!(refused.retry_after().is_some_and(|seconds| (1..=60).contains(&seconds)));
    }
    assert_reachable(&router);
    for client in &mut waiting {
        let refused = client.receive();
        refused.assert_refused(408, "queue_timeout");
        assert!(refused.retry_after().is_some());
    }
    assert!(sent.elapsed() >= Duration::from_secs(1), "after {:?}", sent.elapsed());
    go.open();
    assert!(running.iter_mut().all(|client| client.receive().status() == 200));
    assert_eq!(worker.count("POST"), 2, "who was sent away reached nobody");
    assert_eq!(router.post("/generate", BODY).status(), 200);
}

#[test]
fn a_permit_is_held_until_the_last_byte() {
    let go = Latch::default();
    let when = go.clone();
    let worker = Worker::start(move |conn, _| {
        conn.begin_stream();
        conn.chunk(b"data: 1\n\n");
        when.wait();
        conn.end_stream();
        true
    });
    let router = Router::start(&[worker.url()], &["--max-concurrent-requests", "1"]);
    let mut first = send(&router, BODY);
    first.reader.head().expect("a head");
    assert_eq!(first.reader.chunk().expect("a chunk"), b"data: 1\n\n");
    let mut second = send(&router, BODY);
    wait_depth(&router, 1.0);
    assert_eq!(worker.count("POST"), 1);
    assert_eq!(router.metric("smg_router_admitted_requests"), Some(1.0));
    go.pass(1);
    assert_eq!(first.reader.chunk().expect("the end"), b"");
    second.reader.head().expect("a head");
    go.open();
    wait_until("all permits to be back", || router.metric("smg_router_admitted_requests") == Some(0.0));
}

#[test]
fn who_waits_is_let_in_by_the_order_of_coming() {
    let go = Latch::default();
    let worker = held(&go);
    let router = Router::start(&[worker.url()], &["--max-concurrent-requests", "1"]);
    let mut clients = Vec::new();
    for number in 0..8_u32 {
        clients.push(send(&router, format!("{{\"text\":\"{number}\"}}").as_bytes()));
        let waiting = f64::from(number);
        wait_until("it to run or wait", || worker.count("POST") == 1 && depth(&router) == Some(waiting));
    }
    go.open();
    assert!(clients.iter_mut().all(|client| client.receive().status() == 200));
    let order: Vec<String> = worker.seen().iter().map(Message::text).collect();
    let expected: Vec<String> = (0..8).map(|number| format!("{{\"text\":\"{number}\"}}")).collect();
    assert_eq!(order, expected);
}

#[test]
fn a_client_that_leaves_the_queue_gives_its_place_up() {
    let go = Latch::default();
    let worker = held(&go);
    let args = ["--max-concurrent-requests", "1", "--queue-size", "1"];
    let router = Router::start(&[worker.url()], &args);
    let mut first = send(&router, b"{\"text\":\"first\"}");
    wait_until("the first to run", || worker.count("POST") == 1);
    let leaver = send(&router, b"{\"text\":\"leaver\"}");
    wait_depth(&router, 1.0);
    router.post("/generate", BODY).assert_refused(429, "queue_full");
    drop(leaver);
    wait_depth(&router, 0.0);
    let mut last = send(&router, b"{\"text\":\"last\"}");
    wait_depth(&router, 1.0);
    go.open();
    assert_eq!([first.receive().status(), last.receive().status()], [200, 200]);
    let seen: Vec<String> = worker.seen().iter().map(Message::text).collect();
    assert_eq!(seen, ["{\"text\":\"first\"}", "{\"text\":\"last\"}"]);
}

#[test]
fn without_a_queue_nobody_waits() {
    let go = Latch::default();
    let worker = held(&go);
    let router = Router::start(&[worker.url()], &["--max-concurrent-requests", "1", "--queue-size", "0"]);
    let mut first = send(&router, BODY);
    wait_until("the first to run", || worker.count("POST") == 1);
    router.post("/generate", BODY).assert_refused(429, "queue_full");
    go.open();
    assert_eq!(first.receive().status(), 200);
    assert_eq!(router.metric("smg_router_sheds_total{reason=\"queue_full\"}"), Some(1.0));
}

#[test]
fn a_token_bucket_bounds_the_rate() {
    let worker = Worker::fixed("{}");
    let args = ["--rate-limit-tokens-per-second", "1", "--queue-size", "0"];
    let router = Router::start(&[worker.url()], &args);
    let begun = Instant::now();
    assert_eq!(router.post("/generate", BODY).status(), 200);
    let refused = router.post("/generate", BODY);
    refused.assert_refused(429, "queue_full");
    assert_eq!(refused.retry_after(), Some(1));
    assert_reachable(&router);
    wait_until("the next token", || router.post("/generate", BODY).status() == 200);
    assert!(begun.elapsed() > Duration::from_millis(900), "after {:?}", begun.elapsed());
    assert_eq!(worker.count("POST"), 2);
}

#[test]
fn who_may_wait_gets_the_next_token() {
    let worker = Worker::fixed("{}");
    let router = Router::start(&[worker.url()], &["--rate-limit-tokens-per-second", "2"]);
    let begun = Instant::now();
    let mut clients: Vec<Client> = (0..4).map(|_| send(&router, BODY)).collect();
    assert!(clients.iter_mut().all(|client| client.receive().status() == 200));
    assert!(begun.elapsed() > Duration::from_millis(900), "two at once, two more in a second");
}

#[test]
fn the_time_limit_of_a_request_holds_in_the_queue_too() {
    let worker = Worker::fixed("{}");
    // Two at once, and one each half second; so the last one's turn would come after seven seconds.
    let args = ["--rate-limit-tokens-per-second", "2", "--request-timeout-secs", "3"];
    let router = Router::start(&[worker.url()], &args);
    let begun = Instant::now();
    let mut clients: Vec<Client> = (0..16).map(|_| send(&router, BODY)).collect();
    let statuses: Vec<u16> = clients.iter_mut().map(|client| client.receive().status()).collect();
    let served = statuses.iter().filter(|status| **status == 200).count();
    assert!((7..=8).contains(&served), "{statuses:?}");
    // The one whose turn comes in its last moment may be sent and not be answered in time.
    let late = statuses.iter().filter(|status| **status == 504).count();
    assert!(served + late <= 8, "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 408, 504].contains(status)), "{statuses:?}");
    assert!(begun.elapsed() < Duration::from_millis(6500), "after {:?}", begun.elapsed());
    assert!((served..=served + late).contains(&worker.count("POST")));
    let blamed = router.metric("smg_worker_cb_consecutive_failures");
    assert_eq!(blamed, Some(0.0), "the worker never had the others");
}

#[test]
fn a_storm_of_clients_that_leave_takes_no_permit_with_it() {
    const STORM: usize = 50;
    let go = Latch::default();
    let when = go.clone();
    let worker = Worker::start(move |conn, request| {
        if request.body == b"{}" {
            when.wait();
            conn.answer("200 OK", "", b"{}");
            return true;
        }
        if request.body.ends_with(b"true}") {
            conn.begin_stream();
            conn.chunk(b"data: 1\n\n");
        }
        let _ = conn.stream.read(&mut [0]);
        false
    });
    let router = Router::start(&[worker.url()], &["--max-concurrent-requests", "4"]);
    let mut storm = Vec::new();
    for number in 0..STORM {
        storm.push(send(&router, format!("{{\"stream\":{}}}", number % 2 == 0).as_bytes()));
    }
    wait_until("the gate to be full", || worker.count("POST") == 4);
    wait_depth(&router, (STORM - 4) as f64);
    for (number, client) in storm.into_iter().enumerate() {
        if number % 3 == 0 { client.reset() } else { drop(client) }
    }
    wait_until("all permits to be back", || router.metric("smg_router_admitted_requests") == Some(0.0));
    assert_eq!(depth(&router), Some(0.0));
    let mut clients: Vec<Client> = (0..4).map(|_| send(&router, b"{}")).collect();
    wait_until("four to run", || router.loads() == [4]);
    go.open();
    assert!(clients.iter_mut().all(|client| client.receive().status() == 200));
}
