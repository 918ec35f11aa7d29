//! A worker that takes questions and never answers costs its own answer, and no other.

use super::{HANG, OK, Script, get_all, scripted, send, start};

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
