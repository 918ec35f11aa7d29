//! Virtual runs are functions of scenario and seed, to the byte.

use crate::program::{Bench, shipped};

/// All but what may differ between identical runs.
const FILES: [&str; 10] = [
    "summary.json",
    "summary.csv",
    "requests.csv",
    "report.html",
    "winner.toml",
    "timeseries.csv",
    "workers.csv",
    "reach.csv",
    "summary.md",
    "hist/virtual-cache_aware.hlog",
];

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let [first, second] = [(); 2].map(|()| {
        let bench = Bench::new();
        let ended =
            bench.run(&[&shipped("multi_prefix.toml"), "--mode", "virtual", "--seeds", "2", "--quiet"]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        FILES.map(|name| std::fs::read_to_string(bench.out().join(name)).unwrap())
    });
    assert!(first[2].lines().count() > 2 * 1024, "every request has its row");
    for (name, (a, b)) in FILES.iter().zip(first.iter().zip(&second)) {
        assert!(a == b, "{name} differs between two runs");
    }
}

#[test]
fn another_seed_gives_another_run() {
    let bench = Bench::new();
    let ended = bench.run(&[&shipped("multi_prefix.toml"), "--mode", "virtual", "--seeds", "2", "--quiet"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let runs = bench.runs();
    assert_ne!(runs[0]["seed"], runs[1]["seed"]);
    assert_ne!(runs[0]["ttft_ms"], runs[1]["ttft_ms"]);
}
