//! `loadgen trace`, run as its clients run it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{root, shared_trace};

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
    assert!(!dir.path().join("out.jsonl.part").exists());
}

#[test]
fn mistakes_exit_with_2_and_name_the_place() {
    let dir = tempfile::tempdir().unwrap();
    let bad = dir.path().join("bad.jsonl");
    let good = std::fs::read_to_string(small()).unwrap();
    std::fs::write(&bad, good.replacen("\n{", "\nx{", 1)).unwrap();
    let here = text(dir.path());
    let cases: [(&[&str], &str); 7] = [
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
    ];
    for (args, says) in cases {
        let output = loadgen(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(says), "{args:?}: {stderr}");
    }
    let tolerated = loadgen(&["info", &text(&bad), "--skip-bad", "1"]);
    assert!(tolerated.status.success());
    assert!(String::from_utf8_lossy(&tolerated.stdout).contains("1 bad rows"));
    let shown = loadgen(&["info", &text(&small()), "--json", "/nowhere/info.json"]);
    assert!(
        String::from_utf8_lossy(&shown.stdout).contains("requests"),
        "the figures are shown all the same"
    );
}
