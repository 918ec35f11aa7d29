//! The gate: an unchanged run passes, a changed one is named, and what cannot be compared is refused.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::program::{Bench, Ended, shipped};
use crate::schema::Schema;
use crate::support::root;

const SMALL: &str = r#"
schema = 1
name = "small"
[workload]
kind = "shared_prefix"
groups = 16
prompts_per_group = 8
system_tokens = 512
question_tokens = 64
output_tokens = 4
[arrival]
kind = "constant"
rate = 100.0
[fleet]
workers = 4
[router]
policies = ["round_robin", "cache_aware"]
"#;

/// What `cache_threshold = 0.95` does: no prompt shares so much, so every one goes to the least loaded worker.
const NEVER: [&str; 2] = ["--set", "router.options.cache_aware.cache_threshold=0.95"];

/// A bench in which the small scenario is run and compared.
struct Gate {
    bench: Bench,
    scenario: PathBuf,
}

impl Gate {
    fn new() -> Self {
        let bench = Bench::new();
        let scenario = bench.file("s.toml", SMALL);
        Self { bench, scenario }
    }

    fn run(&self, args: &[&str]) {
        let scenario = self.scenario.to_str().unwrap();
        let ended = self.bench.run(&[&["run", scenario, "--quiet"], args].concat());
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.bench.out().with_file_name(name)
    }

    fn compare(&self, args: &[&str]) -> Ended {
        self.compare_with("base.json", args)
    }

    fn compare_with(&self, baseline: &str, args: &[&str]) -> Ended {
        compare(&self.bench, &self.path(baseline), args)
    }
}

fn compare(bench: &Bench, baseline: &std::path::Path, args: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loadgen"));
    command.arg("compare").arg(bench.out()).arg("--baseline").arg(baseline).args(args);
    command.env("GITHUB_STEP_SUMMARY", bench.out().with_file_name("summary.md"));
    let output = command.output().unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The baselines of this repository, by the names of their scenarios.
fn committed() -> Vec<String> {
    let folder = std::fs::read_dir(root().join("reports/baselines")).unwrap();
    let names = folder.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Whatever built this program, debug or release, today or later. A change of behaviour changes the figures on purpose;
/// `loadgen compare … --update` records them anew, for review.
#[test]
fn committed_baselines_are_reproduced_to_the_last_bit() {
    let names = committed();
    assert!(names.len() >= 3, "{names:?}");
    for name in names {
        let bench = Bench::new();
        let scenario = shipped(&format!("{name}.toml"));
        let ended = bench.run(&["run", &scenario, "--mode", "virtual", "--quiet"]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let ended = compare(&bench, &root().join(format!("reports/baselines/{name}.json")), &[]);
        assert_eq!(ended.code, Some(0), "{name}: {}{}", ended.stdout, ended.stderr);
    }
}

#[test]
fn a_threshold_that_changed_fails_and_names_cell_and_figure() {
    let gate = Gate::new();
    gate.run(&[]);
    let ended = gate.compare(&["--update"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let recorded = std::fs::read_to_string(gate.path("base.json")).unwrap();
    assert!(!recorded.contains("cores"), "virtual figures are those of any machine");

    let ended = gate.compare(&[]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    assert!(ended.stdout.contains("passed") && ended.stdout.contains("unchanged."), "{}", ended.stdout);

    gate.run(&NEVER);
    let ended = gate.compare(&[]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let row = |figure: &str| {
        let start = format!("| cache_aware (virtual) | {figure} |");
        let row = ended.stdout.lines().find(|line| line.starts_with(&start));
        row.unwrap_or_else(|| panic!("no {figure} in {}", ended.stdout)).to_owned()
    };
    assert!(row("hit_rate").ends_with("| exact | worse |"), "{}", row("hit_rate"));
    assert!(row("ttft_ms.p50").ends_with("| worse |"), "{}", row("ttft_ms.p50"));
    assert!(!ended.stdout.contains("| round_robin"), "it did not change: {}", ended.stdout);
    assert!(
        ended.stdout.contains("--update") && ended.stdout.contains("settings of the router"),
        "{}",
        ended.stdout
    );
    assert!(
        ended.stderr.starts_with("loadgen: gate small failed: cache_aware (virtual) "),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_better_figure_fails_too_until_it_is_recorded() {
    let gate = Gate::new();
    gate.run(&NEVER);
    assert_eq!(gate.compare(&["--update"]).code, Some(0));
    let former = std::fs::read_to_string(gate.path("base.json")).unwrap();
    gate.run(&[]);
    let ended = gate.compare(&[]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let hit = ended.stdout.lines().find(|line| line.contains("| hit_rate |")).unwrap();
    assert!(hit.ends_with("| better |"), "{hit}");
    let ended = gate.compare(&["--update"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains(hit) && ended.stdout.contains("recorded"), "{}", ended.stdout);
    assert_ne!(std::fs::read_to_string(gate.path("base.json")).unwrap(), former);
    assert_eq!(gate.compare(&[]).code, Some(0));
}

#[test]
fn what_cannot_be_compared_exits_with_3_and_says_what_helps() {
    let gate = Gate::new();
    gate.run(&[]);
    assert_eq!(gate.compare(&["--update"]).code, Some(0));
    let refused = |case: &str, baseline: &str, words: &[&str]| {
        let ended = gate.compare_with(baseline, &[]);
        assert_eq!(ended.code, Some(3), "{case}: {}", ended.stderr);
        assert_eq!(
            (ended.stderr.lines().count(), ended.stdout.as_str()),
            (1, ""),
            "{case}: {}",
            ended.stderr
        );
        for word in words.iter().chain(&["--update"]) {
            assert!(ended.stderr.contains(word), "{case}: no {word:?} in {}", ended.stderr);
        }
    };
    refused("none there", "none.json", &["none.json", "no such baseline"]);
    refused("a summary", "out/summary.json", &["summary of a run"]);
    let base = std::fs::read_to_string(gate.path("base.json")).unwrap();
    gate.bench.file("schema.json", &base.replace("\"schema\": 1", "\"schema\": 2"));
    refused("another schema", "schema.json", &["schema 2"]);
    let emptied = |name: &str, empty: &dyn Fn(&mut Value)| {
        let mut value: Value = serde_json::from_str(&base).unwrap();
        empty(&mut value);
        gate.bench.file(name, &value.to_string());
    };
    emptied("cells.json", &|base| base["cells"] = serde_json::json!([]));
    refused("no cells", "cells.json", &["has no cells"]);
    emptied("figures.json", &|base| base["cells"][1]["figures"] = serde_json::json!({}));
    refused("no figures", "figures.json", &["no figures of cache_aware (virtual)"]);
    emptied("strange.json", &|base| {
        for cell in base["cells"].as_array_mut().unwrap() {
            cell["policy"] = "random".into();
            cell["params"] = serde_json::json!({});
        }
        base["cells"].as_array_mut().unwrap().truncate(1);
    });
    refused("no cell in common", "strange.json", &["random (virtual)", "not in the run"]);
    emptied("mute.json", &|base| drop(base["fingerprint"].as_object_mut().unwrap().remove("asked")));
    assert_eq!(gate.compare_with("mute.json", &[]).code, Some(0), "as older programs wrote it");
    gate.bench.file("name.json", &base.replace("\"small\"", "\"large\""));
    refused("another scenario", "name.json", &["`large`", "`small`"]);
    for (case, args, words) in [
        (
            "other work",
            &["--set", "workload.groups=8", "--set", "workload.order=grouped", "--set", "fleet.workers=6"][..],
            &[
                "another workload",
                "fleet.workers: 4 → 6, workload.groups: 16 → 8, workload.order: unset → \"grouped\"; run",
            ][..],
        ),
        ("fewer cells", &["--policy", "round_robin"], &["cache_aware (virtual)", "not in the run"]),
        ("more cells", &["--policy", "round_robin,cache_aware,random"], &["random (virtual)"]),
        ("other seeds", &["--set", "seed=2"], &["seed 1", "--seeds 1"]),
    ] {
        gate.run(args);
        refused(case, "base.json", words);
    }
}

#[test]
fn a_figure_that_the_run_lacks_fails_and_is_named() {
    let gate = Gate::new();
    gate.run(&["--seeds", "2"]);
    assert_eq!(gate.compare(&["--update"]).code, Some(0));
    let path = gate.bench.out().join("summary.json");
    let mut summary: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    for run in summary["runs"].as_array_mut().unwrap().iter_mut().take(1) {
        run.as_object_mut().unwrap().remove("hit_rate");
    }
    std::fs::write(&path, summary.to_string()).unwrap();
    let ended = gate.compare(&[]);
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    let row = ended.stdout.lines().find(|line| line.contains("| hit_rate |")).unwrap();
    assert!(row.contains("| – |") && row.ends_with("| missing |"), "{row}");
    let first = "loadgen: gate small failed: round_robin (virtual) hit_rate: ";
    assert!(ended.stderr.starts_with(first) && ended.stderr.contains("missing"), "{}", ended.stderr);

    let runs = summary["runs"].as_array_mut().unwrap();
    runs.push(runs[1].clone());
    std::fs::write(&path, summary.to_string()).unwrap();
    let ended = gate.compare(&[]);
    assert_eq!(ended.code, Some(2), "{}", ended.stdout);
    assert!(ended.stderr.contains("is there twice"), "{}", ended.stderr);
}

#[test]
fn what_cannot_be_read_or_written_exits_with_2() {
    let gate = Gate::new();
    let ended = gate.compare(&[]);
    assert_eq!(ended.code, Some(2), "no run: {}", ended.stderr);
    assert!(ended.stderr.contains("summary.json") || ended.stderr.contains("out"), "{}", ended.stderr);
    gate.run(&[]);
    gate.bench.file("base.json", "{\"schema\": 1,");
    let ended = gate.compare(&[]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("base.json") && ended.stderr.contains("line 1"), "{}", ended.stderr);
    let ended = gate.compare(&["--update"]);
    assert_eq!(ended.code, Some(0), "a broken one is replaced: {}", ended.stderr);
    let taken = gate.bench.file("taken", "a file where a folder should be");
    for flag in ["--json", "--junit", "--markdown"] {
        let path = taken.join("x");
        let ended = gate.compare(&[flag, path.to_str().unwrap()]);
        assert_eq!(ended.code, Some(2), "{flag}: {}", ended.stderr);
        assert!(
            ended.stderr.contains("taken") && ended.stdout.contains("passed"),
            "{flag}: the table is printed"
        );
    }
    let ended = gate.compare_with("taken/base.json", &["--update"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    for bad in [["--tolerance", "speed=1"], ["--tolerance", "hit_rate"]] {
        assert_eq!(gate.compare(&bad).code, Some(2), "{bad:?}");
    }
}

#[test]
fn results_go_to_every_reader_and_keep_their_schemas() {
    let gate = Gate::new();
    gate.run(&["--seeds", "2"]);
    assert_eq!(gate.compare(&["--update"]).code, Some(0));
    gate.run(&[&["--seeds", "2"], &NEVER[..]].concat());
    let [json, junit, markdown] = ["new/c.json", "new/c.xml", "c.md"].map(|name| gate.path(name));
    let args = [("--json", &json), ("--junit", &junit), ("--markdown", &markdown)];
    let args: Vec<&str> = args.iter().flat_map(|(flag, path)| [*flag, path.to_str().unwrap()]).collect();
    let ended = gate.compare(&args);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);

    let read = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
    assert_eq!(read(&markdown), ended.stdout);
    assert!(read(&gate.path("summary.md")).contains(&ended.stdout), "the page of the job shows it too");
    let parsed = |path: &PathBuf| serde_json::from_str::<Value>(&read(path)).unwrap();
    let comparison = parsed(&json);
    let rows = comparison["rows"].as_array().unwrap();
    let fails = rows.iter().filter(|row| row["fails"] == true).count();
    assert!(fails > 5 && comparison["outcome"] == "failed", "{comparison:#}");
    let text = read(&junit);
    assert_eq!(text.matches("<testcase ").count(), rows.len());
    assert_eq!(text.matches("<failure ").count(), fails);
    assert!(text.contains("classname=\"small.cache_aware (virtual)\" name=\"hit_rate\""), "{text}");

    for (name, file) in [
        ("comparison", json),
        ("baseline", gate.path("base.json")),
        ("summary", gate.bench.out().join("summary.json")),
    ] {
        let schema = Schema::committed(name);
        let mistakes = schema.mistakes(&parsed(&file));
        assert!(mistakes.is_empty(), "{name}: {mistakes:#?}");
        let mut broken = parsed(&file);
        broken["scenario"] = Value::Null;
        assert_eq!(schema.mistakes(&broken).len(), 1, "{name}: the schema says something");
    }
    for name in committed() {
        let file = root().join(format!("reports/baselines/{name}.json"));
        let mistakes = Schema::committed("baseline").mistakes(&parsed(&file));
        assert!(mistakes.is_empty(), "{name}: {mistakes:#?}");
    }
}
