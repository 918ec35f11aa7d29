//! Engines that hang: who is blamed, who is asked, and what becomes of the request.

use std::sync::Arc;

use super::legs::{Holding, breaker, called_off, command_line, decode, errors, prefill, rooms, router};
use super::{BODY, ONCE, STREAM, TOKEN, flags, is_idle, sent};
use crate::common::{Conn, Latch, Router, Worker, wait_until};

/// What SGLang's decode engine says of a prefill engine that gives no sign of life.
const LOST: &str = "Decode transfer failed: KVTransferError(Lost connection with prefill instance)";

/// Tells of it: before an answer of success has begun, or within one.
fn fail(conn: &mut Conn, is_stream: bool) {
    if is_stream {
        let reason = format!(r#"{{"type":"abort","message":"{LOST}","status_code":500}}"#);
        conn.begin_stream();
        conn.chunk(
            format!("data: {{\"text\":\"\",\"meta_info\":{{\"finish_reason\":{reason}}}}}\n\n").as_bytes(),
        );
        conn.end_stream();
    } else {
        let body = format!(r#"{{"object":"error","message":"{LOST}","type":"500","code":500}}"#);
        conn.answer("500 Internal Server Error", "", body.as_bytes());
    }
}

/// A decode worker that fails for all rooms that `good` does not get, once `hung` has them.
fn decode_between(hung: &Arc<Holding>, good: &Arc<Worker>) -> Worker {
    let (hung, good) = (Arc::clone(hung), Arc::clone(good));
    Worker::start(move |conn, request| {
        let body = request.json();
        let room = body["bootstrap_room"].as_u64().expect("a number");
        let is_at = |worker: &Worker| rooms(worker).contains(&room);
        wait_until("the room to be known", || is_at(&good) || is_at(&hung.worker));
        if is_at(&good) {
            conn.answer("200 OK", "", b"{}");
        } else {
            fail(conn, body["stream"] == true);
        }
        true
    })
}

#[test]
fn a_prefill_worker_that_hangs_is_blamed_for_what_decode_says_and_left_by_the_next_try() {
    for body in
        [&br#"{"text":"hello","rid":"mine-1"}"#[..], br#"{"text":"hello","stream":true,"rid":"mine-1"}"#]
    {
        let (hung, good) = (Arc::new(Holding::silent()), Arc::new(prefill()));
        let decode = decode_between(&hung, &good);
        let router = router(&[&hung.worker, &good], &[&decode], &flags(&["--cb-failure-threshold", "2"]));
        for _ in 0..6 {
            assert_eq!(router.post("/generate", body).status(), 200);
        }
        let tries = hung.worker.count("POST /generate");
        assert_eq!(tries, 2, "its breaker is open then");
        assert_eq!(breaker(&router, &hung.worker), 1.0);
        assert_eq!((breaker(&router, &good), breaker(&router, &decode)), (0.0, 0.0));
        assert_eq!((errors(&router, &hung.worker), errors(&router, &decode)), (2.0, 0.0));
        wait_until("its connections to be closed", || hung.closed() == 2);
        wait_until("it to be called off", || called_off(&hung.worker) == ["mine-1", "mine-1"]);
        wait_until("the leases to end", || is_idle(&router));
    }
}

#[test]
fn a_prefill_worker_that_hangs_alone_is_named_to_the_client() {
    for body in [BODY, STREAM] {
        let hung = Holding::silent();
        let decode = Worker::start(move |conn, _| {
            fail(conn, body == STREAM);
            true
        });
        let router = router(&[&hung.worker], &[&decode], &flags(&ONCE));
        router.post("/generate", body).assert_refused(502, "prefill_handoff_failed");
        wait_until("the leases to end", || is_idle(&router));
        assert_eq!((breaker(&router, &hung.worker), breaker(&router, &decode)), (1.0, 0.0));
        assert_eq!((errors(&router, &hung.worker), errors(&router, &decode)), (1.0, 0.0));
    }
}

#[test]
fn a_hand_off_that_fails_after_prefill_has_done_its_part_is_decodes_fault() {
    let (done, told) = (Arc::new(prefill()), Latch::default());
    let (source, when) = (Arc::clone(&done), told.clone());
    let decode = Worker::start(move |conn, request| {
        let room = request.json()["bootstrap_room"].as_u64().expect("a number");
        wait_until("the room to be there", || rooms(&source).contains(&room));
        when.wait();
        fail(conn, false);
        true
    });
    let router = router(&[&done], &[&decode], &flags(&ONCE));
    let mut client = sent(&router, BODY);
    wait_until("prefill to be over", || decode.count("POST") == 1 && router.loads() == [0, 1]);
    told.pass(1);
    let answer = client.receive();
    assert_eq!((answer.status(), answer.header("x-router-error-code")), (500, Some("decode_internal_error")));
    assert_eq!(answer.json()["message"], LOST, "the whole answer goes on, though it was read");
    wait_until("the leases to end", || is_idle(&router));
    assert_eq!((breaker(&router, &done), breaker(&router, &decode)), (0.0, 1.0));
}

/// A worker that hangs with all that it is asked, health too, once it gets requests.
fn hanging() -> Worker {
    let hangs = Latch::default();
    let is_hung = std::sync::atomic::AtomicBool::default();
    Worker::probed(move |conn, request| {
        let is_post = request.first.starts_with("POST ");
        if is_hung.fetch_or(is_post, std::sync::atomic::Ordering::SeqCst) || is_post {
            hangs.wait();
            return false;
        }
        let status = if request.first.starts_with("GET /health ") { "200 OK" } else { "404 Not Found" };
        conn.answer(status, "", b"");
        true
    })
}

fn is_healthy(router: &Router, worker: &Worker) -> bool {
    let list = router.get("/workers").json();
    let workers = list["workers"].as_array().expect("a list");
    workers.iter().any(|row| row["url"] == worker.url().as_str() && row["is_healthy"] == true)
}

#[test]
fn an_engine_that_hangs_goes_out_of_rotation_by_what_its_pair_came_to() {
    // Only what is asked for the request's sake can find it out.
    let watch = [
        &["--health-check-interval-secs", "3600", "--health-check-timeout-secs", "1"][..],
        &["--health-failure-threshold", "1", "--first-byte-timeout-secs", "1", "--disable-retries"],
    ]
    .concat();
    let hung = hanging();
    let telling = Worker::start(|conn, _| {
        fail(conn, false);
        true
    });
    let told = router(&[&hung], &[&telling], &flags(&watch));
    told.post("/generate", BODY).assert_refused(502, "prefill_handoff_failed");
    wait_until("the one that hangs to be out", || !is_healthy(&told, &hung));
    assert!(is_healthy(&told, &telling));
    for leg in ["prefill", "decode"] {
        let (hung, well) = (hanging(), Holding::with_head());
        let router = match leg {
            "prefill" => router(&[&hung], &[&well.worker], &flags(&watch)),
            _ => router(&[&well.worker], &[&hung], &flags(&watch)),
        };
        router.post("/generate", STREAM).assert_refused(504, "pair_first_byte_timeout");
        wait_until("the one that hangs to be out", || !is_healthy(&router, &hung));
        assert!(is_healthy(&router, &well.worker), "{leg}");
    }
}

#[test]
fn a_pair_without_an_answer_in_time_accuses_nobody_and_both_are_called_off() {
    let body = br#"{"text":"hello","stream":true,"rid":"mine-2"}"#;
    for (limit, code) in
        [("--first-byte-timeout-secs", "pair_first_byte_timeout"), ("--request-timeout-secs", "pair_timeout")]
    {
        let (silent, head) = (Holding::silent(), Holding::with_head());
        let args = flags(&[limit, "1", "--cb-failure-threshold", "1"]);
        let line = command_line(&[&silent.worker], &[&head.worker], "9000", &args);
        let (router, log) = Router::start_logged(&[], &line.iter().map(String::as_str).collect::<Vec<_>>());
        router.post("/generate", body).assert_refused(504, code);
        for leg in [&silent, &head] {
            wait_until("it to be closed", || leg.closed() == 1);
            wait_until("it to be called off", || called_off(&leg.worker) == ["mine-2"]);
            assert_eq!((breaker(&router, &leg.worker), errors(&router, &leg.worker)), (0.0, 0.0));
        }
        wait_until("the leases to end", || is_idle(&router));
        let names_both = |line: &String| {
            line.contains(&format!("prefill_worker={}", silent.worker.url()))
                && line.contains(&format!(" worker={}", head.worker.url()))
        };
        wait_until("the log to name both", || log.lines().iter().any(names_both));
    }
}

#[test]
fn the_leg_that_is_late_is_blamed_where_the_other_one_has_done_its_part() {
    let limit = ["--first-byte-timeout-secs", "1", "--cb-failure-threshold", "1"];
    let (done, head) = (prefill(), Holding::with_head());
    let decode_is_late = router(&[&done], &[&head.worker], &flags(&limit));
    let body = br#"{"text":"hello","stream":true,"rid":"mine-3"}"#;
    decode_is_late.post("/generate", body).assert_refused(504, "decode_first_byte_timeout");
    wait_until("decode to be closed", || head.closed() == 1);
    wait_until("it to be called off", || called_off(&head.worker) == ["mine-3"]);
    assert_eq!((breaker(&decode_is_late, &done), breaker(&decode_is_late, &head.worker)), (0.0, 1.0));
    // Decode's answer waits for what is to be merged into it.
    let (silent, good) = (Holding::silent(), decode());
    let prefill_is_late = router(&[&silent.worker], &[&good], &flags(&limit));
    let body = br#"{"text":"hello","return_logprob":true,"rid":"mine-4"}"#;
    prefill_is_late.post("/generate", body).assert_refused(504, "prefill_first_byte_timeout");
    wait_until("prefill to be called off", || called_off(&silent.worker) == ["mine-4"]);
    assert_eq!((breaker(&prefill_is_late, &silent.worker), breaker(&prefill_is_late, &good)), (1.0, 0.0));
}

#[test]
fn a_prefill_leg_that_outlives_decodes_answer_is_called_off_and_blamed() {
    let silent = Holding::silent();
    let go = Latch::default();
    let when = go.clone();
    let decode = Worker::start(move |conn, _| {
        conn.begin_stream();
        conn.chunk(TOKEN);
        when.wait();
        conn.end_stream();
        true
    });
    let router = router(&[&silent.worker], &[&decode], &flags(&["--cb-failure-threshold", "1"]));
    let mut client = sent(&router, br#"{"text":"hello","stream":true,"rid":"mine-5"}"#);
    client.reader.head().expect("an answer").expect("a head");
    assert_eq!(client.reader.chunk().expect("a chunk"), TOKEN);
    assert_eq!(router.loads(), [1, 1], "that it is silent does no harm");
    go.pass(1);
    assert!(client.reader.chunk().expect("the end").is_empty());
    wait_until("the leases to end", || is_idle(&router));
    assert_eq!((breaker(&router, &silent.worker), breaker(&router, &decode)), (1.0, 0.0));
    assert_eq!((errors(&router, &silent.worker), errors(&router, &decode)), (1.0, 0.0));
    wait_until("prefill to be closed", || silent.closed() == 1);
    wait_until("it to be called off", || called_off(&silent.worker) == ["mine-5"]);
}
