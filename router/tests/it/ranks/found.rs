//! By which ranks an engine is addressed.

use serde_json::json;

use super::{add, listed, router, shown, workers};
use crate::common::{RankedEngine, Router, wait_until};

#[test]
fn each_rank_is_a_worker_with_the_engines_facts_and_an_id_that_stays() {
    let (engine, single) = (RankedEngine::start(0..4), RankedEngine::start(0..1));
    let before = {
        let router = router(&[&engine, &single], &[]);
        wait_until("all to be ready", || listed(&router).len() == 5);
        let ranks = (0..4).map(|rank| engine.rank_url(rank));
        assert_eq!(listed(&router), ranks.chain([single.url()]).collect::<Vec<_>>());
        for (rank, row) in workers(&router).iter().enumerate().take(4) {
            assert_eq!(
                (&row["model_id"], &row["is_healthy"], &row["state"]),
                (&json!("m"), &json!(true), &json!("ready"))
            );
            let labels = &row["metadata"]["labels"];
            assert_eq!(labels["dp_rank"], rank.to_string());
            assert_eq!((&labels["dp_size"], &labels["dp_base_url"]), (&json!("4"), &json!(engine.url())));
            let id = row["id"].as_str().expect("an id");
            assert_eq!((&shown(&router, id), &shown(&router, &engine.rank_url(rank as u32))), (row, row));
        }
        let whole = shown(&router, &engine.url());
        assert_eq!((&whole["url"], whole["ranks"].as_array().map(Vec::len)), (&json!(engine.url()), Some(4)));
        assert!(whole["metadata"]["labels"].get("dp_rank").is_none(), "{whole}");
        assert!(shown(&router, &single.url()).get("ranks").is_none());
        workers(&router)
    };
    let again = router(&[&engine, &single], &[]);
    wait_until("all to be ready", || listed(&again).len() == 5);
    let ids = |rows: &[serde_json::Value]| rows.iter().map(|row| row["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&before), ids(&workers(&again)));
}

#[test]
fn without_the_flag_an_engine_is_one_worker() {
    let engine = RankedEngine::start(0..4);
    let router = Router::start(&[engine.url()], &[]);
    wait_until("the engine to be ready", || workers(&router)[0]["state"] == "ready");
    assert_eq!(listed(&router), [engine.url()]);
    assert_eq!(router.post("/generate", br#"{"text":"a"}"#).status(), 200);
    assert_eq!(engine.sent(), [None]);
}

#[test]
fn the_ranks_are_known_before_there_are_requests_also_where_nobody_probes() {
    let engine = RankedEngine::start(0..2);
    let router = Router::start(&[engine.url()], &["--dp-aware", "--disable-health-check"]);
    wait_until("the ranks", || listed(&router).len() == 2);
    assert!(workers(&router).iter().all(|row| row["is_healthy"] == true));
}

#[test]
fn an_engine_that_does_not_say_its_size_is_one_worker_and_that_is_told_once() {
    let engine = RankedEngine::start(0..2);
    engine.say(json!({"served_model_name": "m"}));
    let args = ["--dp-aware", "--worker-info-interval-secs", "0.05"];
    let (router, log) = Router::start_logged(&[engine.url()], &args);
    wait_until("the engine to be asked again", || engine.asked("/server_info") >= 5);
    assert_eq!(listed(&router), [engine.url()]);
    let is_told = |line: &String| line.contains("does not say its dp_size");
    wait_until("the line", || log.lines().iter().any(is_told));
    let lines = log.lines();
    let told: Vec<_> = lines.iter().filter(|line| is_told(line)).collect();
    assert!(told.len() == 1 && told[0].contains(&engine.url()), "{lines:?}");
}

#[test]
fn an_engine_that_contradicts_itself_gets_no_requests_and_one_clear_error() {
    for (dp_size, reported, part) in [
        (4, vec![0, 1], "dp_size 4, and reports the loads of 2 ranks (0, 1)"),
        (2, vec![0, 7], "dp_size 2, and reports the loads of 2 ranks (0, 7)"),
        (1, vec![0, 1], "dp_size 1, and reports the loads of 2 ranks (0, 1)"),
        (5000, vec![0], "1024 ranks are the most"),
    ] {
        let engine = RankedEngine::start(0..2);
        engine.say(RankedEngine::info(dp_size));
        engine.report(reported.into_iter().map(|rank| (rank, 0)));
        let (router, log) = Router::start_logged(&[], &["--dp-aware"]);
        let id = add(&router, &engine.url());
        wait_until("the engine to be refused", || shown(&router, &id)["state"] == "failed");
        let reason = shown(&router, &id)["reason"].as_str().expect("a reason").to_owned();
        assert!(reason.contains(part), "{reason}");
        assert_eq!(router.post("/generate", br#"{"text":"a"}"#).status(), 503);
        let is_told = |line: &&String| line.contains(part) && line.contains(&engine.url());
        wait_until("the line", || log.lines().iter().any(|line| is_told(&line)));
        assert_eq!(log.lines().iter().filter(is_told).count(), 1);
        // Mended and registered again it is taken.
        engine.become_ranks(0..2);
        add(&router, &engine.url());
        wait_until("the ranks", || listed(&router).len() == 2);
    }
}

#[test]
fn numbers_that_cannot_be_had_yet_are_waited_for() {
    let engine = RankedEngine::start(4..6);
    engine.report_as(Some("503 Service Unavailable"));
    let router = Router::start(&[engine.url()], &["--dp-aware"]);
    wait_until("the engine to be asked", || engine.asked("/v1/loads") >= 2);
    let row = shown(&router, &engine.url());
    assert!(row["reason"].as_str().is_some_and(|why| why.contains("numbers of its ranks")), "{row}");
    engine.report_as(None);
    wait_until("the ranks", || listed(&router) == [engine.rank_url(4), engine.rank_url(5)]);
}

#[test]
fn an_engine_without_load_reports_has_the_usual_ranks() {
    let engine = RankedEngine::start(0..2);
    engine.report_as(Some("404 Not Found"));
    let router = router(&[&engine], &[]);
    assert_eq!(listed(&router), [engine.rank_url(0), engine.rank_url(1)]);
}
