//! Streams flow as they come, end as they end, and hold nothing once the client is gone.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{Router, Worker, wait_until};

const BODY: &[u8] = br#"{"text":"hello","stream":true}"#;

/// A worker that takes each step when the test says so.
fn stepped(
    steps: impl Fn(&mut crate::common::Conn, &Receiver<()>) + Send + Sync + 'static,
) -> (Worker, Sender<()>) {
    let (go, when) = channel();
    let when = Mutex::new(when);
    let worker = Worker::start(move |conn, _| {
        steps(conn, &when.lock().expect("not poisoned"));
        false
    });
    (worker, go)
}

#[test]
fn a_chunk_reaches_the_client_before_the_worker_sends_the_next() {
    let (worker, go) = stepped(|conn, when| {
        conn.begin_stream();
        for part in ["data: 1\n\n", ": c\r\n\r\n", "data: [DONE]\n\n"] {
            when.recv().expect("the test is there");
            conn.chunk(part.as_bytes());
        }
        conn.end_stream();
    });
    let router = Router::start(&[worker.url()], &[]);
    let mut client = router.client();
    client.send_post("/generate", "", BODY);
    let head = client.reader.head().expect("a head").expect("not the end");
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    for part in ["data: 1\n\n", ": c\r\n\r\n", "data: [DONE]\n\n"] {
        go.send(()).expect("the worker is there");
        assert_eq!(client.reader.chunk().expect("a chunk"), part.as_bytes());
    }
    assert_eq!(client.reader.chunk().expect("the end"), b"");
    wait_until("the load to be released", || router.loads() == [0]);
}

#[test]
fn a_client_that_leaves_in_silence_is_noticed_before_and_after_the_first_byte() {
    for begun in [false, true] {
        let left = Arc::new(Mutex::new(None));
        let noticed = Arc::clone(&left);
        let worker = Worker::start(move |conn, _| {
            if begun {
                conn.begin_stream();
                conn.chunk(b"data: {\"text\":\"a\"}\n\n");
            }
            // Silent from here on; only the router can end this.
            let mut byte = [0];
            let read = conn.stream.read(&mut byte);
            assert!(matches!(read, Ok(0) | Err(_)), "the router sent something");
            *noticed.lock().expect("not poisoned") = Some(Instant::now());
            false
        });
        let router = Router::start(&[worker.url()], &[]);
        let mut client = router.client();
        client.send_post("/generate", "", BODY);
        if begun {
            client.reader.head().expect("a head");
            client.reader.chunk().expect("a chunk");
        }
        wait_until("the request to be in flight", || worker.seen().len() == 1 && router.loads() == [1]);
        let leaving = Instant::now();
        drop(client);
        wait_until("the worker to notice", || left.lock().expect("not poisoned").is_some());
        let noticed = left.lock().expect("not poisoned").expect("set");
        assert!(noticed - leaving < Duration::from_secs(1), "begun: {begun}, after {:?}", noticed - leaving);
        wait_until("the load to be released", || router.loads() == [0]);
    }
}

#[test]
fn a_stream_that_breaks_upstream_ends_broken() {
    let worker = Worker::start(|conn, _| {
        conn.begin_stream();
        conn.chunk(b"data: 1\n\n");
        false
    });
    let router = Router::start(&[worker.url()], &[]);
    let mut client = router.client();
    client.send_post("/generate", "", BODY);
    client.reader.head().expect("a head");
    assert_eq!(client.reader.chunk().expect("a chunk"), b"data: 1\n\n");
    assert!(client.reader.chunk().is_err(), "neither another chunk nor a clean end");
    wait_until("the load to be released", || router.loads() == [0]);
}

#[test]
fn an_answer_cut_short_of_its_length_ends_broken() {
    let worker = Worker::start(|conn, _| {
        conn.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc");
        false
    });
    let router = Router::start(&[worker.url()], &[]);
    let mut client = router.client();
    client.send_post("/generate", "", b"{}");
    assert!(client.reader.message().is_err());
    wait_until("the load to be released", || router.loads() == [0]);
}

#[test]
fn clients_that_do_not_read_hold_back_their_workers() {
    const CLIENTS: usize = 4;
    const BOUND: u64 = 32 << 20;
    let written = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&written);
    let worker = Worker::start(move |conn, _| {
        conn.begin_stream();
        let chunk = vec![b'x'; 16_384];
        while conn.chunk(&chunk) {
            counter.fetch_add(chunk.len() as u64, Ordering::SeqCst);
        }
        false
    });
    let router = Router::start(&[worker.url()], &[]);
    let before = router.resident_bytes();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = router.client();
            client.send_post("/generate", "", BODY);
            client
        })
        .collect();
    wait_until("the workers to write", || written.load(Ordering::SeqCst) > 0);
    // Stalled: nothing was written during half a second.
    let mut last = (0, Instant::now());
    wait_until("the workers to stall", || {
        let now = written.load(Ordering::SeqCst);
        if now != last.0 {
            last = (now, Instant::now());
        }
        last.1.elapsed() > Duration::from_millis(500)
    });
    assert!(written.load(Ordering::SeqCst) < 2 * BOUND, "socket buffers are a few MB per connection");
    let grown = router.resident_bytes().saturating_sub(before);
    assert!(grown < BOUND, "memory grew by {grown} bytes");
    assert_eq!(router.loads(), [CLIENTS as u64]);
    drop(clients);
    wait_until("the loads to be released", || router.loads() == [0]);
}

#[test]
fn a_signal_lets_streams_finish_and_refuses_new_connections() {
    let (worker, go) = stepped(|conn, when| {
        conn.begin_stream();
        conn.chunk(b"data: 1\n\n");
        when.recv().expect("the test is there");
        conn.chunk(b"data: [DONE]\n\n");
        conn.end_stream();
    });
    let mut router = Router::start(&[worker.url()], &["--shutdown-pause-secs", "0"]);
    let mut client = router.client();
    client.send_post("/generate", "", BODY);
    client.reader.head().expect("a head");
    client.reader.chunk().expect("a chunk");
    router.signal("TERM");
    wait_until("the listener to close", || std::net::TcpStream::connect(&router.address).is_err());
    go.send(()).expect("the worker is there");
    assert_eq!(client.reader.chunk().expect("a chunk"), b"data: [DONE]\n\n");
    assert_eq!(client.reader.chunk().expect("the end"), b"");
    assert_eq!(router.wait().code(), Some(0));
}

#[test]
fn the_grace_period_and_a_second_signal_bound_the_end() {
    // What a busy machine may add.
    const SLACK: Duration = Duration::from_secs(10);
    for (grace, signals, least) in [("1", 1, Duration::from_secs(1)), ("600", 2, Duration::ZERO)] {
        let (worker, _go) = stepped(|conn, when| {
            conn.begin_stream();
            conn.chunk(b"data: 1\n\n");
            let _ = when.recv();
        });
        let args = ["--shutdown-grace-period-secs", grace, "--shutdown-pause-secs", "0"];
        let mut router = Router::start(&[worker.url()], &args);
        let mut client = router.client();
        client.send_post("/generate", "", BODY);
        client.reader.head().expect("a head");
        client.reader.chunk().expect("a chunk");
        let told = Instant::now();
        router.signal("TERM");
        wait_until("the listener to close", || std::net::TcpStream::connect(&router.address).is_err());
        if signals == 2 {
            router.signal("TERM");
        }
        assert_eq!(router.wait().code(), Some(0));
        let took = told.elapsed();
        assert!((least..least + SLACK).contains(&took), "{signals} signals: after {took:?}");
        assert!(client.reader.chunk().is_err(), "what was cut looks cut");
    }
}

#[test]
fn the_request_timeout_cuts_an_answer_and_refuses_before_one() {
    let requests = AtomicUsize::new(0);
    let worker = Worker::start(move |conn, _| {
        if requests.fetch_add(1, Ordering::SeqCst) == 0 {
            conn.begin_stream();
            conn.chunk(b"data: 1\n\n");
        }
        let mut byte = [0];
        let _ = conn.stream.read(&mut byte);
        let _ = conn.stream.flush();
        false
    });
    let router = Router::start(&[worker.url()], &["--request-timeout-secs", "1"]);
    let mut client = router.client();
    client.send_post("/generate", "", BODY);
    client.reader.head().expect("a head");
    client.reader.chunk().expect("a chunk");
    assert!(client.reader.chunk().is_err());

    let refused = router.post("/generate", BODY);
    assert_eq!(refused.status(), 504);
    assert_eq!(refused.header("x-router-error-code"), Some("upstream_timeout"));
    wait_until("the loads to be released", || router.loads() == [0]);
}
