//! Searches, as their clients run them: what they have in common.

mod capacity;
mod sweep;
mod tune;

use serde_json::Value;

use crate::program::{Bench, Ended};

/// Goodput is highest at a threshold of 0.25, by a grid with 400 seeds; the present one is 0.9.
const SPREAD: &str = include_str!("../../../../scripts/performance/tune.toml");

/// The same where nothing is shared.
fn unshared() -> String {
    SPREAD.replace("uniform = [0.05, 0.95]", "uniform = [0.0, 0.0]")
}

fn ok(ended: &Ended) {
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
}

fn text(bench: &Bench, name: &str) -> String {
    std::fs::read_to_string(bench.out().join(name)).unwrap()
}

fn json(bench: &Bench, name: &str) -> Value {
    serde_json::from_str(&text(bench, name)).unwrap()
}

#[test]
fn a_wrong_question_exits_with_2_and_names_what_is_wrong() {
    let burst = SPREAD.replace("kind = \"poisson\"\nrate = 24.0", "kind = \"burst\"\nover = \"1s\"");
    let objectives = SPREAD.find("[slo]").unwrap();
    let goodput = ["tune", "s.toml", "--objective", "goodput", "--space"];
    let tune = |space: &'static str| [&goodput[..], &[space]].concat();
    let cases = [
        (SPREAD, vec!["sweep", "s.toml", "--key", "fleet.wrokers=1,2"], &["fleet.wrokers"][..]),
        (
            SPREAD,
            vec!["sweep", "s.toml", "--key", "fleet.workers=1,0"],
            &["fleet.workers", "0 is out of range"],
        ),
        (SPREAD, vec!["sweep", "s.toml", "--key", "fleet.workers"], &["--key", "PATH=V1,V2"]),
        (SPREAD, vec!["sweep", "s.toml", "--mode", "live"], &["--mode"]),
        (
            SPREAD,
            vec!["sweep", "s.toml", "--key", "fleet.workers=1,2", "--key", "fleet.workers=4"],
            &["--key fleet.workers is given twice", "in one list"],
        ),
        (SPREAD, tune("cache_treshold=0.1..0.9"), &["cache_treshold", "did you mean `cache_threshold`?"]),
        (SPREAD, tune("cache_threshold=0.5..2"), &["cache_threshold", "from 0 to 1"]),
        (SPREAD, tune("fleet.workers=1..8"), &["fleet.workers", "only options of policies"]),
        (SPREAD, tune("random.x=1|2"), &["random", "--policy"]),
        (SPREAD, vec!["tune", "s.toml", "--policy", "random"], &["--space is missing", "random"]),
        (&SPREAD[..objectives], tune("cache_threshold=0.1..0.9"), &["[slo]", "--slo-ttft"]),
        (&SPREAD[..objectives], vec!["capacity", "s.toml"], &["[slo]", "--slo-ttft"]),
        (&burst, vec!["capacity", "s.toml"], &["burst", "poisson, constant or gamma"]),
        (SPREAD, vec!["capacity", "no-such.toml"], &["no-such.toml"]),
    ];
    for (scenario, args, words) in cases {
        let bench = Bench::new();
        bench.file("s.toml", scenario);
        let ended = bench.run(&args);
        assert_eq!(ended.code, Some(2), "{args:?}: {}{}", ended.stdout, ended.stderr);
        for word in words {
            assert!(ended.stderr.contains(word), "{args:?}: no {word:?} in {}", ended.stderr);
        }
        assert!(ended.stdout.is_empty(), "{args:?}: {}", ended.stdout);
    }
}

#[test]
fn a_search_that_cannot_keep_its_results_prints_them() {
    for (command, more) in [("sweep", &["--key", "fleet.workers=2,3"][..]), ("capacity", &[])] {
        let bench = Bench::new();
        bench.file("s.toml", &SPREAD.replace("prompts_per_group = 16", "prompts_per_group = 1"));
        bench.file("out", "a file where the folder should be");
        let ended = bench.run(&[&[command, "s.toml", "--policy", "random"], more].concat());
        assert_eq!(ended.code, Some(2), "{command}: {}", ended.stderr);
        assert_eq!(ended.stderr.matches("loadgen: ").count(), 1, "{command}: {}", ended.stderr);
        assert!(ended.stderr.contains("--out") && ended.stdout.contains("random"), "{}", ended.stdout);
    }
}
