//! Connections and streams that break off, are late or fall silent.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{MODES, both, drain, drain_for, stream};
use crate::client::Worker;

fn chunks(text: &str) -> usize {
    text.matches("data: {").count()
}

/// The data of all chunks of a body that was cut.
fn body_bytes(text: &str) -> usize {
    let (_, mut rest) = text.split_once("\r\n\r\n").unwrap();
    let mut sum = 0;
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        sum += size;
        rest = &after[size + 2..];
    }
    sum
}

#[test]
fn the_head_can_be_late() {
    both(&["delay-head=60ms"], |worker| {
        let start = Instant::now();
        assert!(!worker.post("/generate", &stream(2)).events().is_empty());
        assert!(start.elapsed() >= Duration::from_millis(60));
    });
}

#[test]
fn chunks_can_be_late() {
    // An engine merges what is ready while it waits; at this speed 400 tokens take longer than one delay.
    for (mode, tokens) in MODES.into_iter().zip([400, 4]) {
        let worker = Worker::watched(mode, &["delay-chunk=20ms"]);
        let start = Instant::now();
        worker.post("/generate", &stream(tokens)).events();
        assert!(start.elapsed() >= Duration::from_millis(40));
    }
}

#[test]
fn a_stream_can_fall_silent() {
    both(&["stall=2chunks"], |worker| {
        let (text, end) = drain_for(worker.send("/generate", &stream(50)), Duration::from_secs(1));
        assert_eq!((chunks(&text), end), (2, Err(ErrorKind::WouldBlock)));
        let seen = worker.wait_to_see("the stall is booked", |seen| seen["requests"][0]["end"] == "fault");
        assert_eq!(seen["requests"][0]["fault"], "stall");
    });
    both(&["stall=request"], |worker| {
        let (text, end) = drain_for(worker.send("/generate", &stream(5)), Duration::from_millis(100));
        assert_eq!((text.as_str(), end), ("", Err(ErrorKind::WouldBlock)));
    });
}

#[test]
fn a_connection_can_end_within_a_body() {
    for (fault, expected) in [("reset=333", Err(ErrorKind::ConnectionReset)), ("close=333", Ok(()))] {
        both(&[fault], |worker| {
            let (text, end) = drain(worker.send("/generate", &stream(50)));
            assert_eq!((body_bytes(&text), end), (333, expected), "{fault}: {text}");
            let seen = worker.seen();
            assert_eq!(
                (&seen["requests"][0]["end"], &seen["requests"][0]["sent_bytes"]),
                (&json!("fault"), &json!(333))
            );
        });
    }
}

#[test]
fn a_connection_can_end_after_the_head() {
    for (fault, expected) in [("reset=head", Err(ErrorKind::ConnectionReset)), ("close=head", Ok(()))] {
        both(&[fault], |worker| {
            for body in [stream(5), json!({"text": "x"})] {
                let (text, end) = drain(worker.send("/generate", &body));
                assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("\r\n\r\n"), "{fault}: {text}");
                assert_eq!(end, expected, "{fault}");
            }
        });
    }
}

#[test]
fn a_connection_can_end_without_an_answer() {
    let reset = Err(ErrorKind::ConnectionReset);
    for (fault, expected) in
        [("reset=arrival", reset), ("reset=request", reset), ("close=0", Ok(())), ("close=request", Ok(()))]
    {
        both(&[fault], |worker| {
            let (text, end) = drain(worker.send("/generate", &stream(5)));
            assert_eq!((text.as_str(), end), ("", expected), "{fault}");
        });
    }
}

#[test]
fn connections_can_be_refused_and_taken_again() {
    both(&[], |worker| {
        let mut open = worker.send_raw(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n");
        let mut head = [0; 12];
        open.read_exact(&mut head).unwrap();
        for who in ["new", "all"] {
            let set = worker.control("PUT", "/workers/0/faults", &json!({ "refuse": who }).to_string());
            assert_eq!(set.status, 200);
            let refused = TcpStream::connect(worker.address()).expect_err("nobody listens").kind();
            assert_eq!(refused, ErrorKind::ConnectionRefused);
            if who == "new" {
                open.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
                open.read_exact(&mut head).unwrap();
            } else {
                let mut rest = Vec::new();
                assert_eq!(open.read_to_end(&mut rest).unwrap_err().kind(), ErrorKind::ConnectionReset);
            }
            assert_eq!(worker.control("DELETE", "/workers/0/faults", "").status, 200);
            assert_eq!(worker.get("/health").status, 200);
        }
    });
}

#[test]
fn idle_connections_can_be_closed() {
    both(&["idle-close=50ms"], |worker| {
        let (text, end) = drain(worker.send_raw(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"));
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        assert_eq!(end, Ok(()));
        // Nothing at all was asked on this one.
        assert_eq!(drain(worker.send_raw(b"")), (String::new(), Ok(())));
    });
}

#[test]
fn a_connection_can_be_closed_after_an_answer_that_did_not_say_so() {
    both(&["close-after-answer=on"], |worker| {
        for body in [stream(3), json!({"text": "x"})] {
            let body = body.to_string();
            let head =
                format!("POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
            let (text, end) = drain(worker.send_raw((head + &body).as_bytes()));
            assert!(
                text.starts_with("HTTP/1.1 200") && !text.to_lowercase().contains("connection:"),
                "{text}"
            );
            assert!(text.ends_with("0\r\n\r\n") || text.ends_with('}'), "{text}");
            assert_eq!(end, Ok(()));
        }
        assert_eq!(worker.seen()["totals"]["answered"], 2);
    });
}
