//! Sweeps.

use std::process::Command;
use std::time::Duration;

use super::{SPREAD, ok, text, unshared};
use crate::program::{Bench, until, wait};
use crate::support::root;

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
    assert_eq!(lines(), 1 + 48, "every run is kept once");
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

#[test]
fn a_sweep_of_a_trace_that_has_changed_under_its_name_does_not_resume() {
    let bench = Bench::new();
    let trace = std::fs::read_to_string(root().join("scenarios/mooncake_small.jsonl")).unwrap();
    let rows: Vec<&str> = trace.lines().take(200).collect();
    bench.file("t.jsonl", &rows.join("\n"));
    let around = "schema = 1\nname = \"t\"\n[workload]\nkind = \"trace\"\npath = \"t.jsonl\"\nlimit = 100\n\
                  [fleet]\nworkers = 2\n[router]\npolicies = [\"random\"]\n";
    bench.file("s.toml", around);
    let sweep = ["sweep", "s.toml", "--key", "fleet.workers=1,2"];
    ok(&bench.run(&sweep));
    let again = bench.run(&sweep);
    assert!(again.stderr.contains("2 of 2 done, resuming"), "{}", again.stderr);
    // Rows behind the limit: the same requests, of another file.
    bench.file("t.jsonl", &rows[..150].join("\n"));
    let refused = bench.run(&sweep);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("its trace have changed"), "{}", refused.stderr);
}

#[test]
fn a_sweep_names_the_default_where_nothing_makes_a_difference() {
    let bench = Bench::new();
    bench.file("s.toml", &unshared().replace("prompts_per_group = 16", "prompts_per_group = 2"));
    let key = "router.options.cache_aware.cache_threshold=0.1,0.3,0.5";
    let ended = bench.run(&["sweep", "s.toml", "--policy", "cache_aware", "--key", key]);
    ok(&ended);
    assert!(ended.stdout.contains("no difference: all 3 settings"), "{}", ended.stdout);
    assert!(
        ended.stdout.contains("no difference: cache_aware cache_threshold=0.3; to run it"),
        "{}",
        ended.stdout
    );
    assert!(text(&bench, "winner.toml").contains("nothing: no difference between the 3 settings"));
    assert!(text(&bench, "report.html").contains("No difference:"));
}

/// A limit on the size of files is as good as a full disk, and needs no disk.
#[test]
fn a_sweep_on_a_full_disk_goes_on_and_prints_its_table() {
    let bench = Bench::new();
    bench.file("s.toml", &SPREAD.replace("prompts_per_group = 16", "prompts_per_group = 1"));
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_loadgen")])
        .args(["sweep", "s.toml", "--policy", "random", "--key", "fleet.workers=2,3,4,5", "--out", "out"])
        .current_dir(bench.out().parent().unwrap())
        .output()
        .unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stdout.lines().filter(|line| line.contains("random")).count() >= 4, "{stdout}");
    assert_eq!(stderr.matches("loadgen: ").count(), 1, "{stderr}");
}
