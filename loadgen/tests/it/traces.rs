//! `loadgen trace`, run as its clients run it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;

use crate::program;
use crate::support::{root, shared_trace};

/// Longest wait of a test.
const PATIENCE: Duration = Duration::from_secs(60);

fn loadgen(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_loadgen")).arg("trace").args(args).output().unwrap()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn small() -> PathBuf {
    root().join("scenarios/mooncake_small.jsonl")
}

/// The JSON of `trace info`.
fn info(path: &Path) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("info.json");
    let output = loadgen(&["info", &text(path), "--json", &text(&json)]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("an infinite cache serves"));
    serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap()
}

#[test]
fn info_writes_the_published_lru_curve() {
    let Some(trace) = shared_trace("mooncake_synthetic_full.jsonl") else { return };
    let info = info(&trace);
    let expected = [(640, 0.093), (1_920, 0.214), (5_856, 0.453), (11_718, 0.643), (97_657, 0.863)];
    let lru = info["lru"].as_array().unwrap();
    assert_eq!(lru.len(), 5);
    for (point, (blocks, hit_rate)) in lru.iter().zip(expected) {
        assert_eq!(point["blocks"], blocks);
        assert!((point["hit_rate"].as_f64().unwrap() - hit_rate).abs() <= 0.001, "{point}");
    }
}

#[test]
fn an_anonymous_copy_has_the_figures_of_the_trace() {
    let dir = tempfile::tempdir().unwrap();
    let (copy, salt) = (dir.path().join("copy.jsonl"), dir.path().join("salt"));
    std::fs::write(&salt, "a salt that nobody knows").unwrap();
    let output = loadgen(&["anonymize", &text(&small()), &text(&copy), "--salt", &text(&salt)]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!String::from_utf8_lossy(&output.stdout).contains("nobody knows"));
    let (mut before, mut after) = (info(&small()), info(&copy));
    (before["file"], after["file"]) = (Value::Null, Value::Null);
    assert_eq!(before, after);
    let drawn = dir.path().join("drawn.jsonl");
    assert!(loadgen(&["anonymize", &text(&small()), &text(&drawn)]).status.success());
    assert_ne!(std::fs::read(&copy).unwrap(), std::fs::read(&drawn).unwrap(), "another salt, other names");
}

#[test]
fn a_converted_trace_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.jsonl");
    let output = loadgen(&["convert", &text(&small()), &text(&out), "--to", "bailian"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (before, after) = (info(&small()), info(&out));
    assert_eq!(after["format"], "bailian");
    assert_eq!(before["input_tokens"], after["input_tokens"]);
    assert_eq!(before["arrivals"], after["arrivals"]);
    assert_eq!(names(dir.path()).len(), 1, "nothing else is left");
}

/// Names in a folder.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_is_interrupted_leaves_nothing_half_written() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, out) = (dir.path().join("endless.jsonl"), dir.path().join("out.jsonl"));
    let first = std::fs::read_to_string(small()).unwrap().lines().next().unwrap().to_owned();
    std::fs::write(&trace, first + "\n").unwrap();
    // A hole, which takes no room and much longer to read than this test lasts.
    std::fs::File::options().append(true).open(&trace).unwrap().set_len(1 << 42).unwrap();
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        for action in [&["convert", "--to", "bailian"][..], &["anonymize"]] {
            std::fs::write(&out, "what was there").unwrap();
            let mut child = Command::new(env!("CARGO_BIN_EXE_loadgen"))
                .arg("trace")
                .args(action)
                .args([&text(&trace), &text(&out), "--skip-bad", "1"])
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap();
            program::until(PATIENCE, || (names(dir.path()).len() > 2).then_some(()));
            let kill = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
            assert!(kill.unwrap().success());
            assert_eq!(program::wait(&mut child, PATIENCE).code(), Some(code), "{signal} {action:?}");
            assert_eq!(names(dir.path()), ["endless.jsonl", "out.jsonl"], "{signal} {action:?}");
            assert_eq!(std::fs::read_to_string(&out).unwrap(), "what was there");
        }
    }
}

#[test]
fn a_trace_is_not_written_over_by_its_copy() {
    let dir = tempfile::tempdir().unwrap();
    let [trace, hard, soft, out] =
        ["a.jsonl.part", "hard", "soft", "a.jsonl"].map(|name| dir.path().join(name));
    std::fs::copy(small(), &trace).unwrap();
    std::fs::hard_link(&trace, &hard).unwrap();
    std::os::unix::fs::symlink(&trace, &soft).unwrap();
    let former = std::fs::read(&trace).unwrap();
    for over in [&trace, &hard, &soft] {
        for args in [&["convert", "--to", "bailian"][..], &["anonymize"]] {
            let output = loadgen(&[args, &[&text(&trace), &text(over)]].concat());
            assert_eq!(output.status.code(), Some(2), "{args:?} {}", over.display());
            assert!(
                String::from_utf8_lossy(&output.stderr).contains("is the trace itself; give another file")
            );
        }
        let output = loadgen(&["info", &text(&trace), "--json", &text(over)]);
        assert_eq!(output.status.code(), Some(2), "{}", over.display());
        assert_eq!(std::fs::read(&trace).unwrap(), former);
    }
    // A name that a temporary file could have had.
    assert!(loadgen(&["convert", "--to", "bailian", &text(&trace), &text(&out)]).status.success());
    assert_eq!(std::fs::read(&trace).unwrap(), former);
}

#[test]
fn a_copy_that_nobody_is_told_of_is_written_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.jsonl");
    let mut child = Command::new(env!("CARGO_BIN_EXE_loadgen"))
        .args(["trace", "convert", "--to", "azure", &text(&small()), &text(&out)])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(program::wait(&mut child, PATIENCE).code(), Some(0));
    assert!(std::fs::metadata(&out).unwrap().len() > 0);
}

#[test]
fn what_fails_leaves_nothing_half_written() {
    let dir = tempfile::tempdir().unwrap();
    let good = std::fs::read_to_string(small()).unwrap();
    let (bad, out) = (dir.path().join("bad.jsonl"), dir.path().join("out.jsonl"));
    std::fs::write(&bad, good + "garbage\n").unwrap();
    for action in [&["convert", "--to", "mooncake"][..], &["anonymize"]] {
        let output = loadgen(&[action, &[&text(&bad), &text(&out)]].concat());
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(names(dir.path()), ["bad.jsonl"], "{action:?}");
    }
}

#[test]
fn a_file_that_may_not_grow_is_an_error_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.jsonl");
    let command = [
        "ulimit -f 8; exec",
        env!("CARGO_BIN_EXE_loadgen"),
        "trace convert",
        &text(&small()),
        &text(&out),
        "--to bailian",
    ];
    let output = Command::new("sh").args(["-c", &command.join(" ")]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{:?} {stderr}", output.status);
    assert!(stderr.contains("out.jsonl: cannot be written: File too large"), "{stderr}");
    assert!(names(dir.path()).is_empty());
}

#[test]
fn info_shows_the_caches_of_a_fleet() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("info.json");
    let fleet = ["--kv-tokens", "444500", "--workers", "8", "--json", &text(&json)];
    let output = loadgen(&[&["info", &text(&small())], &fleet[..]].concat());
    let stdout = String::from_utf8_lossy(&output.stdout);
    let has = |row: &str| assert!(stdout.contains(row), "no {row}: {stdout}");
    has("  one worker       444,416 ");
    has("   8 workers     3,555,840 ");
    let mut with: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let told = with.as_object_mut().unwrap().remove("lru_fleet").unwrap();
    assert_eq!((&told[0]["workers"], &told[1]["workers"]), (&1.into(), &8.into()));
    assert_eq!(told[1]["tokens"], 3_555_840);
    assert_eq!(with, info(&small()), "all else is as without");
}

#[test]
fn mistakes_exit_with_2_and_name_the_place() {
    let dir = tempfile::tempdir().unwrap();
    let bad = dir.path().join("bad.jsonl");
    let good = std::fs::read_to_string(small()).unwrap();
    std::fs::write(&bad, good.replacen("\n{", "\nx{", 1)).unwrap();
    let here = text(dir.path());
    let cases: [(&[&str], &str); 14] = [
        (&["info", &text(&bad)], "bad.jsonl:2: "),
        (&["info", "gone.jsonl"], "gone.jsonl: cannot be read"),
        (&["info", &here], "not a regular file"),
        (&["info", &text(&small()), "--format", "azure"], "mooncake_small.jsonl:1: the header has no column"),
        (
            &["info", &text(&small()), "--json", "/nowhere/info.json"],
            "--json /nowhere/info.json: cannot be written",
        ),
        (&["convert", &text(&bad), &text(&bad), "--to", "azure"], "is the trace itself"),
        (
            &["anonymize", &text(&small()), &text(&bad), "--salt", "/dev/null"],
            "--salt /dev/null: cannot be read",
        ),
        (&["info", &text(&small()), "--format", "azur"], "azure"),
        (&["info", &text(&small()), "--format", "auto"], "possible values: mooncake"),
        (&["info", &text(&small()), "--skip-bad=-1"], "invalid value '-1' for '--skip-bad <N>'"),
        (&["info", &text(&small()), "--skip-bad", "some"], "invalid value 'some' for '--skip-bad <N>'"),
        (&["info", &text(&small()), "--limit", "0"], "--limit"),
        (&["info", &text(&small()), "--workers", "8"], "--kv-tokens <N>"),
        (&["convert", &text(&small()), &text(&bad), "--to", "weka"], "possible values: mooncake"),
    ];
    for (args, says) in cases {
        let output = loadgen(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(says), "{args:?}: {stderr}");
    }
    let tolerated = loadgen(&["info", &text(&bad), "--skip-bad", "1"]);
    assert!(tolerated.status.success());
    assert!(String::from_utf8_lossy(&tolerated.stdout).contains("1 bad rows, the first: "));
    let shown = loadgen(&["info", &text(&small()), "--json", "/nowhere/info.json"]);
    assert!(
        String::from_utf8_lossy(&shown.stdout).contains("requests"),
        "the figures are shown all the same"
    );
}
