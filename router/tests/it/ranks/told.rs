//! What is asked of engines with ranks, once for all of them, and what is told of each.

use std::time::Duration;

use serde_json::{Value, json};

use super::{listed, router, series};
use crate::common::{RankedEngine, wait_until};

/// The values of a field in the order of the rows.
fn field(rows: &Value, name: &str) -> Vec<Value> {
    rows.as_array().expect("a list").iter().map(|row| row[name].clone()).collect()
}

#[test]
fn an_engine_is_probed_and_asked_for_its_loads_once_for_all_ranks() {
    let engines = [RankedEngine::start(0..4), RankedEngine::start(4..8)];
    let interval = "2";
    let args = [
        "--policy",
        "power_of_two",
        "--load-poll-interval-secs",
        interval,
        "--health-check-interval-secs",
        "1",
    ];
    let begun = std::time::Instant::now();
    let router = router(&[&engines[0], &engines[1]], &args);
    wait_until("all ranks", || listed(&router).len() == 8);
    wait_until("the second question", || engines.iter().all(|engine| engine.asked("/v1/loads") >= 2));
    let asked = engines.iter().map(|engine| (engine.asked("/v1/loads"), engine.asked("/health")));
    let asked: Vec<_> = asked.collect();
    let elapsed = begun.elapsed();
    for (loads, probes) in asked {
        // One at the start, and one each time.
        assert!(loads as u64 <= 1 + elapsed.as_secs() / 2, "{loads} within {elapsed:?}");
        assert!(elapsed < Duration::from_secs(2) || loads >= 2);
        // The first ones may find nobody yet, which is over within a second.
        assert!(probes as u64 <= 2 + elapsed.as_secs(), "{probes} within {elapsed:?}");
    }
}

#[test]
fn a_rank_is_chosen_by_the_load_that_the_engine_reports_of_it() {
    let engine = RankedEngine::start(0..2);
    engine.report([(0, 1_000_000), (1, 0)]);
    let args = ["--policy", "power_of_two", "--load-poll-interval-secs", "0.1"];
    let router = router(&[&engine], &args);
    let before = engine.asked("/v1/loads");
    wait_until("a report", || engine.asked("/v1/loads") > before + 1);
    (0..10).for_each(|_| assert_eq!(router.post("/generate", br#"{"text":"a"}"#).status(), 200));
    assert_eq!(engine.sent(), vec![Some(1); 10]);
}

#[test]
fn loads_are_told_by_rank_and_each_engine_is_asked_once() {
    let (engine, single) = (RankedEngine::start(4..6), RankedEngine::start(0..1));
    let router = router(&[&engine, &single], &["--policy", "random"]);
    wait_until("all to be ready", || listed(&router).len() == 3);
    let urls = [engine.rank_url(4), engine.rank_url(5), single.url()];
    let before = engine.asked("/v1/loads");
    let told = router.get("/get_loads").json();
    assert_eq!(
        (field(&told["workers"], "worker"), field(&told["workers"], "load")),
        (json_of(&urls), vec![json!(104), json!(105), json!(100)])
    );
    let told = router.get("/v1/loads").json();
    assert_eq!(
        (field(&told["loads"], "worker"), field(&told["loads"], "dp_rank")),
        (json_of(&urls), vec![json!(4), json!(5), json!(0)])
    );
    assert_eq!((&told["dp_rank_count"], &told["aggregate"]["total_tokens"]), (&json!(3), &json!(309)));
    assert_eq!(engine.asked("/v1/loads"), before + 2);
    // One that is down has its ranks in the list.
    engine.worker.kill();
    let told = router.get("/get_loads").json();
    assert_eq!(
        (field(&told["workers"], "worker"), field(&told["workers"], "load")),
        (json_of(&urls), vec![json!(-1), json!(-1), json!(100)])
    );
}

fn json_of(texts: &[String]) -> Vec<Value> {
    texts.iter().map(|text| json!(text)).collect()
}

#[test]
fn what_is_for_all_engines_reaches_each_once() {
    let engines = [RankedEngine::start(0..4), RankedEngine::start(0..2)];
    let router = router(&[&engines[0], &engines[1]], &["--policy", "random"]);
    wait_until("all ranks", || listed(&router).len() == 6);
    let flushed = router.post("/flush_cache", b"");
    assert_eq!((flushed.status(), &flushed.json()["total_workers"]), (200, &json!(2)));
    assert_eq!(router.post("/abort_request", br#"{"rid":"r"}"#).status(), 200);
    router.get("/engine_metrics");
    let infos = router.get("/server_info").json();
    assert_eq!(
        field(&infos["router"]["workers"], "url"),
        json_of(&engines.each_ref().map(RankedEngine::url))
    );
    for engine in &engines {
        for path in ["/flush_cache", "/abort_request", "/metrics"] {
            wait_until("the calls", || engine.asked(path) > 0);
            assert_eq!(engine.asked(path), 1, "{path}");
        }
    }
}

#[test]
fn metrics_tell_of_each_rank_and_of_the_probes_of_the_engine() {
    let engine = RankedEngine::start(0..2);
    let router = router(&[&engine], &["--policy", "round_robin"]);
    (0..4).for_each(|_| assert_eq!(router.post("/generate", br#"{"text":"a"}"#).status(), 200));
    for name in [
        "smg_worker_selection_total",
        "smg_worker_cb_state",
        "smg_worker_requests_active",
        "smg_worker_health",
    ] {
        let lines = series(&router, &format!("{name}{{"));
        for rank in [0, 1] {
            let label = format!("worker=\"{}\"", engine.rank_url(rank));
            assert_eq!(lines.iter().filter(|line| line.contains(&label)).count(), 1, "{label} in {lines:?}");
        }
        assert!(
            name != "smg_worker_selection_total" || lines.iter().all(|line| line.ends_with(" 2")),
            "{lines:?}"
        );
    }
    let checks = series(&router, "smg_worker_health_checks_total{");
    assert_eq!(checks.len(), 2, "{checks:?}");
    assert!(checks.iter().all(|line| line.contains(&format!("worker=\"{}\"", engine.url()))), "{checks:?}");
}

#[test]
fn breakers_are_of_ranks() {
    let engine = RankedEngine::start(0..2);
    let router =
        router(&[&engine], &["--policy", "round_robin", "--cb-failure-threshold", "2", "--disable-retries"]);
    engine.fail(1);
    wait_until("the breaker of rank 1 to open", || {
        router.post("/generate", br#"{"text":"a"}"#);
        super::shown(&router, &engine.rank_url(1))["circuit_breaker"] == "open"
    });
    assert_eq!(super::shown(&router, &engine.rank_url(0))["circuit_breaker"], "closed");
    assert_eq!(super::shown(&router, &engine.url())["circuit_breaker"], "closed");
    let failed = engine.sent().iter().filter(|rank| **rank == Some(1)).count();
    (0..10).for_each(|_| assert_eq!(router.post("/generate", br#"{"text":"a"}"#).status(), 200));
    assert_eq!(engine.sent().iter().filter(|rank| **rank == Some(1)).count(), failed);
}
