//! What a run found out, read by the router that shall run it.

use serde_json::Value;

use crate::program::{Bench, read_by_the_router};

const SCENARIO: &str = r#"
schema = 1
name = "contest"
[workload]
kind = "shared_prefix"
groups = 16
prompts_per_group = 8
system_tokens = 2048
question_tokens = 16
output_tokens = 4
match_ratio = { uniform = [0.05, 0.95] }
[arrival]
kind = "burst"
over = "1s"
[fleet]
workers = 4
kv_tokens = 20000
[router]
policies = ["round_robin", "cache_aware"]
[router.options.cache_aware]
balance_rel_threshold = 1.25
[sweep]
"router.options.cache_aware.cache_threshold" = [0.1, 0.5, 0.9]
"#;

/// The best of some runs by the published rule.
fn best(runs: &[Value]) -> &Value {
    let figure = |run: &Value, key: &str| run.pointer(key).unwrap().as_f64().unwrap();
    let top = runs.iter().map(|run| figure(run, "/input_tok_s")).fold(0.0, f64::max);
    let near = runs.iter().filter(|run| figure(run, "/input_tok_s") >= 0.98 * top);
    near.min_by(|a, b| figure(a, "/ttft_ms/p50").total_cmp(&figure(b, "/ttft_ms/p50"))).unwrap()
}

#[test]
fn a_router_reads_the_winner_of_a_sweep_as_what_won() {
    let bench = Bench::new();
    let scenario = bench.file("s.toml", SCENARIO);
    let ended = bench.run(&[scenario.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let file = bench.out().join("winner.toml");
    let told = format!(": router --config {} --worker-urls http://HOST:PORT ...\n", file.display());
    assert!(ended.stdout.contains(&told), "{}", ended.stdout);
    let runs = bench.runs();
    assert_eq!(runs.len(), 1 + 3);
    let (best, policy) = (best(&runs), read_by_the_router(&file));
    assert_eq!(best["policy"], "cache_aware", "a contest that the options decide: {runs:#?}");
    assert_eq!(policy["name"].as_str(), best["policy"].as_str());
    let params = best["params"].as_object().unwrap();
    assert_eq!(params.len(), 2, "{params:?}");
    for (key, value) in params {
        assert_eq!(policy[key].as_float(), value.as_f64(), "{key}");
    }
}

#[test]
fn work_that_differs_has_winners_of_its_own() {
    let bench = Bench::new();
    let swept = SCENARIO.replace(
        "\"router.options.cache_aware.cache_threshold\" = [0.1, 0.5, 0.9]",
        "\"fleet.workers\" = [1, 4]",
    );
    let scenario = bench.file("s.toml", &swept);
    let ended = bench.run(&[scenario.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    for workers in [1, 4] {
        let file = format!("winner-workers={workers}.toml");
        assert!(ended.stdout.contains(&file), "{}", ended.stdout);
        let mut runs = bench.runs();
        runs.retain(|run| run["params"]["fleet.workers"] == workers);
        assert_eq!(runs.len(), 2);
        assert_eq!(
            read_by_the_router(&bench.out().join(&file))["name"].as_str(),
            best(&runs)["policy"].as_str()
        );
    }
    let ended = bench.run(&[scenario.to_str().unwrap(), "--policy", "round_robin"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!ended.stdout.contains("winner") && !bench.out().join("winner-workers=1.toml").exists());
}
