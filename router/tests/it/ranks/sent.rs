//! Which rank a request goes to.

use std::collections::BTreeMap;

use super::{listed, router, shown, workers};
use crate::common::{Client, RankedEngine, Worker, wait_until};

const BODY: &[u8] = br#"{"text":"hello"}"#;

/// How many requests named each rank.
fn by_rank(engine: &RankedEngine) -> BTreeMap<Option<u64>, usize> {
    let mut counts = BTreeMap::new();
    engine.sent().into_iter().for_each(|rank| *counts.entry(rank).or_default() += 1);
    counts
}

// vllm-project/router#210
#[test]
fn case_34_ranks_are_numbered_as_the_engine_reports_them() {
    let nodes = [RankedEngine::start(0..4), RankedEngine::start(4..8)];
    let router = router(&[&nodes[0], &nodes[1]], &["--policy", "round_robin"]);
    wait_until("all ranks", || listed(&router).len() == 8);
    for _ in 0..200 {
        let answer = router.post("/generate", BODY);
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
    for (node, first) in nodes.iter().zip([0, 4]) {
        assert_eq!(node.refused(), 0);
        assert_eq!(by_rank(node), (first..first + 4).map(|rank| (Some(rank), 25)).collect());
    }
}

// vllm-project/router#210, where each node says how many ranks there are on all of them.
#[test]
fn case_34_a_node_of_several_owns_the_ranks_that_it_reports() {
    let node = RankedEngine::start(4..8);
    node.say(serde_json::json!({"dp_size": 8, "nnodes": 2, "node_rank": 1}));
    let router = router(&[&node], &["--policy", "round_robin"]);
    (0..8).for_each(|_| assert_eq!(router.post("/generate", BODY).status(), 200));
    assert_eq!(by_rank(&node), (4..8).map(|rank| (Some(rank), 2)).collect());
}

#[test]
fn a_single_rank_is_not_named() {
    let engine = RankedEngine::start(0..1);
    let router = router(&[&engine], &[]);
    assert_eq!(router.post("/generate", BODY).status(), 200);
    assert_eq!(engine.sent(), [None]);
}

#[test]
fn a_dead_engine_is_tried_once_whatever_its_ranks_and_goes_as_a_whole() {
    let (dead, alive) = (RankedEngine::start(0..4), Worker::fixed("{}"));
    // Nobody probes meanwhile: requests alone find out.
    let args = [
        "--policy",
        "round_robin",
        "--health-check-interval-secs",
        "3600",
        "--health-failure-threshold",
        "3",
    ];
    let router = router(&[&dead], &args);
    super::add(&router, &alive.url());
    wait_until("the other engine", || shown(&router, &alive.url())["state"] == "ready");
    dead.worker.kill();
    let mut attempts = Vec::new();
    wait_until("the engine to be given up", || {
        let answer = router.post("/generate", BODY);
        assert_eq!(answer.status(), 200, "{}", answer.text());
        attempts.push(
            answer.header("x-router-attempts").map_or(1, |count| count.parse::<u32>().expect("a number")),
        );
        shown(&router, &dead.url())["is_healthy"] == false
    });
    assert!(attempts.iter().all(|count| *count <= 2), "{attempts:?}");
    let (ranks, rest): (Vec<_>, Vec<_>) =
        workers(&router).into_iter().partition(|row| row["url"].as_str().expect("a URL").contains('@'));
    assert!(ranks.len() == 4 && ranks.iter().all(|row| row["is_healthy"] == false), "{ranks:?}");
    assert_eq!(rest[0]["is_healthy"], true);
}

#[test]
fn a_dead_engine_that_is_alone_is_not_tried_on_another_of_its_ranks() {
    let dead = RankedEngine::start(0..4);
    let args = [
        "--policy",
        "round_robin",
        "--health-check-interval-secs",
        "3600",
        "--health-failure-threshold",
        "100",
        "--retry-initial-backoff-ms",
        "1",
    ];
    let router = router(&[&dead], &args);
    wait_until("all ranks", || listed(&router).len() == 4);
    dead.worker.kill();
    assert_eq!(router.post("/generate", BODY).status(), 502);
    let text = Client::get(&router.metrics, "/metrics").text();
    let chosen = |rank: u32| {
        let worker = format!("worker=\"{}\"}}", dead.rank_url(rank));
        let mut lines = text.lines().filter(|line| line.starts_with("smg_worker_selection_total{"));
        lines.any(|line| line.contains(&worker) && !line.ends_with(" 0"))
    };
    assert_eq!((0..4).filter(|rank| chosen(*rank)).count(), 1, "{text}");
}
