//! Virtual runs are functions of scenario and seed, to the byte.

use crate::program::{Bench, shipped};

/// All but what may differ between identical runs.
const FILES: [&str; 5] = ["summary.json", "summary.csv", "requests.csv", "report.html", "winner.toml"];

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

/// The figures of committed runs, whatever built this program: debug and release, today and later. A change of behaviour
/// changes them on purpose; `UPDATE_BASELINES=1 cargo test -p loadgen` then writes them anew, for review.
#[test]
fn committed_runs_are_reproduced_to_the_byte() {
    for name in ["smoke", "multi_prefix"] {
        let bench = Bench::new();
        let scenario = shipped(&format!("{name}.toml"));
        let ended = bench.run(&[&scenario, "--mode", "virtual", "--seeds", "1", "--quiet"]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let now = std::fs::read_to_string(bench.out().join("summary.json")).unwrap();
        let path = crate::support::root().join(format!("reports/baselines/{name}.json"));
        if std::env::var_os("UPDATE_BASELINES").is_some() {
            std::fs::write(&path, &now).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap();
        for (line, (a, b)) in committed.lines().zip(now.lines()).enumerate() {
            assert_eq!(a, b, "line {} of {}", line + 1, path.display());
        }
        assert!(committed == now, "{} has another length", path.display());
    }
}
