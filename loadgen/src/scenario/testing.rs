//! What the tests of scenarios share.

use super::*;

/// Loads `text` as `s.toml` in a directory of its own.
pub(super) fn load_text(text: &str, set: &[(&str, &str)]) -> Result<Scenario, ScenarioError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.toml");
    std::fs::write(&path, text).unwrap();
    let set: Vec<_> = set.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect();
    load(&path, &set, None, None, None)
}
