//! The scenarios of this repository keep what they claim, on the median of five seeds.

use std::collections::BTreeMap;

use crate::program::{Bench, shipped};

#[test]
fn the_asserts_of_every_scenario_hold_in_virtual_time() {
    for name in [
        "multi_prefix",
        "multi_prefix_blog_fit",
        "hot_prefix",
        "threshold_sweep",
        "mooncake",
        "pd",
        "pd_vs_regular",
        "dp_aware",
        "pd_faults",
    ] {
        let bench = Bench::new();
        let scenario = shipped(&format!("{name}.toml"));
        let ended = bench.run(&[&scenario, "--mode", "virtual", "--seeds", "5"]);
        assert_eq!(ended.code, Some(0), "{name}: {}{}", ended.stdout, ended.stderr);
    }
}

/// How often `cache_aware` gave each reason.
fn reasons(bench: &Bench) -> BTreeMap<String, u32> {
    let mut reader = csv::Reader::from_path(bench.out().join("requests.csv")).unwrap();
    let place = |name: &str, headers: &csv::StringRecord| headers.iter().position(|h| h == name).unwrap();
    let headers = reader.headers().unwrap().clone();
    let (policy, reason) = (place("policy", &headers), place("reason", &headers));
    let mut reasons = BTreeMap::new();
    for row in reader.records().map(Result::unwrap).filter(|row| &row[policy] == "cache_aware") {
        *reasons.entry(row[reason].to_owned()).or_default() += 1;
    }
    reasons
}

fn imbalance(bench: &Bench) -> f64 {
    let runs = bench.runs();
    let run = runs.iter().find(|run| run["policy"] == "cache_aware").unwrap();
    run["imbalance"].as_f64().unwrap()
}

#[test]
fn the_balance_test_is_what_spreads_a_hot_prefix() {
    let scenario = shipped("hot_prefix.toml");
    let bench = Bench::new();
    let ended = bench.run(&[&scenario, "--mode", "virtual"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(imbalance(&bench) <= 1.5);
    assert!(reasons(&bench)["balance_test"] >= 1);

    let bench = Bench::new();
    let never = "router.options.cache_aware.balance_abs_threshold=1000000";
    let ended = bench.run(&[&scenario, "--mode", "virtual", "--set", never]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(imbalance(&bench) >= 4.0);
    assert!(!reasons(&bench).contains_key("balance_test"));
}
