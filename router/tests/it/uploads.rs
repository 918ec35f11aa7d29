//! Bodies of requests that stop on their way, and bodies that nobody wants.

use std::time::{Duration, Instant};

use crate::common::{Client, Latch, Router, Worker, wait_until};

/// What an upload that stops has sent of it.
const HALVES: [&str; 3] = [
    "Content-Length: 100\r\n\r\nhalf",
    "Content-Length: 100\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
];

fn begin(router: &Router, rest: &str) -> Client {
    let mut client = router.client();
    client.send(format!("POST /generate HTTP/1.1\r\nHost: router\r\n{rest}"));
    client
}

/// The same, and waits until the router receives the body, which it says to whoever asks (RFC 9110, section 10.1.1): then
/// the request has been let in.
fn begin_admitted(router: &Router, rest: &str) -> Client {
    let mut client = begin(router, &format!("Expect: 100-continue\r\n{rest}"));
    assert_eq!(client.reader.head().expect("an answer").expect("not the end").status(), 100);
    client
}

#[test]
fn a_body_that_stops_is_refused_and_gives_its_permit_back() {
    // Before a permit is laid by, and after.
    for patience in ["0.4", "1.5"] {
        let worker = Worker::fixed("{}");
        let limits = ["--max-concurrent-requests", "1", "--queue-size", "0"];
        let args = [&limits[..], &["--body-idle-timeout-secs", patience]].concat();
        let router = Router::start(&[worker.url()], &args);
        let admitted = || router.metric("smg_router_admitted_requests ").expect("a gauge");
        let at_least = Duration::from_secs_f64(patience.parse().expect("seconds")).mul_f64(0.9);
        for half in HALVES {
            let begun = Instant::now();
            let refused = begin(&router, half).receive();
            refused.assert_refused(408, "request_timeout");
            assert_eq!(refused.header("connection"), Some("close"), "{half}: where it goes on is unknown");
            assert!(begun.elapsed() > at_least, "{half}: after {:?}", begun.elapsed());
            wait_until("the permit to be back", || admitted() == 0.0);
            assert_eq!(router.post("/generate", b"{}").status(), 200, "{half}");
        }
        assert_eq!(worker.count("POST"), HALVES.len(), "what is half there reaches nobody");
    }
}

#[test]
fn bodies_that_come_slowly_keep_nobody_else_out() {
    let worker = Worker::fixed("{}");
    let limits = ["--max-concurrent-requests", "1", "--queue-size", "0"];
    let router =
        Router::start(&[worker.url()], &[&limits[..], &["--body-idle-timeout-secs", "600"]].concat());
    let slow = "Content-Length: 4\r\n\r\n{";
    // It has the only permit, and keeps it for a moment only.
    let mut first = begin_admitted(&router, slow);
    let is_served = || router.post("/generate", b"{}").status() == 200;
    wait_until("others to be served meanwhile", is_served);
    // There is room for one such body, as there is one permit.
    begin(&router, slow).receive().assert_refused(429, "queue_full");
    assert_eq!(router.post("/generate", b"{}").status(), 200);
    first.send("  }");
    assert_eq!(first.receive().status(), 200);
    assert_eq!(worker.count("POST"), 3);
    // Its place is free again, once its permit is.
    let admitted = || router.metric("smg_router_admitted_requests ").expect("a gauge");
    wait_until("the permit to be back", || admitted() == 0.0);
    let mut second = begin_admitted(&router, slow);
    wait_until("others to be served meanwhile", is_served);
    second.send("  }");
    assert_eq!(second.receive().status(), 200);
}

#[test]
fn a_body_that_came_slowly_waits_for_a_permit_again_and_is_not_sent_away() {
    let (go, busy) = (Latch::default(), Latch::default());
    let (wait, begun) = (go.clone(), busy.clone());
    let worker = Worker::start(move |conn, request| {
        if request.body == b"[]" {
            begun.open();
            wait.wait();
        }
        conn.answer("200 OK", "", b"{}");
        true
    });
    let limits = ["--max-concurrent-requests", "1", "--queue-size", "0"];
    let router =
        Router::start(&[worker.url()], &[&limits[..], &["--body-idle-timeout-secs", "600"]].concat());
    let mut slow = begin_admitted(&router, "Content-Length: 4\r\n\r\n{");
    wait_until("others to be served meanwhile", || router.post("/generate", b"{}").status() == 200);
    let mut other = router.client();
    other.send_post("/generate", "", b"[]");
    busy.wait();
    slow.send("  }");
    wait_until("it to wait", || router.metric("smg_router_queue_depth ") == Some(1.0));
    router.post("/generate", b"{}").assert_refused(429, "queue_full");
    go.open();
    assert_eq!((other.receive().status(), slow.receive().status()), (200, 200));
}

#[test]
fn a_body_that_stops_on_its_way_to_all_workers_is_refused_too() {
    let worker = Worker::fixed("{}");
    let router = Router::start(&[worker.url()], &["--body-idle-timeout-secs", "0.5"]);
    let mut client = router.client();
    client.send("POST /abort_request HTTP/1.1\r\nHost: router\r\nContent-Length: 100\r\n\r\nhalf");
    client.receive().assert_refused(408, "request_timeout");
    assert_eq!(worker.seen().len(), 0);
}

#[test]
fn a_body_that_comes_slowly_is_taken_whole() {
    let worker = Worker::fixed("{}");
    let router = Router::start(&[worker.url()], &["--body-idle-timeout-secs", "1"]);
    let mut client = begin(&router, "Content-Length: 6\r\n\r\n");
    for byte in b"{    }" {
        std::thread::sleep(Duration::from_millis(300));
        client.send([*byte]);
    }
    assert_eq!(client.receive().status(), 200);
    assert_eq!(worker.seen()[0].body, b"{    }");
}

/// Requests that no route takes, and what they get.
const UNWANTED: [(&str, &str, u16, &str); 6] = [
    ("POST", "/nowhere", 404, "not_found"),
    ("POST", "/v1/responses/x/y", 404, "not_found"),
    ("PUT", "/generate", 405, "method_not_allowed"),
    ("POST", "/health", 405, "method_not_allowed"),
    ("PUT", "/abort_request", 405, "method_not_allowed"),
    ("PUT", "/workers", 405, "method_not_allowed"),
];

// A connection that is closed while its client sends is reset, and the answer is lost with what was not read.
#[test]
fn a_client_that_sends_a_long_body_to_the_wrong_place_sees_why_it_is_refused() {
    let body = vec![b'x'; 2 << 20];
    let router = Router::start(&[], &[]);
    for (method, path, status, code) in UNWANTED {
        for _ in 0..5 {
            let mut client = router.client();
            let head =
                format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
            client.send([head.as_bytes(), &body].concat());
            client.receive().assert_refused(status, code);
        }
    }
}

// RFC 9110, section 10.1.1
#[test]
fn a_client_that_asks_before_it_sends_is_refused_before_it_sends() {
    let router = Router::start(&[], &["--body-idle-timeout-secs", "0"]);
    for (method, path, status, code) in UNWANTED {
        let mut client = router.client();
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2097152\r\n\r\n"
        ));
        client.receive().assert_refused(status, code);
    }
}
