//! A scenario that a search varies: one cell for each policy, without the file's `[sweep]` and `[[assert]]`.

use std::path::{Path, PathBuf};

use super::document::{Document, Value, parse_value};
use super::error::ScenarioError;
use super::resolve::{Mode, Resolver};
use super::{Scenario, cells, input, overrides};

/// A file with flags laid over it, that can be read again with another number at one of its keys.
#[derive(Debug, Clone)]
pub struct Template {
    path: PathBuf,
    source: String,
    trace: Option<PathBuf>,
    document: Document,
    typed: Vec<String>,
}

impl Template {
    /// The scenario at `path`, with flags laid over it as in [`load`](super::load); always in virtual time.
    ///
    /// # Errors
    /// The file cannot be read or is no TOML, or a flag is wrong.
    pub fn open(
        path: &Path,
        overrides: &[(String, String)],
        policies: Option<&[String]>,
        trace: Option<&Path>,
    ) -> Result<Self, ScenarioError> {
        let source = input::text(path).map_err(|error| {
            let remedy = "give the path of a scenario file (NAME.toml) or of a trace";
            ScenarioError::at(path.display(), format!("cannot be read: {error}"), remedy)
        })?;
        Self::of(path, source, overrides, policies, trace)
    }

    /// The same of a text; `path` is what messages call it, and where its own paths begin.
    ///
    /// # Errors
    /// The text is no TOML, or a flag is wrong.
    pub fn of(
        path: &Path,
        source: String,
        overrides: &[(String, String)],
        policies: Option<&[String]>,
        trace: Option<&Path>,
    ) -> Result<Self, ScenarioError> {
        let mut document = Document::parse(&path.display().to_string(), &source)?;
        document.remove("sweep");
        document.remove("assert");
        overrides::apply(&mut document, overrides, policies, Some(Mode::Virtual))?;
        let typed = overrides::typed(overrides, policies, trace, None);
        Ok(Self { path: path.to_owned(), source, trace: trace.map(Path::to_owned), document, typed })
    }

    /// The text of the file.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The number at a key.
    #[must_use]
    pub fn number(&self, path: &[&str]) -> Option<f64> {
        match self.document.get(path)?.value {
            Value::Integer(number) => Some(number as f64),
            Value::Float(number) => Some(number),
            _ => None,
        }
    }

    /// The word at a key.
    #[must_use]
    pub fn word(&self, path: &[&str]) -> Option<&str> {
        match &self.document.get(path)?.value {
            Value::Text(word) => Some(word),
            _ => None,
        }
    }

    /// The same scenario with another number at a key.
    #[must_use]
    pub fn with(&self, path: &[&str], number: f64) -> Self {
        let mut other = self.clone();
        let mut node = other.document.root.clone();
        if let Some(known) = self.document.get(path) {
            node.origin = known.origin.clone();
        }
        node.value = Value::Float(number);
        other.document.set(path, node);
        other
    }

    /// The same scenario with one policy, which nobody has typed.
    #[must_use]
    pub fn with_policy(&self, name: &str) -> Self {
        self.with_value(&["router", "policies"], &serde_json::json!([name]))
    }

    /// The same scenario with another value at a key, which nobody has typed.
    #[must_use]
    pub fn with_value(&self, path: &[&str], value: &serde_json::Value) -> Self {
        let mut other = self.clone();
        let origin = self.document.get(path).unwrap_or(&self.document.root).origin.clone();
        // Words, numbers and lists of them are written alike in JSON and in TOML.
        other.document.set(path, parse_value(&value.to_string(), &origin));
        other
    }

    /// The scenario as a file, with all that was laid over it.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(&self.document.root.value.to_json()).unwrap_or_default()
    }

    /// What it means: its cells are one for each policy.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn scenario(&self) -> Result<Scenario, ScenarioError> {
        let mut resolver = Resolver::new(&self.path, &self.source, self.trace.as_deref());
        let mut scenario = resolver.scenario(&self.document)?;
        scenario.overrides = self.typed.clone();
        scenario.cells = cells::expand(&self.document, &scenario, &mut resolver)?;
        Ok(scenario)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::small;
    use super::*;

    const REST: &str = r#"[arrival]
kind = "poisson"
rate = 10
[fleet]
workers = 2
[router]
policies = ["cache_aware", "round_robin"]
[sweep]
"fleet.workers" = [1, 2]
[[assert]]
metric = "hit_rate"
policy = "cache_aware"
params = { "fleet.workers" = 1 }
op = ">="
value = 0.1
"#;

    fn template() -> Template {
        let text = small("mode = \"live\"\n", REST);
        Template::of(Path::new("t.toml"), text, &[], None, None).unwrap()
    }

    #[test]
    fn a_search_has_one_virtual_cell_for_each_policy() {
        let template = template();
        let scenario = template.scenario().unwrap();
        assert_eq!((scenario.cells().len(), scenario.asserts.len()), (2, 0));
        assert!(scenario.cells().iter().all(|cell| cell.world == crate::run::World::Virtual));
    }

    #[test]
    fn a_policy_that_nobody_has_typed_is_no_override() {
        let scenario = template().with_policy("random").scenario().unwrap();
        let policies: Vec<&str> = scenario.cells.iter().map(|cell| cell.policy.name()).collect();
        assert_eq!((policies, scenario.overrides), (vec!["random"], Vec::new()));
    }

    #[test]
    fn what_is_laid_over_it_stands_in_the_file_that_is_made_of_it() {
        let set =
            [("fleet.workers".to_owned(), "5".to_owned()), ("fleet.schedule".to_owned(), "lpm".to_owned())];
        let text = small("mode = \"live\"\n", REST);
        let template = Template::of(Path::new("t.toml"), text, &set, None, None).unwrap();
        let template = template
            .with_value(&["router", "options", "cache_aware", "cache_threshold"], &serde_json::json!(0.7))
            .with_value(&["description"], &serde_json::json!("a \"word\""));
        let again = Template::of(Path::new("u.toml"), template.to_toml(), &[], None, None).unwrap();
        let (first, second) = (template.scenario().unwrap(), again.scenario().unwrap());
        assert_eq!((second.fleet.workers, second.description.as_str()), (5, "a \"word\""));
        assert_eq!(first.fingerprint.to_owned(), second.fingerprint, "they ask the same");
        let options: Vec<_> =
            second.cells[0].policy.overrides().map(|(key, value)| (key, value.clone())).collect();
        assert_eq!(options, [("cache_threshold", 0.7.into())]);
    }

    #[test]
    fn a_number_can_be_changed_and_is_checked() {
        let template = template();
        let rate = ["arrival", "rate"];
        assert_eq!(
            (template.number(&rate), template.word(&["arrival", "kind"])),
            (Some(10.0), Some("poisson"))
        );
        let faster = template.with(&rate, 12.5);
        assert_eq!(faster.scenario().unwrap().arrival, crate::scenario::Arrival::Poisson { rate: 12.5 });
        let error = template.with(&rate, 1e9).scenario().unwrap_err().to_string();
        assert!(error.starts_with("t.toml:14: ") && error.contains("arrival.rate"), "{error}");
    }
}
