//! Engines that are started anew with other ranks.

use super::{listed, router, shown};
use crate::common::{RankedEngine, Router, wait_until};

#[test]
fn an_engine_that_comes_back_with_other_ranks_is_addressed_by_these() {
    let engine = RankedEngine::start(0..4);
    let router = router(&[&engine], &["--policy", "round_robin", "--worker-info-interval-secs", "0.1"]);
    let mut client = router.client();
    client.send_post("/generate", "", br#"{"text":"hold"}"#);
    wait_until("a request to be there", || engine.sent().len() == 1);
    engine.become_ranks(0..2);
    let two = [engine.rank_url(0), engine.rank_url(1)];
    wait_until("two ranks", || listed(&router) == two);
    let before = engine.sent().len();
    (0..8).for_each(|_| assert_eq!(router.post("/generate", br#"{"text":"a"}"#).status(), 200));
    assert!(
        engine.sent()[before..].iter().all(|rank| rank.is_some_and(|rank| rank < 2)),
        "{:?}",
        engine.sent()
    );
    // What was under way goes on, and is waited for when the engine leaves.
    let place = format!("/workers/{}", super::encoded(&engine.url()));
    assert_eq!(super::call(&router, "DELETE", &place, "").status(), 202);
    wait_until("the engine to leave", || shown(&router, &engine.url())["state"] == "draining");
    engine.go.open();
    assert_eq!(client.receive().status(), 200);
    wait_until("the engine to be gone", || listed(&router).is_empty());
    assert_eq!(engine.refused(), 0);
    for ranks in [0..1, 4..8] {
        engine.become_ranks(ranks.clone());
        super::add(&router, &engine.url());
        wait_until("its new ranks", || {
            listed(&router).len() == ranks.len() && shown(&router, &engine.url())["state"] == "ready"
        });
    }
}

#[test]
fn other_ranks_in_a_load_report_are_noticed_at_once() {
    let engine = RankedEngine::start(0..2);
    let args = [
        "--policy",
        "power_of_two",
        "--load-poll-interval-secs",
        "0.1",
        "--worker-info-interval-secs",
        "3600",
    ];
    let router = router(&[&engine], &args);
    engine.become_ranks(2..4);
    wait_until("the other ranks", || listed(&router) == [engine.rank_url(2), engine.rank_url(3)]);
}

#[test]
fn an_engine_that_contradicts_itself_later_keeps_its_ranks_and_that_is_told_once() {
    let engine = RankedEngine::start(0..2);
    let args = ["--dp-aware", "--worker-info-interval-secs", "0.05"];
    let (router, log) = Router::start_logged(&[engine.url()], &args);
    wait_until("the ranks", || listed(&router).len() == 2);
    engine.say(RankedEngine::info(3));
    let asked = engine.asked("/v1/loads");
    wait_until("it to be asked again and again", || engine.asked("/v1/loads") >= asked + 4);
    assert_eq!(listed(&router).len(), 2);
    let lines = log.lines();
    assert_eq!(
        lines.iter().filter(|line| line.contains("its ranks stay as they were")).count(),
        1,
        "{lines:?}"
    );
    engine.become_ranks(0..3);
    wait_until("three ranks", || listed(&router).len() == 3);
}
