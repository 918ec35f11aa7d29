//! When the client gets what.

use super::legs::{Holding, PREFILLED, breaker, decode, errors, latched, prefill, router};
use super::{BODY, DONE, STREAM, TOKEN, flags, is_idle, sent};
use crate::common::{Latch, Worker, wait_until};

/// A decode worker that sends a token when it has its turn, and its end with another one.
fn streaming(go: &Latch) -> Worker {
    let go = go.clone();
    Worker::start(move |conn, _| {
        conn.begin_stream();
        go.wait();
        conn.chunk(TOKEN);
        go.wait();
        conn.chunk(DONE);
        conn.end_stream();
        true
    })
}

#[test]
fn the_first_bytes_do_not_wait_for_the_prefill_workers_answer() {
    let (held, go) = (Latch::default(), Latch::default());
    let (prefill, decode) = (latched(&held, PREFILLED), streaming(&go));
    let router = router(&[&prefill], &[&decode], &flags(&[]));
    let mut client = sent(&router, STREAM);
    go.pass(1);
    let head = client.reader.head().expect("an answer").expect("a head");
    assert_eq!(head.status(), 200);
    assert_eq!(client.reader.chunk().expect("a chunk"), TOKEN, "while the prefill worker has not answered");
    assert_eq!(router.loads(), [1, 1]);
    go.pass(1);
    assert_eq!(client.reader.chunk().expect("a chunk"), DONE);
    assert!(client.reader.chunk().expect("the end").is_empty());
    // The leg is over when its answer is.
    wait_until("the decode lease to end", || router.loads() == [1, 0]);
    held.pass(1);
    wait_until("the prefill lease to end", || router.loads() == [0, 0]);
}

#[test]
fn a_prefill_lease_ends_with_its_answer_while_decode_goes_on() {
    let go = Latch::default();
    let (prefill, decode) = (prefill(), streaming(&go));
    let router = router(&[&prefill], &[&decode], &flags(&[]));
    let mut client = sent(&router, STREAM);
    wait_until("the prefill lease to end", || decode.count("POST") == 1 && router.loads() == [0, 1]);
    go.pass(2);
    assert_eq!(client.receive().body, [TOKEN, DONE].concat());
    wait_until("the decode lease to end", || is_idle(&router));
}

// A response head is no answer: what fails before the first byte can be told, or mended.
#[test]
fn a_prefill_worker_that_fails_after_decodes_head_is_told_of_and_another_is_tried() {
    let go = Latch::default();
    let when = go.clone();
    let failing = Worker::start(move |conn, _| {
        when.wait();
        conn.answer("500 Internal Server Error", "", b"{\"message\":\"no\"}");
        true
    });
    let holding = Holding::with_head();
    let alone = router(&[&failing], &[&holding.worker], &flags(&["--disable-retries"]));
    let mut client = sent(&alone, STREAM);
    wait_until("decode's head", || holding.worker.count("POST") == 1);
    go.pass(1);
    let answer = client.receive();
    assert_eq!((answer.status(), answer.text().as_str()), (500, "{\"message\":\"no\"}"));
    assert_eq!(answer.header("x-router-error-code"), Some("prefill_internal_error"));
    go.open();
    let (good, decode) = (prefill(), decode());
    let router = router(&[&failing, &good], &[&decode], &flags(&[]));
    for _ in 0..4 {
        assert_eq!(router.post("/generate", BODY).status(), 200);
    }
    wait_until("the loads to be released", || is_idle(&router));
}

#[test]
fn a_prefill_worker_that_fails_after_decodes_first_byte_is_blamed_and_the_stream_goes_on() {
    let (held, go) = (Latch::default(), Latch::default());
    let when = held.clone();
    let prefill = Worker::start(move |conn, _| {
        when.wait();
        conn.answer("500 Internal Server Error", "", b"{}");
        true
    });
    let decode = streaming(&go);
    let router = router(&[&prefill], &[&decode], &flags(&["--cb-failure-threshold", "1"]));
    let mut client = sent(&router, STREAM);
    go.pass(1);
    client.reader.head().expect("an answer").expect("a head");
    assert_eq!(client.reader.chunk().expect("a chunk"), TOKEN);
    held.pass(1);
    wait_until("the prefill breaker to open", || breaker(&router, &prefill) == 1.0);
    assert_eq!((breaker(&router, &decode), router.loads()), (0.0, vec![0, 1]));
    assert_eq!((errors(&router, &prefill), errors(&router, &decode)), (1.0, 0.0));
    go.pass(1);
    assert_eq!(client.reader.chunk().expect("a chunk"), DONE, "the engine decides, and it goes on");
    assert!(client.reader.chunk().expect("the end").is_empty());
    wait_until("the decode lease to end", || is_idle(&router));
}

#[test]
fn a_client_that_does_not_read_holds_back_no_prefill_answer() {
    let go = Latch::default();
    let when = go.clone();
    // More than sockets and the router take.
    let prefill = Worker::start(move |conn, _| {
        conn.begin_stream();
        when.wait();
        (0..64).for_each(|_| assert!(conn.chunk(&[b'x'; 1 << 20])));
        conn.end_stream();
        true
    });
    let decode = Worker::start(|conn, _| {
        conn.begin_stream();
        while conn.chunk(&[b'y'; 1 << 20]) {}
        false
    });
    let router = router(&[&prefill], &[&decode], &flags(&[]));
    let mut client = sent(&router, STREAM);
    client.reader.head().expect("an answer").expect("a head");
    go.pass(1);
    wait_until("the prefill answer to be read", || router.loads() == [0, 1]);
    drop(client);
    wait_until("the decode lease to end", || is_idle(&router));
}
