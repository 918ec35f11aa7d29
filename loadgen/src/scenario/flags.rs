//! Flags and traces: they win over the file, and mistakes in them are blamed on them.

use super::mistakes::{GOOD, changed};
use super::testing::load_text;
use super::*;
use crate::run::World;

#[test]
fn mistakes_in_flags_name_the_flag() {
    for (path, value, key, says) in [
        ("fleet.workers", "0", "fleet.workers", "out of range"),
        ("fleet.wrokers", "3", "fleet.wrokers", "did you mean `workers`?"),
        ("fleet.workers.x", "3", "fleet.workers", "is a table"),
        (
            "router.options.cache_aware.cache_threshold",
            "1.5",
            "router.options.cache_aware.cache_threshold",
            "from 0 to 1",
        ),
        ("arrival.over", "soon", "arrival.over", "not a duration"),
        ("fleet.eviction", "fifo", "fleet.eviction", "not emulated"),
    ] {
        let error = load_text(GOOD, &[(path, value)]).expect_err(path).to_string();
        let start = format!("--set {path}={value}: key `{key}`: ");
        assert!(error.starts_with(&start) && error.contains(says), "{error}");
    }
    for path in ["a b", "..", "assert.0.value"] {
        let error = load_text(GOOD, &[(path, "1")]).expect_err(path).to_string();
        assert!(error.starts_with(&format!("--set {path}=1: ")), "{error}");
    }
}

#[test]
fn flags_win_over_the_file() {
    let scenario = load_text(
        GOOD,
        &[
            ("fleet.workers", "5"),
            ("fleet.schedule", "lpm"),
            ("arrival.kind", "closed"),
            ("arrival.concurrency", "3"),
            ("router.options.cache_aware.cache_threshold", "0.9"),
            ("workload.popularity.zipf", "1.1"),
            ("fleet.stream_interval", "3"),
            ("sweep.router.options.cache_aware.max_tree_size", "[5000]"),
        ],
    )
    .unwrap();
    assert_eq!(scenario.fleet.workers, 5);
    assert_eq!(scenario.arrival, Arrival::Closed { concurrency: 3 });
    let Workload::SharedPrefix(workload) = &scenario.workload else { panic!() };
    assert_eq!(workload.popularity, Popularity::Zipf { exponent: 1.1 });
    let cells = scenario.cells();
    assert_eq!(cells.len(), 3, "round_robin and cache_aware, and cache_aware live");
    assert_eq!(cells[1].params["cache_threshold"], 0.9);
    assert_eq!(cells[1].params["max_tree_size"], 5000);
    assert!(cells.iter().all(|cell| cell.scenario.fleet.stream_interval == 3), "also over [live]");
    let engine = cells[0].scenario.fleet.engine.flags();
    assert!(engine.windows(2).any(|pair| pair == ["--schedule-policy", "lpm"]), "{engine:?}");
    assert!(!engine.contains(&"--share-chunks-first".to_owned()), "{engine:?}");
    let lettered = load_text(GOOD, &[("fleet.share_chunks_first", "true")]).unwrap().fleet.engine;
    assert!(lettered.config().share_chunks_first);
    assert!(lettered.flags().contains(&"--share-chunks-first".to_owned()));
}

#[test]
fn policy_mode_and_trace_flags() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.toml");
    std::fs::write(&path, GOOD).unwrap();
    let policies = ["random".to_owned(), "round_robin".to_owned()];
    let scenario = load(&path, &[], Some(&policies), None, Some(Mode::Live)).unwrap();
    let cells: Vec<_> = scenario.cells().iter().map(|cell| (cell.world, cell.policy.name())).collect();
    assert_eq!(cells, [(World::Live, "random"), (World::Live, "round_robin")], "also over live.policies");
    assert!(scenario.asserts.is_empty(), "an assertion about a policy that was not asked for is left out");

    let error = load(&path, &[], Some(&["rnd".to_owned()]), None, None).unwrap_err().to_string();
    assert!(error.starts_with("--policy rnd: key `router.policies`: "), "{error}");
    let error = load(&path, &[], None, Some(Path::new("t.jsonl")), None).unwrap_err().to_string();
    assert!(error.starts_with("--trace t.jsonl: "), "{error}");
    let error = load(Path::new("no/such.toml"), &[], None, None, None).unwrap_err().to_string();
    assert!(error.starts_with("no/such.toml: cannot be read"), "{error}");
}

#[test]
fn a_star_is_every_policy_that_needs_no_header() {
    let all = load_text(&changed("policies = [\"round_robin\", \"cache_aware\"]", "policies = \"*\""), &[])
        .unwrap();
    assert!(all.policies.len() >= 5, "{:?}", all.policies);
    for row in router_core::POLICIES {
        assert_eq!(all.policies.iter().any(|name| name == row.name), !row.needs_header, "{}", row.name);
    }
}

#[test]
fn traces_are_found_beside_the_scenario_and_their_rows_are_blamed() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let row = |stamp: u64| {
        format!("{{\"timestamp\": {stamp}, \"input_length\": 9, \"output_length\": 0, \"hash_ids\": [1]}}\n")
    };
    std::fs::write(at("good.jsonl"), row(1) + &row(2) + &row(3)).unwrap();
    std::fs::write(at("bad.jsonl"), row(2) + &row(1)).unwrap();
    let scenario = |path: &str, extra: &str| {
        let text = format!(
            "schema = 1\nname = \"t\"\n[workload]\nkind = \"trace\"\npath = \"{path}\"\n{extra}\n[fleet]\nworkers = 1\n\
             [router]\npolicies = [\"random\"]\n"
        );
        std::fs::write(at("s.toml"), text).unwrap();
        at("s.toml")
    };
    let read =
        |path: &str, extra: &str, trace: Option<&Path>| load(&scenario(path, extra), &[], None, trace, None);
    let good = read("good.jsonl", "limit = 2", None).unwrap();
    assert_eq!(good.arrival, Arrival::Trace, "a trace brings its own times");
    let plan = crate::workload::plan(&good, 1);
    let times: Vec<_> = plan.requests.iter().map(|r| (r.at_ns, r.prompt_tokens(), r.output_tokens)).collect();
    assert_eq!(times, [(0, 9, 1), (1_000_000, 9, 1)]);

    let error = read("bad.jsonl", "", None).unwrap_err().to_string();
    assert!(error.contains("bad.jsonl:2: timestamp 1 comes after 2"), "{error}");
    let error = read("none.jsonl", "", None).unwrap_err().to_string();
    assert!(error.contains("s.toml:5: key `workload.path`: cannot be read"), "{error}");
    let error = read("good.jsonl", "", Some(Path::new("gone.jsonl"))).unwrap_err().to_string();
    assert!(error.starts_with("--trace gone.jsonl: cannot be read"), "{error}");
    let won = read("bad.jsonl", "", Some(&at("good.jsonl"))).unwrap();
    assert_eq!(crate::workload::plan(&won, 1).requests.len(), 3);
    let error = read("good.jsonl", "speedup = 0", None).unwrap_err().to_string();
    assert!(error.contains("s.toml:6: key `workload.speedup`: 0 is out of range"), "{error}");
    let error = read("good.jsonl", "jitter = \"gridd\"", None).unwrap_err().to_string();
    assert!(error.contains("did you mean `grid`?"), "{error}");
}
