//! Engines that are started anew with other ranks.

use super::{listed, router, shown, workers};
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
    let is_told = |line: &&String| line.contains("its ranks stay as they were");
    wait_until("the line", || log.lines().iter().any(|line| is_told(&line)));
    let lines = log.lines();
    assert_eq!(lines.iter().filter(is_told).count(), 1, "{lines:?}");
    engine.become_ranks(0..3);
    wait_until("three ranks", || listed(&router).len() == 3);
}

#[test]
fn an_engine_whose_connections_end_is_asked_at_once() {
    let engine = RankedEngine::start(0..4);
    let args = ["--worker-info-interval-secs", "3600", "--health-check-interval-secs", "3600"];
    let router = router(&[&engine], &args);
    assert_eq!(router.post("/generate", br#"{"text":"a"}"#).status(), 200);
    let probes = engine.asked("/health");
    engine.become_ranks(0..2);
    // As a restart does; nothing was under way.
    engine.worker.hang_up();
    wait_until("the other ranks", || listed(&router) == [engine.rank_url(0), engine.rank_url(1)]);
    wait_until("a probe", || engine.asked("/health") > probes);
}

/// Nobody asks an engine by himself, and no engine ends a connection: the refusal of a rank alone tells.
const UNASKED: [&str; 6] = [
    "--policy",
    "round_robin",
    "--worker-info-interval-secs",
    "3600",
    "--health-check-interval-secs",
    "3600",
];

// vllm-project/router#210: a rank that an engine refuses became an error rate.
#[test]
fn case_34_a_rank_that_an_engine_has_no_more_is_no_clients_affair() {
    let (same, other) = (RankedEngine::start(0..4), RankedEngine::start(0..4));
    let router = router(&[&same, &other], &[&UNASKED[..], &["--cb-failure-threshold", "1"]].concat());
    wait_until("all ranks", || listed(&router).len() == 8);
    other.become_ranks(0..2);
    for _ in 0..16 {
        let answer = router.post("/generate", br#"{"text":"a"}"#);
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
    assert!(other.refused() > 0);
    wait_until("the ranks that there are", || listed(&router).len() == 6);
    assert!(workers(&router).iter().all(|row| row["circuit_breaker"] == "closed"));
    let (before, refused) = (other.sent().len(), other.refused());
    (0..12).for_each(|_| assert_eq!(router.post("/generate", br#"{"text":"a"}"#).status(), 200));
    assert_eq!((other.refused(), other.sent().len() - before), (refused, 4));
}

#[test]
fn an_engine_that_is_alone_is_asked_for_its_ranks_before_it_is_tried_again() {
    for now in [0..1, 0..2, 4..8] {
        let engine = RankedEngine::start(0..4);
        let router = router(&[&engine], &UNASKED);
        wait_until("all ranks", || listed(&router).len() == 4);
        engine.become_ranks(now.clone());
        for _ in 0..4 {
            let answer = router.post("/generate", br#"{"text":"a"}"#);
            assert_eq!(answer.status(), 200, "{now:?}: {}", answer.text());
        }
        assert_eq!(listed(&router).len(), now.len(), "{now:?}");
    }
}

#[test]
fn what_an_engine_refuses_for_another_reason_is_the_clients_affair() {
    let engine = RankedEngine::start(0..2);
    // With a rank of the router's, and with one of the client's.
    for (args, body, part) in [
        (&["--dp-aware"][..], &b"nonsense"[..], "is not a JSON object"),
        (&[], br#"{"text":"a","data_parallel_rank":7}"#, "out of range"),
    ] {
        let router = Router::start(&[engine.url()], args);
        let before = engine.refused();
        let answer = router.post("/generate", body);
        assert!(answer.status() == 400 && answer.text().contains(part), "{}", answer.text());
        assert!(answer.json()["error"]["message"].is_string(), "it is whole");
        assert_eq!(answer.header("x-router-attempts"), None);
        assert_eq!(engine.refused() - before, 1);
    }
}
