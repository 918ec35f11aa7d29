//! What a run tells of its workers and of the caches that could have been.

use super::testing::{cell, world};
use crate::run::Run;

/// Ten groups of ten prompts: 600 tokens that a group shares and 40 of their own, on pages of 64 tokens.
fn played(policy: &str, kv_tokens: u64) -> Run {
    let cell = cell(&format!(
        "schema = 1\nname = \"look\"\n[workload]\nkind = \"shared_prefix\"\ngroups = 10\nprompts_per_group = 10\n\
         system_tokens = 600\nquestion_tokens = 40\noutput_tokens = 30\n[arrival]\nkind = \"poisson\"\nrate = 4.0\n\
         [fleet]\nworkers = 4\npage = 64\nkv_tokens = {kv_tokens}\n[router]\npolicies = [\"{policy}\"]\n"
    ));
    let mut world = world(&cell, 1);
    world.run(&mut |_| ());
    world.finish(&cell, 1)
}

/// Nine of ten prompts of a group find the whole pages of what they share.
const POSSIBLE: f64 = 9.0 * 576.0 / (10.0 * 640.0);

#[test]
fn an_infinite_cache_finds_what_the_workload_shares_and_no_bound_is_wider_than_the_one_before() {
    for policy in ["round_robin", "cache_aware"] {
        let reach = played(policy, 100_000).reach.unwrap();
        assert_eq!((reach.requests, reach.cut), (100, false));
        assert!((reach.infinite - POSSIBLE).abs() < 1e-12, "{reach:?}");
        assert_eq!(reach.fleet, reach.infinite, "there is room for all");
        assert!(reach.infinite >= reach.policy && reach.policy >= reach.delivered, "{reach:?}");
        assert!(reach.delivered > reach.policy - 0.1, "hardly two requests at once: {reach:?}");
    }
    let blind = played("round_robin", 100_000).reach.unwrap();
    let aware = played("cache_aware", 100_000).reach.unwrap();
    assert!(blind.policy < POSSIBLE - 0.2 && aware.policy > POSSIBLE - 0.1, "{blind:?} {aware:?}");
}

/// Requests that come one by one, so many per second: where they went and how long they took, and how many events that was.
fn one_by_one(rate: &str) -> (Vec<(Option<u32>, u64, u64)>, u64) {
    let cell = cell(&format!(
        "schema = 1\nname = \"idle\"\n[workload]\nkind = \"shared_prefix\"\ngroups = 4\nprompts_per_group = 5\n\
         system_tokens = 600\nquestion_tokens = 40\noutput_tokens = 30\n[arrival]\nkind = \"constant\"\nrate = {rate}\n\
         [fleet]\nworkers = 4\n[router]\npolicies = [\"power_of_two\"]\n"
    ));
    let (mut world, mut steps) = (world(&cell, 1), 0);
    while world.step().is_some() {
        steps += 1;
    }
    let records = world.finish(&cell, 1).records;
    let told = |r: &protocol::record::RequestRecord| (r.worker, r.cached_tokens, r.last_ns - r.intended_ns);
    (records.iter().map(told).collect(), steps)
}

#[test]
fn an_idle_fleet_costs_nothing_and_changes_nothing() {
    // A gap of 4 s is too short for a rest; one of 11 days has a million rounds of questions.
    let [(short, _), (long, steps)] = ["0.25", "1e-6"].map(one_by_one);
    assert_eq!(short, long);
    assert!(steps < 100_000, "{steps}");
}

#[test]
fn little_memory_is_a_loss_of_its_own() {
    let reach = played("cache_aware", 1280).reach.unwrap();
    assert!(reach.fleet < reach.infinite - 0.1, "{reach:?}");
}

#[test]
fn a_run_tells_what_its_workers_held() {
    let run = played("round_robin", 1280);
    let engines = &run.engines;
    assert!(engines.samples.len() > 60 && engines.samples.iter().all(|row| row.len() == 4));
    let busy = engines.samples.iter().flatten().any(|sample| sample.in_flight > 0 && sample.fill > 0.4);
    assert!(busy, "a prompt fills half of a cache");
    let waits = engines.samples.iter().flatten().any(|sample| sample.queued_tokens >= 40);
    assert!(waits, "a prompt that comes while another one is computed waits");
    assert!(engines.last.iter().all(|sample| sample.in_flight == 0 && sample.evicted_tokens > 0));
    let grows = |worker: usize| engines.samples.is_sorted_by_key(|row| row[worker].evicted_tokens);
    assert!((0..4).all(grows));
    let end_ns = run.records.iter().map(|record| record.last_ns).max().unwrap();
    let covered_ns = engines.interval_ns * engines.samples.len() as u64;
    assert!((end_ns..=end_ns + engines.interval_ns).contains(&covered_ns), "{covered_ns} of {end_ns}");
}
