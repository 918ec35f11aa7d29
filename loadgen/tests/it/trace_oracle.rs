//! One worker as a plain LRU cache: a published trace against published hit rates, and against a naive model.

use std::collections::HashSet;

use crate::support::{run, shared_trace};
use loadgen::report::RunSummary;
use serde::Deserialize;

/// Pages of one trace block, requests one after the other, so that the engine is a cache and nothing else.
fn scenario(kv_blocks: u64, limit: usize) -> String {
    format!(
        r#"
schema = 1
name = "trace_oracle"
[workload]
kind = "trace"
path = "unused.jsonl"
limit = {limit}
[arrival]
kind = "closed"
concurrency = 1
[fleet]
workers = 1
preset = "a100-80g-llama3-8b"
kv_tokens = {}
page = 512
context = 262144
[router]
policies = ["round_robin"]
"#,
        kv_blocks * 512
    )
}

#[test]
fn the_synthetic_trace_has_its_published_lru_hit_rates() {
    let Some(trace) = shared_trace("mooncake_synthetic_full.jsonl") else { return };
    let trace = format!("{:?}", trace.display().to_string());
    for (blocks, expected) in [(640, 0.093), (1_920, 0.214), (5_856, 0.453), (11_718, 0.643), (97_657, 0.863)]
    {
        let runs = run(&scenario(blocks, 0), &[("workload.path", &trace)]);
        let measured = RunSummary::of(&runs[0], None).hit_rate_last_half;
        assert!(
            (measured - expected).abs() <= 0.02,
            "{blocks} blocks: measured {measured:.4}, published {expected}"
        );
    }
}

#[derive(Deserialize)]
struct Row {
    input_length: u64,
    hash_ids: Vec<u64>,
}

#[test]
fn five_hundred_requests_hit_what_a_naive_model_says() {
    let Some(trace) = shared_trace("mooncake_synthetic_full.jsonl") else { return };
    let text = std::fs::read_to_string(&trace).unwrap();
    let rows = text.lines().take(500).map(|line| serde_json::from_str::<Row>(line).unwrap());
    let path = format!("{:?}", trace.display().to_string());
    let runs = run(&scenario(97_657, 500), &[("workload.path", &path)]);
    let mut known: HashSet<Vec<u64>> = HashSet::new();
    let mut cached_in_all = 0;
    for (row, record) in rows.zip(&runs[0].records) {
        // A block can be reused when it and all before it were seen whole; one token is always computed.
        let usable = (row.input_length - 1) / 512;
        let hit = (1..=usable).take_while(|n| known.contains(&row.hash_ids[..*n as usize])).count() as u64;
        for n in 1..=row.input_length / 512 {
            known.insert(row.hash_ids[..n as usize].to_vec());
        }
        assert_eq!(record.cached_tokens, hit * 512, "request {}", record.seq);
        cached_in_all += record.cached_tokens;
    }
    assert_eq!(runs[0].records.len(), 500);
    assert!(cached_in_all > 0, "a trace without reuse would prove nothing");
}
