//! What the integration tests share: a scenario text in, summaries out.

use std::path::{Path, PathBuf};

use loadgen::experiment;
use loadgen::report::RunSummary;
use loadgen::run::Run;
use loadgen::scenario;

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A shared trace, or a visible note that the test is skipped.
pub(crate) fn shared_trace(name: &str) -> Option<PathBuf> {
    let path = root().join("../shared/traces").join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!("SKIPPED: {} is not there", path.display());
    None
}

/// Runs a scenario given as text; `--set` style overrides win.
pub(crate) fn run(toml: &str, overrides: &[(&str, &str)]) -> Vec<Run> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("scenario.toml");
    std::fs::write(&path, toml).unwrap();
    let overrides: Vec<(String, String)> =
        overrides.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let scenario = scenario::load(&path, &overrides, None, None, None).unwrap_or_else(|e| panic!("{e}"));
    experiment::run(&scenario, None, true).unwrap_or_else(|e| panic!("{e}")).runs
}

/// As [`run`], summarised.
pub(crate) fn summaries(toml: &str, overrides: &[(&str, &str)]) -> Vec<RunSummary> {
    run(toml, overrides).iter().map(|run| RunSummary::of(run, None)).collect()
}
