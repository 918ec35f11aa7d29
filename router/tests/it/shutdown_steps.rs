//! The steps of the end: not ready, then closed, then over. A roll-out must not cost a request.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::common::{Client, Latch, Message, Router, Worker, wait_for, wait_until};

const STREAM: &[u8] = br#"{"text":"hello","stream":true}"#;
const TOKEN: &[u8] = b"data: {\"text\":\"a\"}\n\n";
const DONE: &[u8] = b"data: [DONE]\n\n";

/// Longer than any test.
const LONG: [&str; 4] = ["--shutdown-pause-secs", "600", "--shutdown-grace-period-secs", "900"];

/// How long what is not waited for may take all the same: a second, and what a busy machine adds.
const SOON: Duration = Duration::from_secs(10);

/// Streams that begin at once and end when the latch lets them; what is no stream is answered.
fn worker() -> (Worker, Latch) {
    let latch = Latch::default();
    let go = latch.clone();
    let worker = Worker::start(move |conn, request| {
        if request.body != STREAM {
            conn.answer("200 OK", "", b"{}");
            return true;
        }
        conn.begin_stream();
        conn.chunk(TOKEN);
        go.wait();
        conn.chunk(DONE);
        conn.end_stream();
        true
    });
    (worker, latch)
}

fn begin(router: &Router) -> Client {
    let mut client = router.client();
    client.send_post("/generate", "", STREAM);
    client.reader.head().expect("a head");
    assert_eq!(client.reader.chunk().expect("a chunk"), TOKEN);
    client
}

fn is_closed(router: &Router) -> bool {
    TcpStream::connect(&router.address).is_err()
}

/// What a new client is told, unless nobody listens any more.
fn try_get(address: &str, path: &str) -> Option<Message> {
    let mut client = Client::try_connect(address)?;
    client.send(format!("GET {path} HTTP/1.1\r\nHost: router\r\n\r\n"));
    client.reader.message().ok().flatten()
}

// Streams that break when a replica is replaced, and requests sent to one that no longer listens.
#[test]
fn fifty_streams_end_whole_and_readiness_ends_before_the_listener() {
    let (worker, latch) = worker();
    let mut router = Router::start(&[worker.url()], &["--shutdown-pause-secs", "1.5"]);
    let mut clients: Vec<Client> = (0..50).map(|_| begin(&router)).collect();
    assert_eq!(router.get("/readiness").status(), 200);
    router.signal("TERM");
    let mut told = Vec::new();
    wait_until("the listener to close", || match try_get(&router.address, "/readiness") {
        Some(answer) => {
            told.push(answer.status());
            false
        }
        None => is_closed(&router),
    });
    let last_ready = told.iter().rposition(|status| *status == 200).map_or(0, |at| at + 1);
    assert!(told[last_ready..].contains(&503), "not ready, and told so: {told:?}");
    // Those who watch may do so to the end.
    assert_eq!(Client::get(&router.metrics, "/metrics").status(), 200);
    latch.open();
    for client in &mut clients {
        assert_eq!(client.reader.chunk().expect("a chunk"), DONE);
        assert_eq!(client.reader.chunk().expect("the end"), b"");
    }
    assert_eq!(router.wait().code(), Some(0));
}

// Clients that are refused before whoever balances load has noticed.
#[test]
fn everything_is_served_in_the_pause_and_a_second_signal_ends_it() {
    let (worker, _latch) = worker();
    let mut router = Router::start(&[worker.url()], &LONG);
    let mut kept = router.client();
    assert_eq!(kept.post("/generate", "", b"{}").header("connection"), None);
    let mut stream = begin(&router);
    router.signal("TERM");
    let refused = wait_for("readiness to end", || {
        let answer = router.get("/readiness");
        (answer.status() == 503).then_some(answer)
    });
    assert_eq!(refused.json()["reason"], "shutting down");
    for path in ["/health", "/liveness"] {
        assert_eq!(router.get(path).status(), 200, "{path}");
    }
    assert_eq!(router.post("/generate", b"{}").status(), 200);
    // A connection that was kept serves one more request, and its client is told to look elsewhere.
    let last = kept.post("/generate", "", b"{}");
    assert_eq!((last.status(), last.header("connection")), (200, Some("close")));
    assert!(kept.reader.head().expect("an end").is_none());
    let told = Instant::now();
    router.signal("INT");
    assert_eq!(router.wait().code(), Some(0));
    assert!(told.elapsed() < SOON, "after {:?}", told.elapsed());
    assert!(stream.reader.chunk().is_err(), "what was cut looks cut");
}

// Answers that are killed from outside, as pause and grace together take longer than whoever stops the process waits.
#[test]
fn the_grace_period_runs_from_the_signal_and_the_pause_ends_with_it() {
    // Seconds. Once the last ones have passed, a grace period would be over that runs from the end of the pause.
    for (pause, grace, too_late) in [(3, 3, 6), (4, 5, 9)] {
        let (worker, _latch) = worker();
        let [pause, grace_period] = [pause, grace].map(|seconds: u64| seconds.to_string());
        let args = ["--shutdown-pause-secs", &pause, "--shutdown-grace-period-secs", &grace_period];
        let mut router = Router::start(&[worker.url()], &args);
        let mut stream = begin(&router);
        let told = Instant::now();
        router.signal("TERM");
        assert_eq!(router.wait().code(), Some(0));
        let took = told.elapsed();
        let range = Duration::from_secs(grace)..Duration::from_secs(too_late);
        assert!(range.contains(&took), "pause {pause}, grace {grace}: after {took:?}");
        assert!(stream.reader.chunk().is_err(), "what was cut looks cut");
    }
}

// A process that stays for the whole grace period because a balancer keeps connections open.
#[test]
fn idle_connections_do_not_hold_up_the_end() {
    let mut router = Router::start(&[], &["--shutdown-pause-secs", "0"]);
    let mut idle = router.client();
    idle.send("GET /health HTTP/1.1\r\nHost: router\r\n\r\n");
    assert_eq!(idle.receive().status(), 200);
    let told = Instant::now();
    router.signal("TERM");
    assert_eq!(router.wait().code(), Some(0));
    assert!(told.elapsed() < SOON, "after {:?}", told.elapsed());
    assert!(idle.reader.head().expect("an end").is_none());
}

#[test]
fn a_head_that_is_completed_in_time_is_answered_however_long_that_takes() {
    let (worker, latch) = worker();
    let mut router = Router::start(&[worker.url()], &["--shutdown-pause-secs", "0"]);
    let mut client = router.client();
    let head = format!("POST /generate HTTP/1.1\r\nHost: router\r\nContent-Length: {}\r\n\r\n", STREAM.len());
    let (first, rest) = head.split_at(30);
    client.send(first);
    // The first bytes have arrived when those of a later connection are answered.
    let other = begin(&router);
    router.signal("TERM");
    wait_until("the listener to close", || is_closed(&router));
    client.send([rest.as_bytes(), STREAM].concat());
    assert_eq!(client.reader.head().expect("a head").expect("not the end").status(), 200);
    assert_eq!(client.reader.chunk().expect("a chunk"), TOKEN);
    // Longer than heads are waited for.
    std::thread::sleep(Duration::from_millis(1500));
    latch.open();
    assert_eq!(client.reader.chunk().expect("a chunk"), DONE);
    assert_eq!(client.reader.chunk().expect("the end"), b"");
    drop(other);
    assert_eq!(router.wait().code(), Some(0));
}

#[test]
fn what_the_end_cuts_off_is_no_client_that_left() {
    let (worker, _latch) = worker();
    let args = ["--shutdown-pause-secs", "0", "--shutdown-grace-period-secs", "1"];
    let (mut router, log) = Router::start_logged(&[worker.url()], &args);
    let mut left = router.client();
    left.send_post("/generate", "X-Request-Id: left\r\n", STREAM);
    left.reader.head().expect("a head");
    drop(left);
    wait_until("the client to be missed", || router.loads() == [0]);
    let mut cut = router.client();
    cut.send_post("/generate", "X-Request-Id: cut\r\n", STREAM);
    cut.reader.head().expect("a head");
    router.signal("TERM");
    assert_eq!(router.wait().code(), Some(0));
    let lines = log.into_lines();
    for (id, end) in [("left", "client_gone"), ("cut", "shutdown")] {
        let line = lines.iter().find(|line| line.contains(&format!("request_id={id} ")));
        let line = line.unwrap_or_else(|| panic!("no line of {id} in {lines:?}"));
        assert!(line.contains(&format!(" end={end} ")), "{line}");
    }
}

#[test]
fn who_has_no_answer_when_the_time_is_over_is_told_so() {
    let (go, seen) = (Latch::default(), Latch::default());
    let (wait, begun) = (go.clone(), seen.clone());
    let worker = Worker::start(move |conn, request| {
        if request.body == STREAM {
            conn.begin_stream();
            conn.chunk(TOKEN);
        } else {
            begun.open();
        }
        wait.wait();
        false
    });
    let args = ["--shutdown-pause-secs", "0", "--shutdown-grace-period-secs", "1"];
    let (mut router, log) = Router::start_logged(&[worker.url()], &args);
    let mut stream = begin(&router);
    let mut waiting = router.client();
    waiting.send_post("/generate", "", b"{}");
    seen.wait();
    let mut sending = router.client();
    sending.send("POST /generate HTTP/1.1\r\nHost: router\r\nContent-Length: 9\r\n\r\n{");
    wait_until("all three to be under way", || router.metric("smg_http_connections_active") == Some(3.0));
    router.signal("TERM");
    for client in [&mut waiting, &mut sending] {
        let told = client.receive();
        told.assert_refused(503, "router_stopping");
        assert_eq!((told.retry_after(), told.header("connection")), (Some(1), Some("close")));
    }
    assert!(stream.reader.chunk().is_err(), "what was cut looks cut");
    // Clients that do not close after their last answer are listened to for a moment, which nothing cuts short.
    assert_eq!(router.wait().code(), Some(0));
    drop((stream, waiting, sending));
    go.open();
    let lines = log.into_lines();
    assert!(!lines.iter().any(|line| line.contains("hangs")), "{lines:?}");
    let counted = "3 requests were cut off: 2 without an answer, which were told so with 503, and 1 within";
    assert!(lines.iter().any(|line| line.contains("WARN") && line.contains(counted)), "{lines:?}");
}
