//! Engines that give up a request whose answer has begun. SGLang's head of a stream goes out before its scheduler has decided
//! anything, so that a failed transfer is told of in the first event, and by both engines.

use super::legs::{Holding, breaker, decode, errors, prefill, router};
use super::{BODY, DONE, ONCE, STREAM, TOKEN, flags, is_idle, many, sent};
use crate::common::{Conn, Latch, Worker, wait_until};

/// The event by which an engine says so.
fn abort(message: &str) -> String {
    format!(
        "data: {{\"text\":\"\",\"meta_info\":{{\"id\":\"r\",\"finish_reason\":{{\"type\":\"abort\",\
         \"message\":\"{message}\",\"status_code\":500}}}}}}\n\n"
    )
}

fn give_up(conn: &mut Conn, message: &str) {
    conn.begin_stream();
    let event = abort(message);
    // In two pieces, as the network may have it.
    let (first, second) = event.as_bytes().split_at(40);
    conn.chunk(first);
    conn.chunk(second);
    conn.chunk(DONE);
    conn.end_stream();
}

/// Gives up every request.
fn giving_up(message: &'static str) -> Worker {
    Worker::start(move |conn, _| {
        give_up(conn, message);
        true
    })
}

#[test]
fn a_prefill_engine_that_gives_up_within_its_stream_has_failed() {
    let (failing, holding) = (giving_up("Prefill transfer failed"), Holding::with_head());
    let alone = router(&[&failing], &[&holding.worker], &flags(&ONCE));
    alone.post("/generate", STREAM).assert_refused(502, "prefill_given_up");
    wait_until("the other leg to be closed", || holding.closed() == 1);
    assert_eq!((breaker(&alone, &failing), breaker(&alone, &holding.worker)), (1.0, 0.0));
    assert_eq!((errors(&alone, &failing), errors(&alone, &holding.worker)), (1.0, 0.0));
    let (good, waiting) = (prefill(), Latch::default());
    let when = waiting.clone();
    let decode = Worker::start(move |conn, _| {
        conn.begin_stream();
        when.wait();
        let is_sent = conn.chunk(TOKEN);
        conn.end_stream();
        is_sent
    });
    let router = router(&[&failing, &good], &[&decode], &flags(&["--disable-circuit-breaker"]));
    let mut clients = many(&router, 2);
    wait_until("both to have a prefill worker that is well", || good.count("POST") == 2);
    waiting.open();
    assert!(clients.iter_mut().all(|client| client.receive().status() == 200));
    wait_until("the leases to end", || is_idle(&router));
}

/// What an engine that finds fault with a stream's request says in its first event: no worker has failed.
const WRONG: &str =
    "data: {\"error\":{\"message\":\"too many tokens\",\"code\":400,\"retryable\":false}}\n\n";

#[test]
fn what_both_engines_find_wrong_with_a_stream_is_told_by_decode_whoever_says_it_first() {
    for prefill_is_first in [true, false] {
        let said = Latch::default();
        let finding = |waits: bool| {
            let said = said.clone();
            Worker::start(move |conn, _| {
                conn.begin_stream();
                if waits {
                    said.wait();
                }
                conn.chunk(WRONG.as_bytes());
                conn.chunk(DONE);
                conn.end_stream();
                true
            })
        };
        let (prefill, decode) = (finding(!prefill_is_first), finding(prefill_is_first));
        let router = router(&[&prefill], &[&decode], &flags(&[]));
        let mut client = sent(&router, STREAM);
        let (first, second) = if prefill_is_first { (&prefill, &decode) } else { (&decode, &prefill) };
        wait_until("both to be asked", || first.count("POST") == 1 && second.count("POST") == 1);
        said.pass(1);
        let answer = client.receive();
        assert_eq!((answer.status(), answer.text().starts_with(WRONG)), (200, true), "{}", answer.text());
        wait_until("the leases to end", || is_idle(&router));
        for worker in [&prefill, &decode] {
            assert_eq!((breaker(&router, worker), errors(&router, worker)), (0.0, 0.0));
            assert_eq!(worker.count("POST"), 1, "nobody is asked again");
        }
    }
}

#[test]
fn a_decode_engine_that_gives_up_within_its_stream_has_failed() {
    let (done, failing) = (prefill(), giving_up("Decode transfer failed"));
    let alone = router(&[&done], &[&failing], &flags(&ONCE));
    alone.post("/generate", STREAM).assert_refused(502, "decode_given_up");
    wait_until("the leases to end", || is_idle(&alone));
    assert_eq!((breaker(&alone, &done), breaker(&alone, &failing)), (0.0, 1.0));
    assert_eq!((errors(&alone, &done), errors(&alone, &failing)), (0.0, 1.0));
    let good = decode();
    let router = router(&[&done], &[&failing, &good], &flags(&["--disable-circuit-breaker"]));
    for _ in 0..4 {
        assert_eq!(router.post("/generate", STREAM).status(), 200);
    }
    assert!(failing.count("POST") > 1);
    wait_until("the leases to end", || is_idle(&router));
}

#[test]
fn a_failed_transfer_that_decode_tells_of_first_is_prefills_fault_alone() {
    for (body, status, code) in [(STREAM, 502, "prefill_given_up"), (BODY, 500, "prefill_internal_error")] {
        let is_stream = body == STREAM;
        let told = Latch::default();
        let (first, then) = (told.clone(), told);
        let fail = move |conn: &mut Conn, message: &str| match is_stream {
            true => give_up(conn, message),
            false => conn.answer("500 Internal Server Error", "", b"{}"),
        };
        let decode = Worker::start(move |conn, _| {
            fail(conn, "Decode transfer failed");
            first.pass(1);
            true
        });
        let prefill = Worker::start(move |conn, _| {
            then.wait();
            fail(conn, "Prefill transfer failed");
            true
        });
        let router = router(&[&prefill], &[&decode], &flags(&ONCE));
        let answer = router.post("/generate", body);
        assert_eq!((answer.status(), answer.header("x-router-error-code")), (status, Some(code)));
        wait_until("the leases to end", || is_idle(&router));
        assert_eq!((breaker(&router, &prefill), breaker(&router, &decode)), (1.0, 0.0), "{code}");
        assert_eq!((errors(&router, &prefill), errors(&router, &decode)), (1.0, 0.0), "{code}");
    }
}

#[test]
fn a_decode_engine_that_gives_up_while_prefill_is_at_work_is_alone_to_blame() {
    let (holding, failing) = (Holding::with_head(), giving_up("Out of memory"));
    let router = router(&[&holding.worker], &[&failing], &flags(&ONCE));
    router.post("/generate", STREAM).assert_refused(502, "decode_given_up");
    wait_until("prefill's connection to be closed", || holding.closed() == 1);
    wait_until("the leases to end", || is_idle(&router));
    assert_eq!((breaker(&router, &holding.worker), breaker(&router, &failing)), (0.0, 1.0));
    assert_eq!((errors(&router, &holding.worker), errors(&router, &failing)), (0.0, 1.0));
}

#[test]
fn a_first_event_is_held_until_it_is_whole_and_a_later_one_is_the_clients() {
    let go = Latch::default();
    let when = go.clone();
    let decode = Worker::start(move |conn, _| {
        let (first, second) = TOKEN.split_at(7);
        conn.begin_stream();
        conn.chunk(first);
        when.wait();
        conn.chunk(second);
        when.wait();
        conn.chunk(abort("Out of memory").as_bytes());
        conn.end_stream();
        true
    });
    let prefill = prefill();
    let router = router(&[&prefill], &[&decode], &flags(&[]));
    let mut client = sent(&router, STREAM);
    wait_until("decode to have begun", || decode.count("POST") == 1);
    go.pass(1);
    client.reader.head().expect("an answer").expect("a head");
    assert_eq!(client.reader.chunk().expect("a chunk"), TOKEN, "at once, and in one piece");
    go.pass(1);
    assert_eq!(client.reader.chunk().expect("a chunk"), abort("Out of memory").as_bytes());
    assert!(client.reader.chunk().expect("the end").is_empty());
    wait_until("the leases to end", || is_idle(&router));
}

#[test]
fn a_first_event_that_is_too_long_to_be_held_goes_on_as_it_comes() {
    let held = Latch::default();
    let when = held.clone();
    let decode = Worker::start(move |conn, _| {
        conn.begin_stream();
        conn.chunk(&[b"data: ".as_slice(), &[b'x'; 20_000]].concat());
        when.wait();
        conn.end_stream();
        true
    });
    let prefill = prefill();
    let router = router(&[&prefill], &[&decode], &flags(&[]));
    let mut client = sent(&router, STREAM);
    client.reader.head().expect("an answer").expect("a head");
    assert!(client.reader.chunk().expect("a chunk").starts_with(b"data: xxx"), "while the event goes on");
    held.pass(1);
    wait_until("the leases to end", || is_idle(&router));
}
