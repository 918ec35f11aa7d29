//! A worker that takes questions and never answers costs its own answer, and no other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::{HANG, OK, Script, get_all, scripted, send, start, until_left};
use crate::common::{Message, Router, Worker, wait_until};

const HANGING: Script = &[
    ("GET /health ", OK, ""),
    ("GET /v1/loads", HANG, ""),
    ("GET /server_info", HANG, ""),
    ("GET /metrics", HANG, ""),
    ("POST /flush_cache", HANG, ""),
    ("GET /health_generate", HANG, ""),
];

const WELL: Script = &[
    ("GET /v1/loads", OK, r#"{"loads":[{"num_running_reqs":0,"num_waiting_reqs":0,"num_total_tokens":5}]}"#),
    ("GET /server_info", OK, r#"{"x":1}"#),
    ("GET /metrics", OK, "x 1\n"),
    ("POST /flush_cache", OK, ""),
    ("GET /health_generate", OK, ""),
];

#[test]
fn one_that_hangs_costs_its_own_answer() {
    let (hanging, well) = (scripted(HANGING), scripted(WELL));
    let router = start(&[&hanging, &well], &[]);
    let answers = get_all(&router, &["/get_loads", "/v1/loads", "/server_info", "/engine_metrics"]);
    let late = "no answer within the time limit";
    let [loads, ranks, info, metrics] = &answers[..] else { panic!("four") };
    assert_eq!(
        (&loads.json()["workers"][0]["load"], &loads.json()["workers"][1]["load"]),
        (&(-1).into(), &5.into())
    );
    assert_eq!(ranks.json()["loads"][0]["worker"], well.url());
    assert_eq!(ranks.json()["failed"][0]["error"], late);
    assert_eq!((info.status(), &info.json()["x"]), (200, &1.into()));
    super::exposition::assert_valid(metrics);
    assert!(metrics.text().contains(&format!("x{{worker_addr=\"{}\"}} 1\n", well.url())));
    let flushed = send(&router, "POST", "/flush_cache", "");
    assert_eq!((flushed.status(), &flushed.json()["workers_flushed"]), (206, &1.into()));
    assert_eq!(flushed.json()["failed"][0]["error"], late);
}

#[test]
fn a_question_does_not_hold_up_the_end() {
    let (hanging, well) = (scripted(HANGING), scripted(WELL));
    let mut router = start(&[&hanging, &well], &["--shutdown-pause-secs", "0"]);
    let mut client = router.client();
    client.send("POST /flush_cache?timeout=600 HTTP/1.1\r\nHost: router\r\nContent-Length: 0\r\n\r\n");
    wait_until("both to be asked", || {
        [&hanging, &well].iter().all(|worker| worker.count("POST /flush_cache") == 1)
    });
    router.signal("TERM");
    let flushed = client.receive();
    assert_eq!(flushed.status(), 206);
    let error = json!({"worker": hanging.url(), "error": "not waited for, for the router ends"});
    assert_eq!(flushed.json()["failed"][0], error);
    assert_eq!(router.wait().code(), Some(0));
}

#[test]
fn a_question_ends_with_the_requests_time() {
    let hanging = scripted(HANGING);
    let router = start(&[&hanging], &["--request-timeout-secs", "1"]);
    router.get("/health_generate").assert_refused(504, "upstream_timeout");
    assert_eq!(router.get("/health").status(), 200);
}

/// More workers than are asked at a time.
#[test]
fn many_workers_are_told_in_their_order() {
    let workers: Vec<_> = (0..40).map(|_| scripted(WELL)).collect();
    let router = start(&workers.iter().collect::<Vec<_>>(), &[]);
    let loads = router.get("/get_loads").json();
    let listed: Vec<_> =
        loads["workers"].as_array().expect("a list").iter().map(|row| row["worker"].clone()).collect();
    assert_eq!(listed, workers.iter().map(|worker| worker.url()).collect::<Vec<_>>());
    assert!(loads["workers"].as_array().expect("a list").iter().all(|row| row["load"] == 5), "{loads}");
    let flushed = send(&router, "POST", "/flush_cache", "");
    assert_eq!((flushed.status(), &flushed.json()["workers_flushed"]), (200, &40.into()));
}

/// One time limit holds for all, however many wait for their turn.
#[test]
fn many_that_hang_cost_as_much_as_one() {
    let workers: Vec<_> = (0..40).map(|_| scripted(HANGING)).collect();
    let router = start(&workers.iter().collect::<Vec<_>>(), &["--request-timeout-secs", "9"]);
    let loads = router.get("/get_loads");
    assert_eq!(loads.status(), 200, "before the request's own time is up: {}", loads.text());
    let loads = loads.json();
    let rows = loads["workers"].as_array().expect("a list");
    assert!(rows.len() == 40 && rows.iter().all(|row| row["load"] == -1 && row.get("state").is_none()));
}

/// The paths that a worker was asked for beside its health.
fn questions(worker: &Worker) -> Vec<String> {
    let seen = worker.seen().into_iter().map(|request| request.first);
    let asked =
        ["GET /v1/loads", "GET /server_info", "GET /metrics", "POST /flush_cache", "GET /health_generate"];
    seen.filter(|first| asked.iter().any(|path| first.starts_with(path))).collect()
}

/// A worker that is healthy as long as this is true, and answers nothing else but that its cache is empty.
fn ailing() -> (Arc<AtomicBool>, Worker) {
    let is_well = Arc::new(AtomicBool::new(true));
    let health = Arc::clone(&is_well);
    let worker = Worker::probed(move |conn, request| {
        match request.first.split(' ').nth(1) {
            Some("/health") if health.load(Ordering::SeqCst) => conn.answer(OK, "", b""),
            Some("/health") => conn.answer("503 Unwell", "", b""),
            Some("/flush_cache") => conn.answer(OK, "", b""),
            Some("/metrics" | "/v1/loads" | "/v1/loads?include=core" | "/health_generate") => {
                until_left(conn);
                return false;
            }
            _ => conn.answer("404 Not Found", "", b""),
        }
        true
    });
    (is_well, worker)
}

#[test]
fn one_that_is_known_to_be_unhealthy_is_not_asked_but_for_its_cache() {
    let ((is_well, ailing), well) = (ailing(), scripted(WELL));
    let args = ["--health-check-interval-secs", "1", "--health-failure-threshold", "1"];
    let router = start(&[&ailing, &well], &args);
    is_well.store(false, Ordering::SeqCst);
    wait_until("one to be unhealthy", || router.get("/readiness").json()["healthy_workers"] == 1);
    ailing.take_seen();
    let paths = ["/get_loads", "/v1/loads", "/server_info", "/engine_metrics", "/health_generate"];
    let answers: Vec<Message> = get_all(&router, &paths);
    assert!(answers.iter().all(|answer| answer.status() == 200));
    assert_eq!(questions(&ailing), [] as [String; 0]);
    let (sick, fit) = (ailing.url(), well.url());
    let expected = json!({"workers": [
        {"worker": sick, "load": -1, "state": "unhealthy"}, {"worker": fit, "load": 5},
    ]});
    assert_eq!(answers[0].json(), expected);
    let failed = json!([{"worker": sick, "error": "not asked, for it is unhealthy", "state": "unhealthy"}]);
    assert_eq!(answers[1].json()["failed"], failed);
    assert_eq!(answers[2].json()["router"]["workers"][0]["healthy"], false);
    super::exposition::assert_valid(&answers[3]);
    let up = |worker: &str, up: u8| format!("smg_engine_metrics_up{{worker_addr=\"{worker}\"}} {up}\n");
    assert!(answers[3].text().ends_with(&(up(&sick, 0) + &up(&fit, 1))), "{}", answers[3].text());
    assert_eq!(answers[4].json()["workers"], 1);
    let flushed = send(&router, "POST", "/flush_cache", "");
    assert_eq!((flushed.status(), &flushed.json()["workers_flushed"]), (200, &2.into()));
    assert_eq!(questions(&ailing), ["POST /flush_cache HTTP/1.1"]);
}

#[test]
fn where_all_are_unhealthy_nobody_is_asked() {
    let worker = scripted(&[("GET /health ", "503 Unwell", ""), ("GET /metrics", OK, "x 1\n")]);
    let router = Router::start(&[worker.url()], &[]);
    wait_until("a probe to be judged", || router.get("/workers").json()["workers"][0]["state"] == "probing");
    router.get("/engine_metrics").assert_refused(503, "no_available_workers");
    let loads = router.get("/v1/loads");
    loads.assert_refused(503, "no_available_workers");
    let failed: Value =
        json!([{"worker": worker.url(), "error": "not asked, for it is probing", "state": "probing"}]);
    assert_eq!(loads.json()["failed"], failed);
    assert_eq!(questions(&worker), [] as [String; 0]);
}
