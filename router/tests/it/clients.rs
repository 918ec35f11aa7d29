//! Clients that leave, stall or say too much.

use std::io::Read;
use std::net::Shutdown;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, Router, Worker, wait_until};

const BODY: &[u8] = br#"{"text":"hello","stream":true}"#;

/// A worker that says nothing, or nothing more after its first chunk, and tells when the router hangs up.
fn silent(begun: bool) -> (Worker, Receiver<Instant>) {
    let (left, noticed) = channel();
    let worker = Worker::start(move |conn, _| {
        if begun {
            conn.begin_stream();
            conn.chunk(b"data: {\"text\":\"a\"}\n\n");
        }
        let read = conn.stream.read(&mut [0]);
        assert!(matches!(read, Ok(0) | Err(_)), "the router sent something");
        let _ = left.send(Instant::now());
        false
    });
    (worker, noticed)
}

/// A worker that writes for as long as the router takes it, and then tells.
fn flooding() -> (Worker, Receiver<Instant>) {
    let (left, noticed) = channel();
    let worker = Worker::start(move |conn, _| {
        conn.begin_stream();
        let chunk = vec![b'x'; 65_536];
        while conn.chunk(&chunk) {}
        let _ = left.send(Instant::now());
        false
    });
    (worker, noticed)
}

#[test]
fn bytes_behind_a_request_do_not_hide_that_its_client_left() {
    let second = "POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}";
    for tail in ["\r\n", "POST /gen", second] {
        for begun in [false, true] {
            for half in [false, true] {
                let case = format!("tail {tail:?}, begun: {begun}, half closed: {half}");
                let (worker, noticed) = silent(begun);
                let router = Router::start(&[worker.url()], &[]);
                let mut client = router.client();
                client.send_post("/generate", "", BODY);
                client.send(tail);
                if begun {
                    client.reader.head().expect("a head");
                    client.reader.chunk().expect("a chunk");
                }
                wait_until("the request to be in flight", || {
                    worker.seen().len() == 1 && router.loads() == [1]
                });
                let leaving = Instant::now();
                if half {
                    client.stream.shutdown(Shutdown::Write).expect("an open connection");
                } else {
                    drop(client);
                }
                let at = noticed.recv_timeout(PATIENCE).expect(&case);
                assert!(at - leaving < Duration::from_secs(1), "{case}: after {:?}", at - leaving);
                wait_until("the load to be released", || router.loads() == [0]);
                assert_eq!(worker.seen().len(), 1, "{case}: nobody waits for a second answer");
            }
        }
    }
}

#[test]
fn requests_sent_ahead_are_answered_in_order() {
    let worker = Worker::start(|conn, request| {
        conn.answer("200 OK", "", &request.body);
        true
    });
    let router = Router::start(&[worker.url()], &["--request-timeout-secs", "1"]);
    let mut client = router.client();
    for body in [b"1", b"2", b"3"] {
        client.send_post("/generate", "", body);
    }
    for body in [b"1", b"2", b"3"] {
        assert_eq!(client.receive().body, body);
    }
    // An idle connection is not bound by the time limit of a request that is over: that of one that came later ends first.
    let mut later = router.client();
    later.send("POST /generate HTTP/1.1\r\nHost: router\r\nContent-Length: 100\r\n\r\nhalf");
    assert_eq!(later.receive().status(), 408);
    assert_eq!(client.post("/generate", "", b"4").body, b"4");
}

#[test]
fn the_request_timeout_cuts_off_a_client_that_does_not_read() {
    let (worker, noticed) = flooding();
    let router = Router::start(&[worker.url()], &["--request-timeout-secs", "1"]);
    let mut client = router.client();
    let sent = Instant::now();
    client.send_post("/generate", "", BODY);
    let at = noticed.recv_timeout(PATIENCE).expect("the worker is let go");
    assert!(at - sent > Duration::from_millis(900), "not before its time: {:?}", at - sent);
    wait_until("the load to be released", || router.loads() == [0]);
    let read = std::io::copy(&mut client.stream, &mut std::io::sink());
    assert!(read.is_err() || read.is_ok_and(|bytes| bytes > 0), "the connection is over");
}

#[test]
fn the_request_timeout_cuts_off_a_client_that_leaves_the_end_unread() {
    // Longer than what the sockets take, so that the worker is done while the client's part is not.
    let worker = Worker::start(|conn, _| {
        conn.answer("200 OK", "", &vec![b'x'; 16 << 20]);
        true
    });
    let router = Router::start(&[worker.url()], &["--request-timeout-secs", "1"]);
    let mut client = router.client();
    client.send_post("/generate", "", BODY);
    wait_until("the load to be released", || router.loads() == [0]);
    wait_until("the connection to be cut", || router.metric("smg_http_connections_active") == Some(0.0));
    let mut whole = Vec::new();
    let read = client.stream.read_to_end(&mut whole);
    assert!(read.is_err() || whole.len() < 16 << 20, "the answer was cut");
}

#[test]
fn an_upload_that_stalls_is_refused_at_the_request_timeout() {
    let worker = Worker::fixed("{}");
    let router = Router::start(&[worker.url()], &["--request-timeout-secs", "1"]);
    for framing in ["Content-Length: 100\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"] {
        let mut client = router.client();
        let sent = Instant::now();
        client.send(format!("POST /generate HTTP/1.1\r\nHost: router\r\n{framing}"));
        let refused = client.receive();
        assert!(sent.elapsed() > Duration::from_millis(900), "{framing}");
        assert_eq!(refused.status(), 408, "{framing}");
        assert_eq!(refused.header("x-router-error-code"), Some("request_timeout"));
        assert_eq!(refused.json()["error"]["code"], "request_timeout");
        assert_eq!(refused.header("connection"), Some("close"));
        let rest = client.reader.head();
        assert!(matches!(rest, Ok(None) | Err(_)), "the connection is closed");
    }
    assert_eq!(worker.seen().len(), 0);
}

#[test]
fn an_upload_in_a_coding_that_would_be_lost_is_refused() {
    let worker = Worker::fixed("{}");
    let router = Router::start(&[worker.url()], &[]);
    for fields in [
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
    ] {
        let mut client = router.client();
        client.send(format!("POST /generate HTTP/1.1\r\nHost: x\r\n{fields}\r\n2\r\n{{}}\r\n0\r\n\r\n"));
        let refused = client.receive();
        assert_eq!(refused.status(), 501, "{fields}");
        assert_eq!(refused.header("x-router-error-code"), Some("unsupported_transfer_coding"), "{fields}");
    }
    let mut client = router.client();
    client
        .send("POST /generate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n");
    assert_eq!(client.receive().status(), 200);
    assert_eq!(worker.seen().len(), 1);
}
