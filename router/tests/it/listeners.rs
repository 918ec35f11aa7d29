//! What a client's connection may take: time, bytes and a place.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use crate::common::{Client, Router, Worker, wait_until};

const HEALTH: &str = "GET /health HTTP/1.1\r\nHost: router\r\n\r\n";

/// Whether the connection ends without another word.
fn ends_in_silence(client: &mut Client) -> bool {
    matches!(client.stream.read(&mut [0]), Ok(0))
}

fn get_health(client: &mut Client) {
    client.send(HEALTH);
    assert_eq!(client.receive().status(), 200);
}

#[test]
fn two_hundred_slow_heads_hold_up_nobody_and_are_answered_once_they_are_whole() {
    const SLOW: usize = 200;
    const ROUNDS: usize = 20;
    let worker = Worker::fixed("{}");
    // Whoever waited for them would wait for longer than any test.
    let router = Router::start(&[worker.url()], &["--header-read-timeout-secs", "600"]);
    let head = b"POST /generate HTTP/1.1\r\nHost: router\r\nContent-Length: 2\r\n\r\n{}";
    let mut slow: Vec<Client> = (0..SLOW).map(|_| router.client()).collect();
    let mut other = router.client();
    for byte in &head[..ROUNDS] {
        for client in &mut slow {
            client.send([*byte]);
        }
        // One round trip each, on an old connection and on a new one.
        assert_eq!(other.post("/generate", "", b"{}").status(), 200);
        assert_eq!(router.get("/health").status(), 200);
    }
    assert_eq!(worker.count("POST /generate"), ROUNDS, "none of the slow ones is whole");
    for client in &mut slow {
        client.send(&head[ROUNDS..]);
        assert_eq!(client.receive().status(), 200, "it was kept all the time");
    }
    assert_eq!(worker.count("POST /generate"), SLOW + ROUNDS);
}

#[test]
fn two_hundred_slow_heads_are_given_up_and_hold_up_nobody() {
    const SLOW: usize = 200;
    const LIMIT: Duration = Duration::from_secs(2);
    let worker = Worker::fixed("{}");
    let router = Router::start(&[worker.url()], &["--header-read-timeout-secs", "2"]);
    let begun = Instant::now();
    let mut slow: Vec<Client> = (0..SLOW).map(|_| router.client()).collect();
    let head = b"POST /generate HTTP/1.1\r\nHost: router\r\nX-Slow: and very long";
    let mut sent = 0;
    // Others are served meanwhile, on old connections and on new ones.
    let mut other = router.client();
    while begun.elapsed() < LIMIT / 2 && sent < head.len() {
        for client in &mut slow {
            client.send(&head[sent..=sent]);
        }
        sent += 1;
        assert_eq!(other.post("/generate", "", b"{}").status(), 200);
        assert_eq!(router.get("/health").status(), 200);
    }
    assert!(sent > 0);
    for client in &mut slow {
        let refused = client.receive();
        refused.assert_refused(408, "request_head_timeout");
        assert_eq!(refused.header("connection"), Some("close"));
        assert!(refused.header("x-request-id").is_some_and(|id| id.starts_with("req-")));
        assert!(ends_in_silence(client));
    }
    assert!(begun.elapsed() >= LIMIT, "after {:?}", begun.elapsed());
    let counted = r#"smg_http_responses_total{status_code="408",error_code="request_head_timeout"}"#;
    assert_eq!(router.metric(counted), Some(SLOW as f64));
    assert_eq!(worker.count("POST /generate"), sent);
}

#[test]
fn a_head_that_never_ends_is_given_up_while_it_comes() {
    let router = Router::start(&[], &["--header-read-timeout-secs", "1"]);
    let mut client = router.client();
    client.send("GET /health HTTP/1.1\r\nX-Slow: ");
    client.stream.set_nonblocking(true).expect("an option");
    let mut read = Vec::new();
    wait_until("the connection to end", || {
        // An error is the end, too; the answer may have gone with it.
        let sent = client.stream.write(b"x");
        client.stream.read_to_end(&mut read).is_ok()
            || !read.is_empty()
            || sent.is_err_and(|error| error.kind() != ErrorKind::WouldBlock)
    });
    assert!(read.is_empty() || read.starts_with(b"HTTP/1.1 408 "), "{}", String::from_utf8_lossy(&read));
}

#[test]
fn connections_without_a_request_end_in_their_time() {
    let args = ["--header-read-timeout-secs", "1", "--idle-connection-timeout-secs", "3"];
    let router = Router::start(&[], &args);
    let mut silent = router.client();
    let begun = Instant::now();
    assert!(ends_in_silence(&mut silent), "nothing was asked, so nothing is answered");
    assert!(begun.elapsed() >= Duration::from_secs(1), "after {:?}", begun.elapsed());

    let mut kept = router.client();
    get_health(&mut kept);
    // Longer than for a head, and a shorter time than between two requests.
    std::thread::sleep(Duration::from_millis(1500));
    get_health(&mut kept);
    let begun = Instant::now();
    assert!(ends_in_silence(&mut kept));
    assert!(begun.elapsed() >= Duration::from_secs(2), "after {:?}", begun.elapsed());
    wait_until("the seats to be free", || router.metric("smg_router_client_connections ") == Some(0.0));
}

#[test]
fn what_is_no_request_is_refused_like_one() {
    let router = Router::start(&[], &["--max-header-bytes", "8192"]);
    let long = "x".repeat(10_000);
    let many = "a:\r\n".repeat(1000);
    for (case, head, status, code) in [
        ("no head", "GET\u{1} / HTTP/1.1\r\n\r\n".to_owned(), 400, "invalid_request_head"),
        ("no field", "GET / HTTP/1.1\r\nHost router\r\n\r\n".to_owned(), 400, "invalid_request_head"),
        ("no version", "GET / HTTP/9.9\r\n\r\n".to_owned(), 400, "invalid_request_head"),
        ("long field", format!("GET / HTTP/1.1\r\nX: {long}\r\n\r\n"), 431, "request_head_too_large"),
        ("long path", format!("GET /{long} HTTP/1.1\r\n\r\n"), 431, "request_head_too_large"),
        ("many fields", format!("GET / HTTP/1.1\r\n{many}\r\n\r\n"), 431, "request_head_too_large"),
    ] {
        for requests_before in [0, 2] {
            let mut client = router.client();
            for _ in 0..requests_before {
                get_health(&mut client);
            }
            client.send(&head);
            let refused = client.receive();
            assert_eq!(refused.status(), status, "{case} after {requests_before}");
            refused.assert_refused(status, code);
            assert!(refused.header("x-request-id").is_some(), "{case}");
            assert!(ends_in_silence(&mut client), "{case}");
        }
    }
    for (status, code, count) in [(400, "invalid_request_head", 6.0), (431, "request_head_too_large", 6.0)] {
        let counted = format!(r#"smg_http_responses_total{{status_code="{status}",error_code="{code}"}}"#);
        assert_eq!(router.metric(&counted), Some(count));
    }
}

#[test]
fn a_head_may_have_many_fields() {
    let worker = Worker::fixed("{}");
    let router = Router::start(&[worker.url()], &[]);
    let fields: String = (0..1500).map(|number| format!("X-{number:04}: {number:020}\r\n")).collect();
    assert!(fields.len() > 40_000);
    assert_eq!(router.client().post("/generate", &fields, b"{}").status(), 200);
}

#[test]
fn clients_beyond_the_limit_wait_for_a_place() {
    const LIMIT: usize = 4;
    let router = Router::start(&[], &["--max-connections", "4", "--threads", "2"]);
    let mut seated: Vec<Client> = (0..LIMIT).map(|_| router.client()).collect();
    seated.iter_mut().for_each(get_health);
    let mut waiting: Vec<Client> = (0..3).map(|_| router.client()).collect();
    for client in &mut waiting {
        client.send(HEALTH);
        client.stream.set_read_timeout(Some(Duration::from_millis(200))).expect("an option");
        let read = client.stream.read(&mut [0]);
        let kind = read.expect_err("not accepted, and not turned away").kind();
        assert!(matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{kind}");
    }
    // Prometheus has places of its own.
    assert_eq!(router.metric("smg_router_client_connections "), Some(LIMIT as f64));
    assert!(router.metric("smg_router_client_limit_reached_total ") >= Some(1.0));
    seated.iter_mut().for_each(get_health);
    for mut client in waiting {
        seated.pop();
        client.stream.set_read_timeout(Some(crate::common::PATIENCE)).expect("an option");
        assert_eq!(client.receive().status(), 200);
        seated.insert(0, client);
    }
    drop(seated);
    wait_until("the places to be free", || router.metric("smg_router_client_connections ") == Some(0.0));
}

#[test]
fn operators_may_have_a_listener_of_their_own() {
    let router = Router::start(&[], &[]);
    assert_eq!(router.admin, None);
    let mut router = Router::start(&[], &["--admin-port", "0", "--shutdown-pause-secs", "0"]);
    let admin = router.admin.clone().expect("it is announced");
    assert_eq!(Client::get(&admin, "/workers").status(), 200);
    assert_eq!(Client::get(&admin, "/metrics").status(), 404);
    router.signal("TERM");
    assert_eq!(router.wait().code(), Some(0));
}
