//! Capacity.

use serde_json::Value;

use super::{SPREAD, json, ok, text};
use crate::program::{Bench, Ended};
use crate::support::root;

#[test]
fn capacity_is_the_highest_rate_that_meets_the_objectives() {
    let bench = Bench::new();
    let loose = SPREAD.replace("ttft = \"500ms\"\ntpot = \"50ms\"", "ttft = \"2s\"\ntpot = \"200ms\"");
    let scenario = loose.replace("cache_threshold = 0.9", "cache_threshold = 0.3");
    bench.file("s.toml", &scenario);
    ok(&bench.run(&["capacity", "s.toml", "--policy", "round_robin,cache_aware", "--seeds", "3"]));
    let found = json(&bench, "capacity.json");
    let mut highest = Vec::new();
    for policy in found["policies"].as_array().unwrap() {
        let figure = |key: &str| policy[key].as_f64().unwrap_or_else(|| panic!("{key}: {policy:#}"));
        let (met, missed) = (figure("highest"), figure("exceeded_at"));
        assert!(missed > met && missed / met <= 1.02, "{policy:#}");
        highest.push(met);
        for (rate, good) in [(met, true), (missed, false)] {
            let set = format!("arrival.rate={rate}");
            let name = policy["policy"].as_str().unwrap();
            ok(&bench.run(&["s.toml", "--policy", name, "--seeds", "3", "--set", &set, "--quiet"]));
            let mut shares: Vec<f64> =
                bench.runs().iter().map(|run| run["slo_attainment"].as_f64().unwrap()).collect();
            shares.sort_by(f64::total_cmp);
            assert_eq!(shares[1] >= 0.99, good, "{name} at {rate}: {shares:?}");
        }
    }
    assert!(highest[1] > highest[0], "affinity pays here: {highest:?}");
    let tried = found["policies"][0]["points"].as_array().unwrap().len();
    let lines = text(&bench, "capacity.csv").lines().filter(|line| line.starts_with("round_robin,")).count();
    assert_eq!(lines, tried, "every point that was tried");
}

#[test]
fn the_capacity_for_a_trace_is_a_speed() {
    let bench = Bench::new();
    let trace = root().join("scenarios/mooncake_small.jsonl");
    let args = [
        "capacity",
        trace.to_str().unwrap(),
        "--policy",
        "cache_aware",
        "--slo-ttft",
        "3s",
        "--slo-tpot",
        "80ms",
    ];
    let ended = bench.run(&args);
    ok(&ended);
    let found = json(&bench, "capacity.json");
    assert_eq!(found["unit"], "x the recorded speed");
    assert!(found["policies"][0]["points"].as_array().unwrap().len() > 3, "{found:#}");
    assert!(ended.stdout.contains("cache_aware"), "{}", ended.stdout);
}

/// What `capacity` says of one policy, with objectives that this trace cannot miss or cannot meet.
fn capacity_of_a_trace(ttft: &str, speedup: &str) -> (Ended, Value, String) {
    let bench = Bench::new();
    let trace = root().join("scenarios/mooncake_small.jsonl");
    let fixed = ["capacity", trace.to_str().unwrap(), "--policy", "power_of_two", "--slo-tpot", "10s"];
    let ended = bench.run(&[&fixed[..], &["--slo-ttft", ttft, "--speedup", speedup]].concat());
    ok(&ended);
    let found = json(&bench, "capacity.json")["policies"][0].clone();
    (ended, found, text(&bench, "capacity.csv"))
}

#[test]
fn objectives_out_of_reach_have_an_answer_with_its_cause() {
    for speedup in ["0.001", "1"] {
        let (ended, found, csv) = capacity_of_a_trace("1ms", speedup);
        assert_eq!(found["verdict"], "unreachable", "{found:#}");
        assert!(ended.stdout.contains(" none "), "{}", ended.stdout);
        for told in ["power_of_two: unreachable: even an idle fleet", "TTFT above 1 ms", "capacity.csv"] {
            assert!(ended.stdout.contains(told), "no {told:?} in {}", ended.stdout);
        }
        assert_eq!(csv.lines().count() - 1, found["points"].as_array().unwrap().len());
    }
    // Some prompts are too long for it, however idle the fleet is.
    let (ended, found, _) = capacity_of_a_trace("300ms", "1");
    let share = found["points"].as_array().unwrap().last().unwrap()["attainment"].as_f64().unwrap();
    assert!(share > 0.1 && share < 0.99, "{found:#}");
    assert!(ended.stdout.contains("the shortest of these prompts has "), "{}", ended.stdout);
}

#[test]
fn objectives_that_everything_meets_have_an_answer_within_the_range_of_the_key() {
    for speedup in ["1000", "1000000"] {
        let (ended, found, csv) = capacity_of_a_trace("1h", speedup);
        assert_eq!((&found["verdict"], &found["highest"]), (&"more_than".into(), &1e6.into()), "{found:#}");
        assert!(ended.stdout.contains("more than 1000000 "), "{}", ended.stdout);
        assert!(csv.lines().count() > 1);
    }
}
