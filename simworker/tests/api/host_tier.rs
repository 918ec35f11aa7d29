//! The second tier of the cache, as clients see it.

use serde_json::json;
use simworker::config::WorkerConfig;
use simworker_core::HostTierConfig;

use crate::client::{Worker, prompt};

fn tiered(config: &mut WorkerConfig) {
    config.engine.kv_tokens = 3_000;
    config.engine.host_tier = Some(HostTierConfig::of(config.preset, 3_000));
}

#[test]
fn answers_tell_what_came_from_the_host() {
    let worker = Worker::with(tiered);
    let ask = |seed| {
        let body = json!({"text": prompt(seed, 1_000), "sampling_params": {"max_new_tokens": 2}});
        let answer = worker.post("/generate", &body).json();
        worker.wait_until_idle();
        answer["meta_info"].clone()
    };
    (1..5).for_each(|seed| drop(ask(seed)));
    let again = ask(1);
    assert_eq!(again["cached_tokens"], 999);
    assert_eq!(again["cached_tokens_details"], json!({"device": 0, "host": 999}));
    let metrics = worker.get("/metrics").body;
    let value = |series: &str| -> f64 {
        let line = metrics.lines().find(|line| line.starts_with(&format!("sglang:{series}{{"))).unwrap();
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    assert_eq!(value("hicache_host_total_tokens"), 6_000.0);
    assert_eq!(value("load_back_tokens_total"), 999.0);
    assert_eq!(
        value("hicache_host_used_tokens"),
        4_004.0,
        "four prompts, each with the first token of its reply"
    );
    assert!(metrics.contains("cache_source=\"host\"} 999\n"), "{metrics}");
    assert_eq!(metrics.matches("# TYPE sglang:cached_tokens_total").count(), 1);
    let info = worker.get("/server_info").json();
    assert_eq!((&info["enable_hierarchical_cache"], &info["hicache_ratio"]), (&json!(true), &json!(2.0)));
    assert_eq!(info["hicache_write_policy"], "write_through");
}

#[test]
fn workers_without_one_have_no_such_series() {
    let worker = Worker::start();
    assert!(!worker.get("/metrics").body.contains("hicache"));
    assert_eq!(worker.get("/server_info").json()["enable_hierarchical_cache"], false);
}
