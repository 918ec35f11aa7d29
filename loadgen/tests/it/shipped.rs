//! The scenarios of this repository keep what they claim, on the median of five seeds.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::program::{Bench, shipped};

/// Marks flags that make a long scenario short.
const SHORTER: &str = "# In tests with few requests: ";

/// Every scenario of the folder, by name, with the flags that tests add.
fn scenarios() -> BTreeMap<String, Vec<String>> {
    let files = std::fs::read_dir(crate::support::root().join("scenarios")).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let scenario = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let shorter = text.lines().find_map(|line| line.strip_prefix(SHORTER)).unwrap_or_default();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, shorter.split_whitespace().map(str::to_owned).collect())
    };
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).map(scenario).collect()
}

/// Runs those scenarios of the folder whose place in the list is `part` modulo 3, in virtual time: on a machine of few cores
/// three tests side by side are faster than one.
fn hold(part: usize) {
    let all = scenarios();
    assert!(all.len() >= 20, "{all:?}");
    for (name, shorter) in all.into_iter().skip(part).step_by(3) {
        let bench = Bench::new();
        let scenario = shipped(&format!("{name}.toml"));
        let mut args = vec![scenario.as_str(), "--mode", "virtual", "--seeds", "5"];
        args.extend(shorter.iter().map(String::as_str));
        let ended = bench.run(&args);
        assert_eq!(ended.code, Some(0), "{name}: {}{}", ended.stdout, ended.stderr);
        nothing_is_found_that_was_not_there(&name, &bench);
    }
}

/// Whatever policy and fleet: no engine finds more than a cache that forgets nothing. A first token agrees by accident
/// now and then.
fn nothing_is_found_that_was_not_there(name: &str, bench: &Bench) {
    let mut reader = csv::Reader::from_path(bench.out().join("reach.csv")).unwrap();
    let headers = reader.headers().unwrap().clone();
    let places = ["delivered", "fleet_capacity", "infinite_cache"]
        .map(|name| headers.iter().position(|header| header == name).unwrap());
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), bench.runs().len(), "{name}: every run in virtual time can be looked at");
    for row in rows {
        let [delivered, fleet, infinite] = places.map(|place| row[place].parse::<f64>().unwrap());
        assert!(delivered <= infinite + 1e-5 && fleet <= infinite, "{name}: {row:?}");
    }
}

#[test]
fn the_asserts_of_every_scenario_hold_in_virtual_time() {
    hold(0);
}

#[test]
fn the_asserts_of_every_scenario_hold_in_virtual_time_second_part() {
    hold(1);
}

#[test]
fn the_asserts_of_every_scenario_hold_in_virtual_time_third_part() {
    hold(2);
}

#[test]
fn every_scenario_claims_something_and_is_told_of() {
    let readme = std::fs::read_to_string(crate::support::root().join("scenarios/README.md")).unwrap();
    for name in scenarios().keys() {
        let text = std::fs::read_to_string(shipped(&format!("{name}.toml"))).unwrap();
        assert!(text.starts_with("# "), "{name}: what it shows");
        assert!(text.contains("[[assert]]"), "{name}: what must hold");
        assert!(readme.contains(&format!("| `{name}.toml` | ")), "{name}: its row in README.md");
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

/// How many requests each worker was sent by `cache_aware` between two moments of the run, in seconds.
fn sent(bench: &Bench, workers: usize, from_s: f64, to_s: f64) -> Vec<usize> {
    let mut reader = csv::Reader::from_path(bench.out().join("requests.csv")).unwrap();
    let headers = reader.headers().unwrap().clone();
    let [policy, worker, at] =
        ["policy", "worker", "sent_us"].map(|name| headers.iter().position(|h| h == name).unwrap());
    let mut sent = vec![0; workers];
    for row in reader.records().map(Result::unwrap).filter(|row| &row[policy] == "cache_aware") {
        let at_s = row[at].parse::<f64>().unwrap() / 1e6;
        if let (true, Ok(worker)) = ((from_s..to_s).contains(&at_s), row[worker].parse::<usize>()) {
            sent[worker] += 1;
        }
    }
    sent
}

#[test]
fn workers_that_join_or_return_get_work_again() {
    for (name, places, gone, later) in [
        ("scale_out", vec![6, 7], [0.0, 15.0], [25.0, 60.0]),
        ("worker_loss", vec![0], [14.0, 70.0], [75.0, 160.0]),
    ] {
        let bench = Bench::new();
        let ended = bench.run(&[&shipped(&format!("{name}.toml")), "--policy", "cache_aware"]);
        assert_eq!(ended.code, Some(0), "{name}: {}{}", ended.stdout, ended.stderr);
        let before = sent(&bench, 8, gone[0], gone[1]);
        assert!(places.iter().all(|place| before[*place] == 0), "{name}: {before:?}");
        let after = sent(&bench, 8, later[0], later[1]);
        let all: usize = after.iter().sum();
        // An eighth would be fair.
        assert!(places.iter().all(|place| after[*place] * 16 >= all), "{name}: {after:?}");
    }
}
