//! Roles and ports that workers tell, and what is said against them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::{PORT, add, engine, in_mode, shown, shown_when};
use crate::common::{Latch, Router, Worker, wait_until};

fn router(args: &[&str]) -> (Router, crate::common::Log) {
    Router::start_logged(&[], args)
}

#[test]
fn who_says_nothing_of_roles_has_workers_asked_before_they_get_requests() {
    let (router, _log) = router(&[]);
    for (mode, role, port) in [
        ("null", "regular", Value::Null),
        ("prefill", "prefill", json!(8998)),
        ("decode", "decode", Value::Null),
    ] {
        let worker = engine(in_mode(mode));
        let id = add(&router, &json!({"url": worker.url()}));
        let shown = shown_when(&router, &id, "ready");
        assert_eq!((&shown["worker_type"], &shown["bootstrap_port"]), (&json!(role), &port), "{mode}");
    }
    let stats = router.get("/workers").json()["stats"].clone();
    assert_eq!(stats, json!({"prefill_count": 1, "decode_count": 1, "regular_count": 1}));
}

#[test]
fn a_worker_whose_role_is_not_known_yet_gets_no_request_for_another() {
    let go = Latch::default();
    let when = go.clone();
    let decode = Worker::probed(move |conn, request| {
        if request.first.starts_with("GET /server_info ") {
            when.wait();
            conn.answer("200 OK", "", in_mode("decode").to_string().as_bytes());
        } else if request.first.starts_with("GET /health ") {
            conn.answer("200 OK", "", b"");
        } else {
            conn.answer("404 Not Found", "", b"");
        }
        true
    });
    let regular = engine(in_mode("null"));
    let (router, _log) = router(&["--policy", "round_robin", "--disable-retries"]);
    let other = add(&router, &json!({"url": regular.url(), "worker_type": "regular"}));
    shown_when(&router, &other, "ready");
    let id = add(&router, &json!({"url": decode.url()}));
    (0..4).for_each(|_| assert_eq!(router.post("/generate", b"{}").status(), 200));
    go.open();
    assert_eq!(shown_when(&router, &id, "ready")["worker_type"], "decode");
    (0..4).for_each(|_| assert_eq!(router.post("/generate", b"{}").status(), 200));
    assert_eq!((decode.count("POST"), regular.count("POST")), (0, 8));
}

#[test]
fn a_role_or_port_that_is_not_the_worker_s_fails_with_one_line() {
    let (router, log) = router(&[]);
    for (mode, said, parts) in [
        (
            "decode",
            json!({"worker_type": "prefill"}),
            ["given as a prefill worker", "says that it is a decode worker"],
        ),
        (
            "null",
            json!({"worker_type": "decode"}),
            ["given as a decode worker", "says that it is a regular worker"],
        ),
        ("prefill", json!({"worker_type": "regular"}), ["given as a regular worker", "is a prefill worker"]),
        (
            "prefill",
            json!({"worker_type": "prefill", "bootstrap_port": PORT}),
            ["given as 9123", "says that it is 8998"],
        ),
        ("prefill", json!({"bootstrap_port": PORT}), ["given as 9123", "leave the port out"]),
    ] {
        let worker = engine(in_mode(mode));
        let mut body = said.clone();
        body["url"] = json!(worker.url());
        let id = add(&router, &body);
        let shown = shown_when(&router, &id, "failed");
        assert_eq!((&shown["is_healthy"], &shown["job_status"]["status"]), (&json!(false), &json!("failed")));
        let reason = shown["reason"].as_str().expect("a reason");
        let told = |line: &String| line.contains("ERROR") && line.contains(&worker.url());
        // The log has a thread of its own.
        wait_until("the log to tell it", || log.lines().iter().any(told));
        let lines: Vec<String> = log.lines().into_iter().filter(told).collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        for part in parts.into_iter().chain(["register it again"]) {
            assert!(reason.contains(part) && lines[0].contains(part), "{said}: no {part} in {reason}");
        }
        // Registered as it is it begins anew.
        let id = add(&router, &json!({"url": worker.url()}));
        shown_when(&router, &id, "ready");
    }
}

#[test]
fn what_a_worker_says_is_no_contradiction_where_it_agrees_or_says_nothing() {
    let (router, _log) = router(&[]);
    for (info, said, port) in [
        (in_mode("prefill"), json!({"worker_type": "prefill", "bootstrap_port": 8998}), json!(8998)),
        (json!({}), json!({"worker_type": "prefill", "bootstrap_port": PORT}), json!(PORT)),
        (json!({}), json!({"worker_type": "prefill"}), Value::Null),
        (in_mode("null"), json!({"worker_type": null, "bootstrap_port": null}), Value::Null),
        (json!({"disaggregation_mode": null}), json!({"worker_type": "decode"}), Value::Null),
    ] {
        let worker = engine(info);
        let mut body = said.clone();
        body["url"] = json!(worker.url());
        let id = add(&router, &body);
        let shown = shown_when(&router, &id, "ready");
        let role = said["worker_type"].as_str().unwrap_or("regular");
        assert_eq!((&shown["worker_type"], &shown["bootstrap_port"]), (&json!(role), &port), "{said}");
    }
}

#[test]
fn an_engine_whose_connections_end_is_asked_at_once_for_its_role() {
    let other = Arc::new(AtomicBool::new(false));
    let is_other = Arc::clone(&other);
    let worker = Worker::probed(move |conn, request| {
        let mode = if is_other.load(Ordering::SeqCst) { "decode" } else { "null" };
        let status = match request.first.split(' ').nth(1).expect("a path") {
            "/health" | "/server_info" | "/generate" => "200 OK",
            _ => "404 Not Found",
        };
        conn.answer(status, "", in_mode(mode).to_string().as_bytes());
        true
    });
    let (router, _log) = router(&["--worker-info-interval-secs", "3600"]);
    let id = add(&router, &json!({"url": worker.url()}));
    shown_when(&router, &id, "ready");
    assert_eq!(router.post("/generate", b"{}").status(), 200);
    other.store(true, Ordering::SeqCst);
    // As a restart does; nothing was under way.
    worker.hang_up();
    wait_until("its other role", || shown(&router, &id)["worker_type"] == "decode");
}

#[test]
fn a_worker_that_becomes_another_one_gets_no_more_requests() {
    let other = Arc::new(AtomicBool::new(false));
    let is_other = Arc::clone(&other);
    let worker = Worker::probed(move |conn, request| {
        let body = if is_other.load(Ordering::SeqCst) { in_mode("prefill") } else { in_mode("null") };
        let status = match request.first.split(' ').nth(1).expect("a path") {
            "/health" | "/server_info" | "/generate" => "200 OK",
            _ => "404 Not Found",
        };
        conn.answer(status, "", body.to_string().as_bytes());
        true
    });
    let (router, log) = router(&["--worker-info-interval-secs", "0.05"]);
    let id = add(&router, &json!({"url": worker.url(), "worker_type": "regular"}));
    shown_when(&router, &id, "ready");
    assert_eq!(router.post("/generate", b"{}").status(), 200);
    other.store(true, Ordering::SeqCst);
    let shown = shown_when(&router, &id, "failed");
    assert!(
        shown["reason"].as_str().expect("a reason").contains("says that it is a prefill worker"),
        "{shown}"
    );
    wait_until("a line about it", || {
        log.lines().iter().any(|line| line.contains("ERROR") && line.contains("is a prefill worker"))
    });
    let before = worker.count("POST");
    assert_eq!(router.post("/generate", b"{}").status(), 503);
    assert_eq!(worker.count("POST"), before);
}

#[test]
fn a_worker_that_is_not_probed_is_what_it_was_said_to_be_until_it_has_answered() {
    let (router, _log) = router(&["--disable-health-check"]);
    let prefill = engine(in_mode("prefill"));
    let id = add(&router, &json!({"url": prefill.url()}));
    wait_until("its role to be known", || shown(&router, &id)["worker_type"] == "prefill");
    assert_eq!(shown(&router, &id)["state"], "ready");
    let decode = engine(in_mode("decode"));
    let id = add(&router, &json!({"url": decode.url(), "worker_type": "regular"}));
    let shown = shown_when(&router, &id, "failed");
    assert_eq!((&shown["worker_type"], &shown["is_healthy"]), (&json!("regular"), &json!(false)));
    assert_eq!(router.post("/generate", b"{}").status(), 503);
    assert_eq!((prefill.count("POST"), decode.count("POST")), (0, 0));
}

/// Lines of the log about engines that are not alike.
fn warnings(log: &crate::common::Log) -> Vec<String> {
    let lines = log.lines();
    lines.into_iter().filter(|line| line.contains("start them")).collect()
}

#[test]
fn engines_of_a_pair_that_were_started_unlike_are_told_of_in_one_line() {
    let sized = |mode, tp: u64, method: &str| {
        let mut said = in_mode(mode);
        said["tp_size"] = json!(tp);
        said["dp_size"] = json!(2);
        said["load_balance_method"] = json!(method);
        engine(said)
    };
    let alike = [sized("prefill", 4, "follow_bootstrap_room"), sized("decode", 4, "round_robin")];
    let others = [sized("decode", 8, "round_robin"), sized("decode", 8, "round_robin")];
    let (router, log) = router(&["--worker-info-interval-secs", "0.05"]);
    for worker in &alike {
        let id = add(&router, &json!({"url": worker.url()}));
        shown_when(&router, &id, "ready");
    }
    assert_eq!(warnings(&log), [] as [String; 0], "the defaults of either role go together");
    for worker in &others {
        let id = add(&router, &json!({"url": worker.url()}));
        shown_when(&router, &id, "ready");
    }
    wait_until("the line", || !warnings(&log).is_empty());
    let told = warnings(&log);
    assert_eq!(told.len(), 1, "{told:?}");
    for part in ["WARN", "model=m", "tp_size is 4 for prefill workers and 4 or 8 for decode workers"] {
        assert!(told[0].contains(part), "no {part:?} in {told:?}");
    }
    let scattered = sized("prefill", 4, "round_robin");
    let id = add(&router, &json!({"url": scattered.url()}));
    shown_when(&router, &id, "ready");
    wait_until("a second line", || warnings(&log).len() == 2);
    assert!(warnings(&log)[1].contains("start them with --load-balance-method follow_bootstrap_room"));
}
