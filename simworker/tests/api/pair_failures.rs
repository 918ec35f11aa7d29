//! How hand-offs fail, and what each side says then.

use std::io::Read;
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::client::{prompt, read};
use crate::fake_prefill::FakePrefill;
use crate::pair::{ALL_RANKS, DECODE, PREFILL, Pair, generate, message};

#[test]
fn rooms_are_checked() {
    let pair = Pair::start();
    let text = generate("x", 3);
    for worker in [PREFILL, DECODE] {
        let answer = pair.post(worker, "/generate", &text);
        assert_eq!(answer.status, 400);
        assert!(message(&answer).contains("without bootstrap room"), "{}", answer.body);
        let cases = [
            (json!([1, 2]), "2 entries; 1 are needed"),
            (json!(1u64 << 63), "below 2^63"),
            (json!("seven"), "bootstrap_room"),
            (json!(-1), "bootstrap_room"),
        ];
        for (room, words) in cases {
            let answer = pair.post(worker, "/generate", &pair.join(&text, &room));
            assert_eq!(answer.status, 400, "{room}");
            assert!(message(&answer).contains(words), "{room}: {}", answer.body);
        }
        let mut wrong = pair.join(&text, &json!(1));
        wrong["disagg_prefill_dp_rank"] = (-1).into();
        assert_eq!(pair.post(worker, "/generate", &wrong).status, 400);
        let queued = pair.join(&generate("x", 3), &json!(5));
        let waiting = pair.send(worker, "/generate", &queued);
        pair.wait_until("it waits", || pair.load(worker, 0)["num_waiting_reqs"] == 1);
        let again = pair.post(worker, "/generate", &queued);
        assert_eq!(again.status, 400);
        assert!(message(&again).contains("room 5"), "{}", again.body);
        drop(waiting);
        pair.wait_until_idle();
    }
    let mut hostless = text;
    hostless["bootstrap_room"] = 3.into();
    assert!(message(&pair.post(DECODE, "/generate", &hostless)).contains("bootstrap_host"));
}

#[test]
fn a_transfer_can_fail() {
    let pair = Pair::with(&["0:kv-fail=on,times=1"], |_| ());
    let body = generate(&prompt(1, 300), 5);
    let (prefill, decode) = pair.both("/generate", &body, 1);
    assert_eq!((prefill.status, decode.status), (500, 500), "{} {}", prefill.body, decode.body);
    assert!(message(&prefill).contains("Prefill transfer failed"), "{}", prefill.body);
    assert!(message(&decode).contains("Decode transfer failed"), "{}", decode.body);
    let (prefill, decode) = pair.both("/generate", &body, 2);
    assert_eq!((prefill.status, decode.status), (200, 200), "only once");
    for worker in [PREFILL, DECODE] {
        let metrics = pair.get(worker, "/metrics").body;
        let failed = metrics.lines().find(|line| line.starts_with("sglang:num_transfer_failed_reqs_total{"));
        assert!(failed.unwrap().ends_with(" 1"), "{failed:?}");
    }
    pair.wait_until_idle();
}

#[test]
fn a_transfer_can_fail_before_anything_is_streamed() {
    let pair = Pair::with(&["0:kv-fail=on"], |_| ());
    let mut body = generate(&prompt(1, 300), 5);
    body["stream"] = true.into();
    let (prefill, decode) = pair.both("/generate", &body, 1);
    for (answer, side) in [(prefill, "Prefill"), (decode, "Decode")] {
        let [event] = &answer.events()[..] else { panic!("{side}: more than the error: {}", answer.body) };
        let reason = &event["meta_info"]["finish_reason"];
        assert_eq!((&reason["type"], &reason["status_code"]), (&json!("abort"), &json!(500)), "{side}");
        assert!(reason["message"].as_str().unwrap().contains(&format!("{side} transfer failed")), "{reason}");
    }
    let completions = json!({"prompt": "one two three", "max_tokens": 4, "stream": true});
    let (prefill, decode) = pair.both("/v1/completions", &completions, 2);
    for (answer, side) in [(prefill, "Prefill"), (decode, "Decode")] {
        assert_eq!(answer.status, 200, "{side}: the scheduler speaks inside the stream");
        let [event] = &answer.events()[..] else { panic!("{side}: more than the error: {}", answer.body) };
        let error = &event["error"];
        assert_eq!(
            (&error["type"], &error["code"]),
            (&json!("INTERNAL_SERVER_ERROR"), &json!(500)),
            "{side}"
        );
        assert!(error["message"].as_str().unwrap().contains(&format!("{side} transfer failed")), "{error}");
    }
    pair.wait_until_idle();
}

#[test]
fn only_a_worker_that_sends_kv_can_fail_to() {
    let pair = Pair::start();
    let faults = json!({"kv-fail": "on"});
    for method in ["PUT", "PATCH"] {
        let refused = pair.control(method, &format!("/workers/{DECODE}/faults"), &faults);
        assert!(refused.status == 400 && refused.body.contains("kv-fail"), "{}", refused.body);
        assert_eq!(pair.control("GET", &format!("/workers/{DECODE}/faults"), &Value::Null).json(), json!({}));
    }
    let path = format!("/workers/{PREFILL}/faults");
    assert_eq!(pair.control("PATCH", &path, &faults).status, 200);
    let nothing = json!({"kv-fail": null});
    assert_eq!(pair.control("PATCH", &format!("/workers/{DECODE}/faults"), &nothing).status, 200);
}

#[test]
fn a_transfer_can_be_late() {
    let pair = Pair::with(&["0:kv-delay=60s"], |_| ());
    let body = pair.join(&generate(&prompt(2, 300), 5), &json!(1));
    let (prefill, decode) = (pair.send(PREFILL, "/generate", &body), pair.send(DECODE, "/generate", &body));
    assert_eq!(read(prefill).status, 200, "prefill has sent it");
    pair.wait_for_queue(DECODE, "decode_transfer_queue_reqs", 1);
    drop(decode);
    pair.wait_until_idle();
}

#[test]
fn requests_of_a_lost_prefill_worker_fail() {
    let pair = Pair::start();
    let body = generate(&prompt(3, 300), 5);
    assert_eq!(pair.both("/generate", &body, 1).1.status, 200);
    let waiting: Vec<_> =
        (2..5).map(|room| pair.send(DECODE, "/generate", &pair.join(&body, &json!(room)))).collect();
    pair.wait_for_queue(DECODE, "decode_transfer_queue_reqs", 3);
    let lonely = pair.send(PREFILL, "/generate", &pair.join(&body, &json!(9)));
    pair.wait_for_queue(PREFILL, "prefill_bootstrap_queue_reqs", 1);
    assert_eq!(pair.control("PUT", "/workers/0/faults", &json!({"die": "on"})).status, 200);
    assert!(std::net::TcpStream::connect(pair.address(PREFILL)).is_err(), "nobody is there");
    assert!(std::net::TcpStream::connect(("127.0.0.1", pair.bootstrap_port())).is_err());
    let mut rest = lonely;
    assert!(rest.read_to_end(&mut Vec::new()).is_err(), "its own clients see a reset");
    for connection in waiting {
        let answer = read(connection);
        assert_eq!(answer.status, 500);
        assert!(message(&answer).to_lowercase().contains("lost connection"), "{}", answer.body);
    }
    assert_eq!(pair.control("DELETE", "/workers/0/faults", &Value::Null).status, 200);
    pair.wait_until("the ranks have registered again", || {
        std::net::TcpStream::connect(("127.0.0.1", pair.bootstrap_port())).is_ok()
            && pair.bootstrap("GET", ALL_RANKS, &Value::Null).status == 200
    });
    assert_eq!(pair.both("/generate", &body, 9).1.status, 200, "as if nothing had been");
    pair.wait_until_idle();
}

#[test]
fn a_restart_takes_the_bootstrap_server_along() {
    let pair = Pair::start();
    assert_eq!(pair.control("POST", "/workers/0/restart", &Value::Null).status, 200);
    pair.wait_until("the ranks have registered again", || {
        std::net::TcpStream::connect(("127.0.0.1", pair.bootstrap_port())).is_ok()
            && pair.bootstrap("GET", ALL_RANKS, &Value::Null).status == 200
    });
    assert_eq!(pair.both("/generate", &generate("x", 2), 9).1.status, 200);
}

#[test]
fn a_prefill_worker_that_is_not_there_fails_the_handshake() {
    let pair = Pair::start();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut body = pair.join(&generate("x", 3), &json!(1));
    body["bootstrap_port"] = nobody.into();
    let answer = pair.post(DECODE, "/generate", &body);
    assert_eq!(answer.status, 500, "{}", answer.body);
    assert!(message(&answer).contains("Decode"), "{}", answer.body);
    pair.wait_until_idle();
}

#[test]
fn who_is_left_alone_gives_up_in_time() {
    let pair = Pair::with(&[], |config| config.engine.handoff.bootstrap_timeout_ns = 2_000_000_000);
    let body = pair.join(&generate("x", 3), &json!(1));
    let answer = pair.post(PREFILL, "/generate", &body);
    assert_eq!(answer.status, 500);
    assert!(message(&answer).contains("Prefill bootstrap failed"), "{}", answer.body);
    let metrics = pair.get(PREFILL, "/metrics").body;
    let failed = metrics.lines().find(|line| line.starts_with("sglang:num_bootstrap_failed_reqs_total{"));
    assert!(failed.unwrap().ends_with(" 1"), "{failed:?}");

    let pair = Pair::with(&[], |config| config.engine.handoff.transfer_timeout_ns = 2_000_000_000);
    let body = pair.join(&generate("x", 3), &json!(1));
    let answer = pair.post(DECODE, "/generate", &body);
    assert_eq!(answer.status, 500);
    assert!(message(&answer).contains("Decode transfer failed"), "{}", answer.body);
    pair.wait_until_idle();
}

#[test]
fn a_hand_off_that_breaks_off_says_nothing() {
    let pair = Pair::start();
    let prefill = FakePrefill::start();
    prefill.break_off();
    let mut body = pair.join(&generate("x", 3), &json!(1));
    body["bootstrap_port"] = prefill.port.into();
    let waiting = pair.send(DECODE, "/generate", &body);
    pair.wait_until("the hand-off broke off", || prefill.seen("/kv").len() == 1);
    // So many signs of life later it would have been tried again, or given up.
    let beats = prefill.seen("/health").len();
    pair.wait_until("signs of life", || prefill.seen("/health").len() >= beats + 4);
    pair.wait_for_queue(DECODE, "decode_transfer_queue_reqs", 1);
    assert_eq!(prefill.seen("/kv").len(), 1);
    drop(waiting);
    pair.wait_until_idle();
}
