//! What crosses the router crosses it unchanged.

use crate::common::{Message, Router, Worker, noise, wait_until};

const ENDPOINTS: [&str; 3] = ["/v1/chat/completions", "/generate", "/v1/completions"];

/// A worker that sends back what it got.
fn echo() -> Worker {
    Worker::start(|conn, request| {
        conn.answer("200 OK", "Content-Type: application/octet-stream\r\n", &request.body);
        true
    })
}

fn last(worker: &Worker) -> Message {
    worker.seen().pop().expect("the worker saw a request")
}

#[test]
fn bodies_arrive_and_return_byte_for_byte() {
    let worker = echo();
    let router = Router::start(&[worker.url()], &[]);
    let mut bodies = vec![
        Vec::new(),
        b"{}".to_vec(),
        br#"{"model":"m","messages":[{"role":"user","content":"h\u00e9llo \ud83d"}],"x":1e400}"#.to_vec(),
        b"{ not json \xff\xfe".to_vec(),
        noise(1, 100),
        noise(2, 3_000_000),
    ];
    bodies.push(format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)).into_bytes());
    let mut client = router.client();
    for path in ENDPOINTS {
        for body in &bodies {
            let answer = client.post(path, "", body);
            assert_eq!(answer.status(), 200);
            assert!(last(&worker).body == *body, "{path}: {} bytes arrived changed", body.len());
            assert!(answer.body == *body, "{path}: {} bytes returned changed", body.len());
        }
    }
}

#[test]
fn end_to_end_headers_pass_and_hop_by_hop_ones_stop() {
    let worker = Worker::start(|conn, _| {
        let headers = "X-Answer: a\r\nX-Answer: b\r\nSet-Cookie: c=1\r\nContent-Encoding: br\r\n\
                       Connection: x-hop, keep-alive\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nRetry-After: 7\r\n";
        conn.answer("418 I'm a teapot", headers, b"\x00\x01");
        true
    });
    let router = Router::start(&[worker.url()], &[]);
    let headers = "X-Many: 1\r\nX-Many: 2\r\nAuthorization: Bearer k\r\nUser-Agent: u\r\nCookie: c\r\n\
                   traceparent: 00-1-2-3\r\nConnection: X-Private, keep-alive\r\nX-Private: p\r\nTE: trailers\r\n\
                   Keep-Alive: timeout=1\r\nProxy-Connection: keep-alive\r\nUpgrade: h2c\r\nAccept-Encoding: br\r\n";
    let answer = router.client().post("/generate?a=b&c=%20", headers, b"{}");

    let seen = last(&worker);
    assert_eq!(seen.first, "POST /generate?a=b&c=%20 HTTP/1.1");
    assert_eq!(seen.all("host"), [worker.address.as_str()]);
    assert_eq!(seen.all("x-many"), ["1", "2"]);
    assert_eq!(seen.all("content-length"), ["2"]);
    for (name, value) in [
        ("authorization", "Bearer k"),
        ("user-agent", "u"),
        ("cookie", "c"),
        ("traceparent", "00-1-2-3"),
        ("accept-encoding", "br"),
    ] {
        assert_eq!(seen.all(name), [value], "{name}");
    }
    for name in ["x-private", "te", "keep-alive", "proxy-connection", "upgrade"] {
        assert_eq!(seen.header(name), None, "{name} concerns the client's connection");
    }

    assert_eq!(answer.status(), 418);
    assert_eq!(answer.body, b"\x00\x01");
    assert_eq!(answer.all("x-answer"), ["a", "b"]);
    assert_eq!(answer.all("content-encoding"), ["br"]);
    assert_eq!(answer.all("set-cookie"), ["c=1"]);
    assert_eq!(answer.all("retry-after"), ["7"]);
    for name in ["x-hop", "keep-alive"] {
        assert_eq!(answer.header(name), None, "{name} concerns the worker's connection");
    }
    assert_eq!(answer.header("x-router-worker"), None, "decision headers are off by default");
}

#[test]
fn a_chunked_body_arrives_whole_however_it_is_cut() {
    let worker = echo();
    let router = Router::start(&[worker.url()], &[]);
    let body = noise(3, 700);
    for size in [1, 64, 700] {
        let mut client = router.client();
        client.send("POST /generate HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n");
        for piece in body.chunks(size) {
            client.send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
        }
        client.send("0\r\n\r\n");
        assert_eq!(client.receive().body, body);
        let seen = last(&worker);
        assert_eq!(seen.body, body);
        assert!(seen.header("content-length").is_some() != seen.header("transfer-encoding").is_some());
    }
}

#[test]
fn a_body_over_the_limit_gets_a_readable_413() {
    let worker = echo();
    let router = Router::start(&[worker.url()], &["--max-payload-size", "1000000"]);
    assert_eq!(router.post("/generate", &noise(4, 1_000_000)).status(), 200);

    let announced = router.post("/generate", &noise(5, 2_000_000));
    let mut client = router.client();
    client.send("POST /generate HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..20 {
        client.send([b"186a0\r\n", noise(6, 100_000).as_slice(), b"\r\n"].concat());
    }
    client.send("0\r\n\r\n");
    for answer in [announced, client.receive()] {
        assert_eq!(answer.status(), 413);
        assert_eq!(answer.header("x-router-error-code"), Some("payload_too_large"));
        assert_eq!(answer.header("x-smg-error-code"), Some("payload_too_large"));
        assert_eq!(answer.json()["error"]["code"], "payload_too_large");
    }
    assert_eq!(worker.seen().len(), 1, "nothing of the long bodies reached the worker");
    assert_eq!(router.loads(), [0]);
}

#[test]
fn connections_to_a_worker_are_used_again_whatever_the_framing() {
    let worker = Worker::start(|conn, request| {
        match request.body.as_slice() {
            b"stream" => {
                conn.begin_stream();
                conn.chunk(b"data: 1\n\n");
                conn.end_stream();
            }
            b"empty" => conn.answer("200 OK", "", b""),
            _ => conn.answer("200 OK", "", b"{}"),
        }
        true
    });
    let router = Router::start(&[worker.url()], &["--threads", "1", "--disable-health-check"]);
    let mut client = router.client();
    assert_eq!(client.post("/generate", "", b"plain").status(), 200);
    for body in ["plain", "stream", "empty"].repeat(20) {
        assert_eq!(client.post("/generate", "", body.as_bytes()).status(), 200);
    }
    // Three more may have been opened for the router's own questions, at any time.
    assert!(worker.connections() <= 4, "{}", worker.connections());
    assert_eq!(router.loads(), [0]);
}

#[test]
fn a_connection_that_the_worker_closed_while_idle_costs_no_request() {
    let worker = Worker::answering_requests(|conn, _| {
        conn.answer("200 OK", "", b"{}");
        // Closed without a word, as servers do with idle connections.
        false
    });
    let router = Router::start(&[worker.url()], &["--threads", "1", "--disable-health-check"]);
    let mut client = router.client();
    for round in 1..=50 {
        assert_eq!(client.post("/generate", "", b"{}").status(), 200, "request {round}");
        wait_until("the close to arrive", || worker.open_at_peer() == 0);
    }
}
