//! Which leg failed, and which role a worker has, in the log.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{BODY, call, engine, in_mode};
use crate::common::legs::{Holding, QUICK, command_line, decode, decode_after, prefill};
use crate::common::{Log, Router, Worker, wait_for, wait_until};

/// A router in front of these, whose lines about requests are objects.
fn logged(prefill: &[&Worker], decode: &[&Worker], args: &[&str]) -> (Router, Log) {
    let args = [&QUICK[..], &["--access-log", "json"], args].concat();
    let line = command_line(prefill, decode, "9000", &args);
    Router::start_logged(&[], &line.iter().map(String::as_str).collect::<Vec<_>>())
}

fn record(log: &Log) -> Value {
    let object =
        |line: String| line.starts_with('{').then(|| serde_json::from_str(&line).expect("an object"));
    wait_for("the line", || log.lines().into_iter().find_map(object))
}

fn line_with(log: &Log, parts: &[&str]) -> String {
    let is_it = |line: &String| parts.iter().all(|part| line.contains(part));
    wait_for(&format!("a line with {parts:?}"), || log.lines().into_iter().find(is_it))
}

#[test]
fn the_leg_that_failed_is_named_with_its_worker() {
    for leg in ["prefill", "decode"] {
        let broken = Worker::answering("500 Internal Server Error", "", "");
        // Who waits for the KV, as decode engines do, does not answer before prefill has failed.
        let (good_prefill, waiting_decode) = (prefill(), Holding::silent().worker);
        let args = ["--disable-retries"];
        let (router, log) = match leg {
            "prefill" => logged(&[&broken], &[&waiting_decode], &args),
            _ => logged(&[&good_prefill], &[&broken], &args),
        };
        assert_eq!(router.post("/generate", BODY).status(), 500, "{leg}");
        let record = record(&log);
        assert_eq!(record["failed_leg"], leg, "{record}");
        assert_eq!(record["failed_worker"], broken.url(), "{record}");
    }
}

#[test]
fn a_leg_that_failed_before_another_try_is_named_in_its_warning_and_in_the_line() {
    let (broken, good) = (Worker::answering("503 Service Unavailable", "", ""), Arc::new(prefill()));
    let decode = decode_after(&good);
    let (router, log) = logged(&[&broken, &good], &[&decode], &[]);
    wait_until("all to be there", || router.get("/readiness").json()["healthy_workers"] == 3);
    // In turn: one of two requests comes to it first.
    let meets = |_: &usize| {
        assert_eq!(router.post("/generate", BODY).status(), 200);
        broken.count("POST /generate") > 0
    };
    assert!((0..2).any(|at| meets(&at)));
    let url = broken.url();
    let warning = line_with(&log, &["WARN", "trying again in", &url]);
    assert!(warning.contains("leg=\"prefill\""), "{warning}");
    let line = line_with(&log, &["\"attempts\":2"]);
    let record: Value = serde_json::from_str(&line).expect("an object");
    assert_eq!((&record["failed_leg"], &record["failed_worker"]), (&json!("prefill"), &json!(url)));
    assert_eq!(record["prefill_worker"], good.url(), "{record}");
}

#[test]
fn a_request_that_went_well_and_one_without_legs_name_none() {
    let (good_prefill, good_decode) = (prefill(), decode());
    let (router, log) = logged(&[&good_prefill], &[&good_decode], &[]);
    assert_eq!(router.post("/generate", BODY).status(), 200);
    let failing = Worker::answering("500 Internal Server Error", "", "");
    let args = ["--access-log", "json", "--disable-retries"];
    let (regular, regular_log) = Router::start_logged(&[failing.url()], &args);
    assert_eq!(regular.post("/generate", BODY).status(), 500);
    for record in [record(&log), record(&regular_log)] {
        assert_eq!(record.get("failed_leg"), None, "{record}");
    }
}

#[test]
fn what_was_expected_to_be_cached_is_told_of_each_leg() {
    let (good_prefill, good_decode) = (prefill(), decode());
    let args = ["--prefill-policy", "cache_aware", "--decode-policy", "cache_aware"];
    let (router, log) = logged(&[&good_prefill], &[&good_decode], &args);
    assert_eq!(router.post("/generate", BODY).status(), 200);
    let record = record(&log);
    for key in ["prefill_predicted_cached_tokens", "decode_predicted_cached_tokens"] {
        assert_eq!(record[key], 0, "{key} of {record}");
    }
    assert_eq!(record.get("predicted_cached_tokens"), None, "{record}");
}

#[test]
fn the_start_and_workers_that_come_are_told_with_the_role() {
    let (first, second) = (engine(in_mode("prefill")), engine(in_mode("decode")));
    let args = ["--decode-policy", "random"];
    let (router, log) = logged(&[&first], &[&second], &args);
    let start = line_with(&log, &["starting"]);
    for part in [
        "decode_policy=\"random\"",
        "prefill_policy=\"round_robin\"",
        "prefill_workers=1",
        "decode_workers=1",
    ] {
        assert!(start.contains(part), "no {part} in {start}");
    }
    line_with(&log, &["ready", &first.url(), "role=\"prefill\""]);
    line_with(&log, &["ready", &second.url(), "role=\"decode\""]);
    let third = engine(in_mode("decode"));
    let body = json!({"url": third.url(), "worker_type": "decode"}).to_string();
    assert_eq!(call(&router, "POST", "/workers", &body).status(), 202);
    line_with(&log, &["registered", &third.url(), "role=\"decode\""]);
    let (_alone, alone_log) = Router::start_logged(&[dead()], &[]);
    assert!(!line_with(&alone_log, &["starting"]).contains("prefill"), "nothing of pairs without them");
}

fn dead() -> String {
    crate::common::worker::dead_url()
}
