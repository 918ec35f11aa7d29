//! What worker and client say to each other passes as it is: keys, fields, framing, events.

use std::io::Read;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::worker::dead_url;
use crate::common::{Conn, Message, Router, Worker, noise, wait_until};

const STREAM: &[u8] = br#"{"text":"hello","stream":true}"#;

fn last(worker: &Worker) -> Message {
    worker.seen().pop().expect("the worker saw a request")
}

// sgl-project/sglang#3031: the client's key never reached workers that wanted one.
#[test]
fn the_clients_key_passes_where_the_workers_have_none() {
    let worker = Worker::fixed("{}");
    let router = Router::start(&[worker.url()], &[]);
    for key in ["Bearer k2", "Basic dTpw", "k2"] {
        let answer = router.client().post("/generate", &format!("Authorization: {key}\r\n"), b"{}");
        assert_eq!(answer.status(), 200);
        assert_eq!(last(&worker).all("authorization"), [key]);
    }
    assert_eq!(router.post("/generate", b"{}").status(), 200);
    assert_eq!(last(&worker).header("authorization"), None, "none is made up");
}

// sgl-project/sglang#3070: two keys in one request are no key.
#[test]
fn the_workers_key_replaces_whatever_the_client_sent() {
    let worker = Worker::fixed("{}");
    let router = Router::start(&[worker.url()], &["--worker-api-key", "w1"]);
    for sent in ["", "Authorization: Bearer k2\r\n", "authorization: k2\r\nAUTHORIZATION: Bearer k3\r\n"] {
        for path in ["/generate", "/v1/chat/completions", "/v1/rerank"] {
            assert_eq!(router.client().post(path, sent, b"{}").status(), 200);
            assert_eq!(last(&worker).all("authorization"), ["Bearer w1"], "{sent:?}");
        }
    }
}

// sgl-project/sglang#3031: a few refusals for a wrong key took the worker out of service.
#[test]
fn a_worker_that_refuses_a_key_stays_in_rotation() {
    for status in ["401 Unauthorized", "403 Forbidden"] {
        let worker = Worker::start(move |conn, request| {
            match request.header("authorization") {
                Some("Bearer right") => conn.answer("200 OK", "", b"{}"),
                _ => conn.answer(status, "WWW-Authenticate: Bearer\r\n", b"no"),
            }
            true
        });
        let args = ["--cb-failure-threshold", "2", "--health-failure-threshold", "1"];
        let router = Router::start(&[worker.url()], &args);
        for _ in 0..20 {
            let answer = router.client().post("/generate", "Authorization: Bearer wrong\r\n", b"{}");
            assert_eq!((answer.status().to_string(), answer.text().as_str()), (status[..3].to_owned(), "no"));
            assert_eq!(answer.all("www-authenticate"), ["Bearer"], "end to end, unlike Proxy-Authenticate");
        }
        assert_eq!(worker.seen().len(), 20, "nothing of that was tried again");
        let answer = router.client().post("/generate", "Authorization: Bearer right\r\n", b"{}");
        assert_eq!(answer.status(), 200);
    }
}

// RFC 9110, section 7.6.1; bytes.rs has the usual fields.
#[test]
fn fields_of_one_connection_stop_in_both_directions_however_they_are_named() {
    let worker = Worker::start(|conn, _| {
        let fields = "CONNECTION: X-One\r\nconnection: close , x-two\r\nX-One: 1\r\nX-TWO: 2\r\nX-Three: 3\r\n\
                      Proxy-Authenticate: Basic\r\nTrailer: X-End\r\nUpgrade: h2c\r\nProxy-Connection: close\r\n";
        conn.answer("200 OK", fields, b"{}");
        false
    });
    let router = Router::start(&[worker.url()], &[]);
    let fields = "connection: x-one\r\nConnection: keep-alive , X-TWO\r\nx-one: 1\r\nX-Two: 2\r\nX-Three: 3\r\n\
                  Proxy-Authorization: Basic dTpw\r\nTrailer: X-End\r\nTE: trailers\r\n";
    let mut client = router.client();
    for _ in 0..2 {
        let answer = client.post("/generate", fields, b"{}");
        for (side, message) in [("worker", last(&worker)), ("client", answer)] {
            for name in ["x-one", "x-two", "trailer", "te", "upgrade", "proxy-connection", "connection"] {
                assert_eq!(message.header(name), None, "{side}: {name}");
            }
            for name in ["proxy-authorization", "proxy-authenticate"] {
                assert_eq!(message.header(name), None, "{side}: {name}");
            }
            assert_eq!(message.all("x-three"), ["3"], "{side}");
            assert_eq!(message.all("content-length"), ["2"], "{side}");
        }
    }
    assert_eq!(worker.seen().len(), 2, "the worker's close is not the client's");
}

/// A worker whose answer is these bytes, after which it hangs up.
fn saying(answer: &'static [u8]) -> Worker {
    Worker::start(move |conn, _| {
        conn.write(answer);
        false
    })
}

/// What the worker says; status, lengths and body at the client.
type Framing = (&'static [u8], u16, &'static [&'static str], &'static [u8]);

#[test]
fn an_answer_has_its_length_or_none() {
    let cases: [Framing; 6] = [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 200, &["3"], b"abc"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, &["0"], b""),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 200, &[], b"abc"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200, &[], b""),
        (b"HTTP/1.1 200 OK\r\n\r\nabc", 200, &[], b"abc"),
        (b"HTTP/1.0 404 Not Found\r\n\r\nabc", 404, &[], b"abc"),
    ];
    for (answer, status, lengths, body) in cases {
        let case = String::from_utf8_lossy(answer);
        let worker = saying(answer);
        let router = Router::start(&[worker.url()], &[]);
        let mut client = router.client();
        for _ in 0..2 {
            let answered = client.post("/generate", "", b"{}");
            assert_eq!((answered.status(), answered.body.as_slice()), (status, body), "{case}");
            assert_eq!(answered.all("content-length"), lengths, "{case}");
        }
    }
}

#[test]
fn an_answer_that_can_have_no_body_gets_none() {
    for status in ["204 No Content", "304 Not Modified"] {
        let worker = Worker::start(move |conn, _| conn.write(format!("HTTP/1.1 {status}\r\nX-A: 1\r\n\r\n")));
        let router = Router::start(&[worker.url()], &[]);
        let mut client = router.client();
        for _ in 0..2 {
            let answer = client.post("/generate", "", b"{}");
            assert_eq!((&answer.first[9..], answer.header("x-a")), (status, Some("1")));
            assert_eq!(answer.header("transfer-encoding"), None);
        }
        wait_until("the load to be released", || router.loads() == [0]);
    }
}

#[test]
fn a_client_of_http_1_0_gets_the_stream_without_chunks_to_the_end_of_its_connection() {
    let worker = Worker::start(|conn, _| {
        conn.begin_stream();
        conn.chunk(b"data: 1\n\n");
        conn.chunk(b"data: [DONE]\n\n");
        conn.end_stream();
        true
    });
    let router = Router::start(&[worker.url()], &[]);
    let mut client = router.client();
    client.send([&b"POST /generate HTTP/1.0\r\nContent-Length: 30\r\n\r\n"[..], STREAM].concat());
    let mut answer = String::new();
    client.stream.read_to_string(&mut answer).expect("an answer and its end");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(!head.to_ascii_lowercase().contains("transfer-encoding"), "{head}");
    assert_eq!(body, "data: 1\n\ndata: [DONE]\n\n");
}

// mnfst/llm-gateway#2053, openai/openai-python#2722: comments made to data, and events that nobody sent, end clients.
#[test]
fn events_pass_byte_for_byte_with_comments_and_without_additions() {
    const EVENTS: &str = ": ping\n\n:\r\n\r\nevent: x\nid: 1\nretry: 5\n\ndata: {\"text\":\"a\"}\r\n\r\ndata:no blank\r\r\n\
                          \n\n\nid: 2\n\ndata: a\ndata: b\n\n\u{feff}data: \u{1f469}\u{200d}\u{1f4bb}\n\ndata: [DONE]";
    for size in [1, 7, EVENTS.len()] {
        let worker = Worker::start(move |conn, _| {
            conn.begin_stream();
            EVENTS.as_bytes().chunks(size).for_each(|piece| assert!(conn.chunk(piece)));
            conn.end_stream();
            true
        });
        let router = Router::start(&[worker.url()], &[]);
        let answer = router.post("/v1/chat/completions", STREAM);
        assert_eq!(answer.text(), EVENTS, "in pieces of {size}");
    }
}

// BerriAI/litellm#1255, #29557, #38926: the usage chunk, the final event and the worker's fields were lost.
#[test]
fn the_usage_chunk_the_end_and_the_fields_of_a_stream_are_kept() {
    const CHUNKS: [&str; 4] = [
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\"}}]}}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n",
        "data: [DONE]\n\n",
    ];
    let worker = Worker::start(|conn, _| {
        conn.write(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n\
             X-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n\r\n",
        );
        CHUNKS.iter().for_each(|chunk| assert!(conn.chunk(chunk.as_bytes())));
        conn.end_stream();
        true
    });
    let router = Router::start(&[worker.url()], &[]);
    let body = br#"{"messages":[],"stream":true,"stream_options":{"include_usage":true}}"#;
    let answer = router.post("/v1/chat/completions", body);
    assert_eq!(answer.text(), CHUNKS.concat());
    for (name, value) in [
        ("content-type", "text/event-stream; charset=utf-8"),
        ("cache-control", "no-cache"),
        ("x-accel-buffering", "no"),
    ] {
        assert_eq!(answer.all(name), [value]);
    }
}

// spring-cloud-gateway#580, apache/shenyu#6414: the second attempt had an empty body, or half the fields.
#[test]
fn a_request_that_is_tried_again_is_the_same_request() {
    let body = noise(11, 3_000_000);
    let failing = Worker::start(|conn, _| {
        conn.answer("500 Internal Server Error", "", b"no");
        true
    });
    let losing = Worker::start(|_, _| false);
    let well = Worker::fixed("{}");
    let urls = [dead_url(), failing.url(), losing.url(), well.url()];
    let args = ["--policy", "round_robin", "--retry-initial-backoff-ms", "1", "--disable-health-check"];
    let router = Router::start(&urls, &args);
    let fields = "Content-Type: application/x-odd\r\nX-Many: 1\r\nX-Many: 2\r\nAuthorization: Bearer k\r\n";
    let answer = router.client().post("/generate?a=b", fields, &body);
    assert_eq!((answer.status(), answer.header("x-router-attempts")), (200, Some("4")));
    for worker in [&failing, &losing, &well] {
        let seen = last(worker);
        assert_eq!(worker.seen().len(), 1);
        assert_eq!(seen.first, "POST /generate?a=b HTTP/1.1");
        assert!(seen.body == body, "another body");
        assert_eq!(seen.all("content-length"), ["3000000"]);
        assert_eq!(seen.all("content-type"), ["application/x-odd"]);
        assert_eq!(seen.all("x-many"), ["1", "2"]);
        assert_eq!(seen.all("authorization"), ["Bearer k"]);
        assert_eq!(seen.all("host"), [worker.address.as_str()]);
    }
}

// pyqwest#217, envoy#15211: a buffer for each attempt, or one that is never given back.
#[test]
fn a_long_body_is_held_once_for_all_its_attempts() {
    const CLIENTS: usize = 8;
    const LENGTH: usize = 16 << 20;
    let attempts = AtomicUsize::new(0);
    let worker = Worker::start(move |conn, _| {
        // Each body is sent three times, and all of them are under way when the answers begin.
        let count = attempts.fetch_add(1, Ordering::SeqCst) + 1;
        let last = count > 2 * CLIENTS;
        conn.answer(if last { "200 OK" } else { "500 Internal Server Error" }, "", b"{}");
        true
    });
    let args =
        ["--retry-initial-backoff-ms", "100", "--retry-max-retries", "20", "--disable-circuit-breaker"];
    let router = Router::start(&[worker.url()], &args);
    let before = router.resident_bytes();
    let body = noise(12, LENGTH);
    let peak = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| scope.spawn(|| assert_eq!(router.post("/generate", &body).status(), 200)))
            .collect();
        let mut peak = 0;
        while !clients.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            peak = peak.max(router.resident_bytes());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        peak
    });
    assert!(worker.count("POST") >= 3 * CLIENTS, "they were tried again");
    let bound = before + (CLIENTS * LENGTH) as u64 * 13 / 10 + (16 << 20);
    assert!(peak < bound, "{} MB at the peak", peak >> 20);
    wait_until("the memory to be given back", || router.resident_bytes() < before + (32 << 20));
}

// A worker with a lower limit than the router's says so before it has read everything, and its client must get to hear it.
#[test]
fn an_answer_that_comes_before_the_end_of_the_body_is_passed_on() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut conn = Conn::new(stream);
                while let Ok(Some(head)) = conn.reader.head() {
                    if head.first.starts_with("GET") {
                        conn.answer("404 Not Found", "", b"");
                        continue;
                    }
                    conn.answer("413 Payload Too Large", "Connection: close\r\n", b"theirs");
                    // It reads on, so that what it said is not lost to a reset.
                    let _ = std::io::copy(&mut conn.stream, &mut std::io::sink());
                }
            });
        }
    });
    let router = Router::start(&[url], &["--disable-health-check"]);
    let answer = router.post("/generate", &noise(13, 32 << 20));
    assert_eq!((answer.status(), answer.text().as_str()), (413, "theirs"));
    assert_eq!(answer.header("x-router-error-code"), None, "it is the worker's answer");
    wait_until("the load to be released", || router.loads() == [0]);
}
