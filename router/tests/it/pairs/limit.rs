//! `--decode-dispatch-limit`: how many decode streams may come from one prefill worker.

use std::time::Duration;

use super::legs::{prefill, router};
use super::{BODY, DONE, STREAM, TOKEN, flags, is_idle, sent};
use crate::common::{Latch, Worker, wait_until};

/// Streams a token, and ends when it has its turn.
fn streaming(go: &Latch) -> Worker {
    let go = go.clone();
    Worker::start(move |conn, _| {
        conn.begin_stream();
        conn.chunk(TOKEN);
        go.wait();
        conn.chunk(DONE);
        conn.end_stream();
        true
    })
}

#[test]
fn requests_beyond_the_limit_wait_in_order_for_a_stream_to_end() {
    let go = Latch::default();
    let (prefill, decode) = (prefill(), streaming(&go));
    let router = router(&[&prefill], &[&decode], &flags(&["--decode-dispatch-limit", "2"]));
    let request = |at: usize| format!(r#"{{"text":"request {at}","stream":true}}"#);
    let mut clients: Vec<_> = Vec::new();
    for at in 0..2 {
        clients.push(sent(&router, request(at).as_bytes()));
        wait_until("it to be dispatched", || decode.count("POST") == at + 1);
    }
    for at in 2..6 {
        clients.push(sent(&router, request(at).as_bytes()));
        // Each is in line before the next one comes.
        wait_until("it to stand in line", || {
            router.metric("smg_router_decode_dispatch_waiting") == Some((at - 1) as f64)
        });
    }
    assert_eq!(decode.count("POST"), 2, "the others wait, and nobody has been told of them");
    let streams = format!("smg_worker_decode_streams{{worker=\"{}\"}}", prefill.url());
    wait_until("all to be counted", || {
        (router.metric("smg_router_decode_dispatch_waiting"), router.metric(&streams))
            == (Some(4.0), Some(2.0))
    });
    let rows = router.get("/workers").json();
    let told = |at: usize| rows["workers"][at]["decode_streams"].as_u64();
    assert_eq!((told(0), told(1)), (Some(2), None), "{rows}");
    assert_eq!(prefill.count("POST"), 2);
    for ended in 0..6 {
        go.pass(1);
        let more = (ended + 3).min(6);
        wait_until("the next one to be dispatched", || decode.count("POST") == more);
    }
    for (at, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.receive().body, [TOKEN, DONE].concat(), "{at}");
    }
    let order: Vec<_> = decode
        .seen()
        .iter()
        .map(|request| request.json()["text"].as_str().expect("a text").to_owned())
        .collect();
    let expected: Vec<_> = (0..6).map(|at| format!("request {at}")).collect();
    assert_eq!(order, expected, "first come, first served");
    assert_eq!(router.metric("smg_router_decode_dispatch_waiting"), Some(0.0));
    wait_until("the streams to end", || router.metric(&streams) == Some(0.0));
    wait_until("the leases to end", || is_idle(&router));
}

/// Requests that have come and are not over.
fn in_flight(router: &crate::common::Router) -> usize {
    router.metric("smg_http_connections_active").map_or(0, |count| count as usize)
}

#[test]
fn one_that_waits_too_long_is_told_why() {
    let go = Latch::default();
    let (prefill, decode) = (prefill(), streaming(&go));
    let args = ["--decode-dispatch-limit", "1", "--request-timeout-secs", "4"];
    let router = router(&[&prefill], &[&decode], &flags(&args));
    // Its time runs from its head on, so that it is over before that of the one that it waits for.
    let mut late = router.client();
    late.send(format!("POST /generate HTTP/1.1\r\nHost: r\r\nContent-Length: {}\r\n\r\n", BODY.len()));
    std::thread::sleep(Duration::from_secs(2));
    let mut first = sent(&router, STREAM);
    first.reader.head().expect("an answer").expect("a head");
    late.send(BODY);
    let refused = late.receive();
    refused.assert_refused(503, "decode_dispatch_limit");
    assert!(refused.retry_after().is_some());
    assert_eq!((prefill.count("POST"), decode.count("POST")), (1, 1));
    go.open();
    wait_until("the leases to end", || is_idle(&router));
    assert_eq!(router.post("/generate", BODY).status(), 200, "there is room again");
}

#[test]
fn who_leaves_the_line_leaves_it_to_the_next() {
    let go = Latch::default();
    let (prefill, decode) = (prefill(), streaming(&go));
    let router = router(&[&prefill], &[&decode], &flags(&["--decode-dispatch-limit", "1"]));
    let mut first = sent(&router, STREAM);
    wait_until("it to be dispatched", || decode.count("POST") == 1);
    let leaving = sent(&router, STREAM);
    wait_until("it to wait", || in_flight(&router) == 2);
    let mut last = sent(&router, STREAM);
    wait_until("it to wait", || in_flight(&router) == 3);
    leaving.reset();
    wait_until("it to be gone", || in_flight(&router) == 2);
    go.open();
    assert_eq!((first.receive().status(), last.receive().status()), (200, 200));
    assert_eq!(decode.count("POST"), 2);
}

#[test]
fn one_that_waits_for_a_worker_of_its_own_holds_nobody_back() {
    let go = Latch::default();
    let (full, free) = (prefill(), prefill());
    let decode = streaming(&go);
    let router = router(
        &[&full, &free],
        &[&decode],
        &["--policy", "consistent_hashing", "--decode-dispatch-limit", "1"],
    );
    let to_the_full_one = format!("X-SMG-Target-Worker: {}\r\n", full.url());
    let targeted = || {
        let mut client = router.client();
        client.send_post("/generate", &to_the_full_one, STREAM);
        client
    };
    let mut first = targeted();
    first.reader.head().expect("an answer").expect("a head");
    let mut waiting = targeted();
    wait_until("it to wait", || in_flight(&router) == 2);
    let mut other = sent(&router, STREAM);
    other.reader.head().expect("an answer, while one waits").expect("a head");
    assert_eq!((full.count("POST"), free.count("POST"), decode.count("POST")), (1, 1, 2));
    go.open();
    assert_eq!(waiting.receive().status(), 200);
    // Decode may have answered before prefill has read its request.
    wait_until("the full one to be asked again", || full.count("POST") == 2);
    assert_eq!(free.count("POST"), 1);
}
