//! The scenarios that the repository ships must load.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::*;
use crate::run::World;

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
    assert!(names.len() >= 20, "{names:?}");
}

#[test]
fn multi_prefix_has_the_documented_defaults() {
    let scenario = shipped("multi_prefix.toml");
    let Workload::SharedPrefix(workload) = &scenario.workload else { panic!() };
    assert_eq!((workload.groups, workload.prompts_per_group), (64, 16));
    let lengths = [&workload.system_tokens, &workload.question_tokens, &workload.output_tokens];
    assert_eq!(lengths, [&2135.into(), &136.into(), &256.into()]);
    assert_eq!(scenario.arrival, Arrival::Burst { over_ns: 1_500_000_000 });
    let of = |world| scenario.cells().into_iter().filter(move |cell| cell.world == world);
    let live: Vec<_> = of(World::Live).map(|cell| cell.policy.name()).collect();
    assert_eq!(live, ["round_robin", "cache_aware"]);
    assert!(of(World::Virtual).count() > live.len());
    assert!(of(World::Live).all(|cell| cell.scenario.fleet.stream_interval == 8));
    assert!(of(World::Virtual).all(|cell| cell.scenario.fleet.stream_interval == 1));
    let plan = crate::workload::plan(&scenario, 1);
    assert_eq!(plan.requests.len(), 1024);
    assert!(plan.requests.iter().all(|r| r.prompt_tokens() == 2271 && r.tokens(|_, _| {}).len() == 2271));
    assert!(plan.requests.iter().zip(0..).all(|(request, seq)| request.seq == seq));
    assert_eq!(plan, crate::workload::plan(&scenario, 1));
    assert_ne!(plan, crate::workload::plan(&scenario, 2));
}

#[test]
fn the_sweep_holds_the_published_walk_through_and_the_defaults() {
    let cells = shipped("threshold_sweep.toml").cells();
    assert_eq!(cells.len(), 4 * 3 * 3 * 3);
    let params = |cell: &Cell| {
        ["cache_threshold", "balance_abs_threshold", "balance_rel_threshold", "max_tree_size"]
            .map(|key| cell.params[key].as_f64().unwrap())
    };
    for wanted in [[0.5, 32.0, 1.1, 10_000.0], [0.3, 64.0, 1.5, 67_108_864.0]] {
        assert_eq!(cells.iter().filter(|cell| params(cell) == wanted).count(), 1, "{wanted:?}");
    }
}

#[test]
fn disaggregated_scenarios_have_the_fleets_that_they_tell_of() {
    let pd = shipped("pd.toml");
    assert_eq!((pd.fleet.roles.prefill, pd.fleet.roles.decode, pd.mode), (4, 4, Mode::Both));
    let faults = shipped("pd_faults.toml");
    assert!(faults.faults.any() && faults.mode == Mode::Both);
    let both_ways = shipped("pd_vs_regular.toml").cells();
    let fleets = |cells: &[Cell]| -> Vec<(u32, u32)> {
        cells.iter().map(|cell| (cell.scenario.fleet.workers, cell.scenario.fleet.roles.prefill)).collect()
    };
    assert_eq!(fleets(&both_ways), [(8, 0), (8, 4)].repeat(3), "the same hardware under three loads");
    let ranks = shipped("dp_aware.toml");
    assert_eq!((ranks.fleet.workers, ranks.fleet.ranks.size), (2, 4));
    let Workload::SharedPrefix(workload) = &ranks.workload else { panic!() };
    assert_eq!((workload.groups, workload.prompts_per_group), (64, 16));
}
