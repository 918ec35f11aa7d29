//! Sweeps, tuning and capacity, as their clients run them.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::program::{Bench, Ended, until, wait};
use crate::support::root;

/// Goodput is highest at a threshold of 0.3, by a grid with 50 seeds; the present one is 0.9.
const SPREAD: &str = include_str!("../../../scripts/performance/tune.toml");

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

/// What the router's own reader makes of a file: the section of the policy.
fn read_by_the_router(path: &Path) -> toml::Table {
    let output = Command::new(env!("CARGO_BIN_EXE_loadgen"))
        .args(["__router", "check", "--config"])
        .arg(path)
        .env_remove("SGLANG_ROUTER_P2C_LOAD_METRIC")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: toml::Table = String::from_utf8(output.stdout).unwrap().parse().unwrap();
    read["policy"].as_table().unwrap().clone()
}

// --- sweep

/// A sweep of 24 cells with two seeds, of about 50,000 requests in all.
const SWEEP: [&str; 8] = [
    "sweep",
    "s.toml",
    "--key",
    "router.options.cache_aware.cache_threshold=0.1,0.2,0.3,0.4,0.5,0.6",
    "--key",
    "fleet.workers=2,3,4,5",
    "--seeds",
    "2",
];

#[test]
fn a_sweep_gives_what_a_run_of_the_same_cells_gives() {
    let [swept, run] = [(); 2].map(|()| Bench::new());
    for bench in [&swept, &run] {
        bench.file("s.toml", &SPREAD.replace("prompts_per_group = 16", "prompts_per_group = 2"));
    }
    ok(&swept.run(&["sweep", "s.toml", "--key", "fleet.workers=2,4", "--key", "fleet.schedule=fcfs,lpm"]));
    let (workers, schedule) =
        ("sweep.\"fleet.workers\"=[2,4]", "sweep.\"fleet.schedule\"=[\"fcfs\",\"lpm\"]");
    ok(&run.run(&["s.toml", "--set", workers, "--set", schedule]));
    assert_eq!(swept.runs().len(), 4);
    for name in ["summary.json", "summary.csv"] {
        assert_eq!(text(&swept, name), text(&run, name), "{name}");
    }
    assert!(swept.out().join("report.html").exists() && !swept.out().join("requests.csv").exists());
}

#[test]
fn an_interrupted_sweep_resumes_and_ends_with_the_same_bytes() {
    let [whole, cut] = [(); 2].map(|()| Bench::new());
    for bench in [&whole, &cut] {
        bench.file("s.toml", SPREAD);
    }
    ok(&whole.run(&SWEEP));
    let mut child = cut.command(&SWEEP).spawn().unwrap();
    let journal = cut.out().join("runs.jsonl");
    let lines = || std::fs::read_to_string(&journal).unwrap_or_default().lines().count();
    until(Duration::from_secs(60), || (lines() > 3).then_some(()));
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    assert_eq!(wait(&mut child, Duration::from_secs(60)).code(), Some(130));
    let done = lines() - 1;
    assert!(done < 48 && !cut.out().join("summary.json").exists(), "{done} of 48 runs were done");
    // A line that was cut by the end of the disk.
    let mut kept = std::fs::read_to_string(&journal).unwrap();
    assert!(kept.ends_with('\n'), "lines are whole");
    kept.push_str("{\"cell\":\"cache_aware {\\\"cache_thr");
    std::fs::write(&journal, kept).unwrap();
    let resumed = cut.run(&SWEEP);
    ok(&resumed);
    assert!(resumed.stderr.contains(&format!("{done} of 48 done, resuming")), "{}", resumed.stderr);
    for name in ["summary.json", "summary.csv", "report.html", "winner-workers=4.toml"] {
        assert!(text(&whole, name) == text(&cut, name), "{name} differs");
    }
    // All is done: nothing is run again, and more seeds only add to it.
    let again = cut.run(&SWEEP);
    ok(&again);
    assert!(again.stderr.contains("48 of 48 done, resuming"), "{}", again.stderr);
    let more: Vec<&str> = SWEEP[..7].iter().copied().chain(["3"]).collect();
    let more = cut.run(&more);
    ok(&more);
    assert!(more.stderr.contains("48 of 72 done, resuming"), "{}", more.stderr);
}

#[test]
fn the_runs_of_another_sweep_are_not_mixed_in() {
    let bench = Bench::new();
    bench.file("s.toml", &SPREAD.replace("prompts_per_group = 16", "prompts_per_group = 1"));
    ok(&bench.run(&["sweep", "s.toml", "--key", "fleet.workers=2,4"]));
    let other = ["sweep", "s.toml", "--key", "fleet.workers=2,5"];
    let refused = bench.run(&other);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("runs.jsonl") && refused.stderr.contains("--fresh"),
        "{}",
        refused.stderr
    );
    assert_eq!(bench.runs()[1]["params"]["fleet.workers"], 4, "the results stay as they were");
    ok(&bench.run(&[&other[..], &["--fresh"]].concat()));
    assert_eq!(bench.runs()[1]["params"]["fleet.workers"], 5);
}

// --- wrong questions

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
        (SPREAD, vec!["sweep", "s.toml", "--mode", "live"], &["--mode live", "virtual time only"]),
        (SPREAD, tune("cache_treshold=0.1..0.9"), &["cache_treshold", "did you mean `cache_threshold`?"]),
        (SPREAD, tune("cache_threshold=0.5..2"), &["cache_threshold", "from 0 to 1"]),
        (SPREAD, tune("fleet.workers=1..8"), &["fleet.workers", "only options of policies"]),
        (SPREAD, tune("random.x=1|2"), &["random", "--policy"]),
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

// --- tune

/// Tunes the threshold of `scenario`, whose seeds begin at `seed`.
fn tune(bench: &Bench, scenario: &str, seed: u64) -> (Ended, Value) {
    bench.file("s.toml", scenario);
    let seed = format!("seed={seed}");
    let ended = bench.run(&[
        "tune",
        "s.toml",
        "--objective",
        "goodput",
        "--space",
        "cache_threshold=0.1..0.9",
        "--budget",
        "9",
        "--seeds",
        "6",
        "--set",
        &seed,
    ]);
    ok(&ended);
    let found = json(bench, "tune.json");
    (ended, found)
}

/// On few seeds what scripts/performance/tune.py does on many.
#[test]
fn tune_finds_the_known_best_threshold_and_the_router_reads_it() {
    for seed in [1, 1001, 2001] {
        let bench = Bench::new();
        let (ended, found) = tune(&bench, SPREAD, seed);
        assert_eq!(found["verdict"], "change", "{found:#}");
        let threshold = found["best"]["params"]["cache_threshold"].as_f64().unwrap();
        assert!((threshold - 0.3).abs() < 0.1 + 1e-9, "seed {seed}: {threshold}");
        let low = found["gain_interval"][0].as_f64().unwrap();
        assert!(low > 0.5, "three times the goodput of the present 0.9: {found:#}");
        let flags = format!("recommended: --policy cache_aware --cache-threshold {threshold}\n");
        assert!(ended.stdout.contains(&flags), "{}", ended.stdout);
        let policy = read_by_the_router(&bench.out().join("router.toml"));
        assert_eq!(policy["cache_threshold"].as_float(), Some(threshold));
        let remarks = text(&bench, "router.toml");
        assert!(remarks.contains("95 % interval") && remarks.contains("router --config FILE"), "{remarks}");
        assert_eq!(bench.runs().len(), 2 * 20, "present and best, on seeds that the search has not seen");
        assert!(bench.runs().iter().all(|run| run["seed"].as_u64().unwrap() >= seed + 6));
    }
}

#[test]
fn tune_leaves_it_as_it_is_where_the_threshold_cannot_matter() {
    let bench = Bench::new();
    bench.file("unrelated.txt", "");
    // What an earlier tuning had found does not stay beside another verdict.
    std::fs::create_dir_all(bench.out()).unwrap();
    std::fs::write(bench.out().join("router.toml"), "# Written by loadgen tune for it.\n").unwrap();
    for seed in [1, 1001, 2001] {
        let (ended, found) = tune(&bench, &unshared(), seed);
        assert_ne!(found["verdict"], "change", "{found:#}");
        assert!(ended.stdout.contains("leave it as it is"), "{}", ended.stdout);
        assert!(!bench.out().join("router.toml").exists() && found["flags"].is_null());
    }
}

#[test]
fn a_trace_is_tuned_on_its_first_half_and_confirmed_on_its_later_half() {
    let bench = Bench::new();
    let trace = root().join("scenarios/mooncake_small.jsonl");
    let args =
        ["tune", trace.to_str().unwrap(), "--objective", "hit_rate", "--workers", "3", "--budget", "4"];
    let ended = bench.run(&args);
    ok(&ended);
    let found = json(&bench, "tune.json");
    assert!(found["confirmed_on"].as_str().unwrap().contains("later half"), "{found:#}");
    assert_eq!(found["tried"].as_array().unwrap().len(), 5, "four, and the present setting");
    assert!(ended.stdout.contains("recommended: ") != ended.stdout.contains("leave it as it is"));
    // The scenario that was made for it can be run as any other.
    let scenario = bench.out().join("scenario.toml");
    ok(&bench.run(&[scenario.to_str().unwrap(), "--policy", "cache_aware", "--quiet"]));
}

// --- capacity

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
