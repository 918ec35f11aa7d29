//! What the repository ships, and the example of the contract, must load.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::*;
use crate::run::{Params, World};

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios")
}

fn shipped(name: &str) -> Scenario {
    load(&scenarios().join(name), &[], None, None, None).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_shipped_scenario_loads_under_its_own_name() {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(scenarios()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let scenario = load(&path, &[], None, None, None).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(Some(scenario.name.as_str()), path.file_stem().and_then(|stem| stem.to_str()));
            assert!(!scenario.description.is_empty(), "{}", scenario.name);
            assert!(!scenario.cells().is_empty());
            names.insert(scenario.name);
        }
    }
    for name in
        ["hot_prefix", "mooncake", "multi_prefix", "multi_prefix_blog_fit", "smoke", "threshold_sweep"]
    {
        assert!(names.contains(name), "{name}");
    }
}

#[test]
fn multi_prefix_has_the_documented_defaults() {
    let scenario = shipped("multi_prefix.toml");
    let Workload::SharedPrefix(workload) = &scenario.workload else { panic!() };
    assert_eq!((workload.groups, workload.prompts_per_group), (64, 16));
    assert_eq!((workload.system_tokens, workload.question_tokens, workload.output_tokens), (2135, 136, 256));
    assert_eq!(scenario.arrival, Arrival::Burst { over_ns: 1_500_000_000 });
    let of = |world| scenario.cells().into_iter().filter(move |cell| cell.world == world);
    let live: Vec<_> = of(World::Live).map(|cell| cell.policy.name()).collect();
    assert_eq!(live, ["round_robin", "cache_aware"]);
    assert!(of(World::Virtual).count() > live.len());
    assert!(of(World::Live).all(|cell| cell.scenario.fleet.stream_interval == 8));
    assert!(of(World::Virtual).all(|cell| cell.scenario.fleet.stream_interval == 1));
    let plan = crate::workload::plan(&scenario, 1);
    assert_eq!(plan.requests.len(), 1024);
    assert!(plan.requests.iter().all(|r| r.prompt_tokens() == 2271 && r.tokens().len() == 2271));
    assert!(plan.requests.iter().zip(0..).all(|(request, seq)| request.seq == seq));
    assert_eq!(plan, crate::workload::plan(&scenario, 1));
    assert_ne!(plan, crate::workload::plan(&scenario, 2));
}

#[test]
fn the_sweep_holds_the_published_walk_through_and_the_defaults() {
    let cells = shipped("threshold_sweep.toml").cells();
    assert_eq!(cells.len(), 4 * 3 * 2 * 2);
    let params = |cell: &Cell| {
        ["cache_threshold", "balance_abs_threshold", "balance_rel_threshold", "max_tree_size"]
            .map(|key| cell.params[key].as_f64().unwrap())
    };
    for wanted in [[0.5, 32.0, 1.1, 10_000.0], [0.3, 64.0, 1.5, 67_108_864.0]] {
        assert_eq!(cells.iter().filter(|cell| params(cell) == wanted).count(), 1, "{wanted:?}");
    }
}

#[test]
fn the_example_of_the_contract_loads_unchanged() {
    let scenario = load_text(include_str!("contract.toml"), &[]).unwrap();
    assert_eq!(scenario.name, "multi_prefix");
    assert_eq!(scenario.mode, Mode::Virtual);
    // One cell for each policy without swept options, four for cache_aware.
    let cells = scenario.cells();
    assert_eq!(cells.len(), 3 + 4);
    assert_eq!(cells[3].params, Params::from([("cache_threshold".to_owned(), 0.1.into())]));
    assert_eq!(cells[0].params, Params::new());
    assert_eq!(
        scenario.slo.as_ref().map(|slo| (slo.ttft_ns, slo.tpot_ns)),
        Some((2_000_000_000, 50_000_000))
    );
    assert_eq!(scenario.asserts.len(), 1);
    assert_eq!(scenario.fleet.network_ns, 200_000);
    assert_eq!(scenario.fleet.request_overhead_ns, 3_000_000);
}

#[test]
fn every_default_of_the_contract_is_the_default() {
    let full = load_text(include_str!("contract.toml"), &[]).unwrap();
    let least = "schema = 1\nname = \"n\"\n[workload]\nkind = \"shared_prefix\"\ngroups = 64\nprompts_per_group = 16\n\
        system_tokens = 2135\nquestion_tokens = 136\noutput_tokens = 256\n[arrival]\nkind = \"burst\"\nover = \"1.5s\"\n\
        [fleet]\nworkers = 8\n[router]\npolicies = [\"round_robin\", \"random\", \"power_of_two\", \"cache_aware\"]\n";
    let least = load_text(least, &[]).unwrap();
    assert_eq!(least.workload, full.workload);
    assert_eq!(least.arrival, full.arrival);
    assert_eq!(least.fleet, full.fleet);
    assert_eq!((least.seed, least.repeats, least.mode), (full.seed, full.repeats, full.mode));
    assert!(least.slo.is_none() && least.asserts.is_empty());
}

/// Loads `text` as `s.toml` in a directory of its own.
pub(super) fn load_text(text: &str, set: &[(&str, &str)]) -> Result<Scenario, ScenarioError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.toml");
    std::fs::write(&path, text).unwrap();
    let set: Vec<_> = set.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect();
    load(&path, &set, None, None, None)
}
