//! What the tests of scenarios share.

use super::*;

/// A scenario of four requests with two prefixes: keys of the outermost table, and the tables behind `[workload]`.
pub(crate) fn small(keys: &str, tables: &str) -> String {
    let sizes = "prompts_per_group = 2\nsystem_tokens = 64\nquestion_tokens = 16\noutput_tokens = 4";
    let workload = format!("[workload]\nkind = \"shared_prefix\"\ngroups = 2\n{sizes}");
    format!("\nschema = 1\nname = \"t\"\n{keys}{workload}\n{tables}")
}

/// Loads `text` as `s.toml` in a directory of its own.
pub(crate) fn load_text(text: &str, set: &[(&str, &str)]) -> Result<Scenario, ScenarioError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.toml");
    std::fs::write(&path, text).unwrap();
    let set: Vec<_> = set.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect();
    load(&path, &set, None, None, None)
}
