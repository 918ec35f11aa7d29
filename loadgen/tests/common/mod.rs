//! What the integration tests share: a scenario text in, summaries out.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::{Path, PathBuf};

use loadgen::experiment;
use loadgen::report::RunSummary;
use loadgen::run::Run;
use loadgen::scenario;

/// The workspace's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A shared trace, or a visible note that the test is skipped.
pub fn shared_trace(name: &str) -> Option<PathBuf> {
    let path = root().join("../shared/traces").join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!("SKIPPED: {} is not there", path.display());
    None
}

/// Runs a scenario given as text; `--set` style overrides win.
pub fn run(toml: &str, overrides: &[(&str, &str)]) -> Vec<Run> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("scenario.toml");
    std::fs::write(&path, toml).unwrap();
    let overrides: Vec<(String, String)> =
        overrides.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let scenario = scenario::load(&path, &overrides, None, None, None).unwrap_or_else(|e| panic!("{e}"));
    experiment::run(&scenario, None, true).unwrap_or_else(|e| panic!("{e}")).runs
}

/// As [`run`], summarised.
pub fn summaries(toml: &str, overrides: &[(&str, &str)]) -> Vec<RunSummary> {
    run(toml, overrides).iter().map(|run| RunSummary::of(run, None)).collect()
}

/// The middle value.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
