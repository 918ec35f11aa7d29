//! All runs of one scenario, with what they amount to.

use serde::Serialize;
use serde_json::Value;

use super::assertion::{AssertOutcome, Assertion, evaluate};
use super::summary::{RunSummary, Slo};
use super::validity::Validity;
use super::variant::{Variant, variants};
use crate::run::{Run, World};
use crate::scenario::Fingerprint;

/// What a report says about the scenario itself.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// The scenario's name.
    pub name: String,
    /// Its description; may be empty.
    pub description: String,
    /// The text of the scenario file.
    pub source: String,
    /// What the command line changed of it, each as it was typed.
    pub overrides: Vec<String>,
    /// Key facts in words, for example (`Workload`, `64 prefixes × 16 prompts`).
    pub facts: Vec<(String, String)>,
    /// What it asks, and of which router.
    pub fingerprint: Fingerprint,
    /// What was found out, where that is another question than the report's own.
    pub conclusion: Option<Conclusion>,
}

/// What runs have shown that were made for a question of their own. It stands where a report says which variant is best by
/// its rule.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Conclusion {
    /// The answer in a few words.
    pub headline: String,
    /// What it rests upon.
    pub reasons: String,
    /// The place of a run of the variant that is to be used.
    pub chosen: usize,
    /// The figure that was asked for.
    pub metric: Option<&'static str>,
    /// The headings of `before_after`.
    pub columns: [&'static str; 2],
    /// What the answer costs.
    pub before_after: Vec<BeforeAfter>,
}

/// A figure before and after a change, as people read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BeforeAfter {
    /// Its name and unit.
    pub name: &'static str,
    /// Before.
    pub before: String,
    /// After.
    pub after: String,
}

/// The runs of a scenario, their figures and the verdict on its claims.
#[derive(Debug)]
pub struct Experiment {
    about: About,
    runs: Vec<Run>,
    summaries: Vec<RunSummary>,
    outcomes: Vec<AssertOutcome>,
    validity: Validity,
    environment: Value,
}

impl Experiment {
    /// Sums up the runs and checks the claims. `environment` is what may differ between identical runs; it is written
    /// to its own file and shows nowhere else.
    #[must_use]
    pub fn new(
        about: About,
        runs: Vec<Run>,
        slo: Option<Slo>,
        assertions: &[Assertion],
        environment: Value,
    ) -> Self {
        let summaries: Vec<RunSummary> = runs.iter().map(|run| RunSummary::of(run, slo)).collect();
        let outcomes = evaluate(assertions, &summaries);
        let validity = Validity::of(runs.iter().zip(&summaries));
        Self { about, runs, summaries, outcomes, validity, environment }
    }

    /// The same from figures that are known, of runs whose requests were not kept. Parts of a report that need requests are
    /// left out.
    #[must_use]
    pub fn of_figures(
        about: About,
        runs: Vec<Run>,
        summaries: Vec<RunSummary>,
        assertions: &[Assertion],
        environment: Value,
    ) -> Self {
        let outcomes = evaluate(assertions, &summaries);
        Self { about, runs, summaries, outcomes, validity: Validity::default(), environment }
    }

    /// What the scenario is.
    #[must_use]
    pub fn about(&self) -> &About {
        &self.about
    }

    /// The runs, in the order they were given.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The figures of each run, in the same order.
    #[must_use]
    pub fn summaries(&self) -> &[RunSummary] {
        &self.summaries
    }

    /// What became of the claims.
    #[must_use]
    pub fn outcomes(&self) -> &[AssertOutcome] {
        &self.outcomes
    }

    /// Whether a claim failed, which makes the exit code 1.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.outcomes.iter().any(AssertOutcome::failed)
    }

    /// The live runs whose generator was the bottleneck, each in a sentence that says why. Nothing that they measured
    /// can be relied upon.
    #[must_use]
    pub fn invalid(&self) -> &[String] {
        &self.validity.invalid
    }

    /// The live runs that something else on the machine has slowed down, each in a sentence that says by what. Their times
    /// cannot be compared with those of others.
    #[must_use]
    pub fn disturbed(&self) -> &[String] {
        &self.validity.disturbed
    }

    /// What makes figures of live runs doubtful without making them void, each in a sentence: a busy machine, a client
    /// near its limits.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.validity.warnings
    }

    /// All that is said against live runs, the worst first, under the words that it is told by.
    #[must_use]
    pub fn remarks(&self) -> [(&'static str, &[String]); 3] {
        [("INVALID", self.invalid()), ("DISTURBED", self.disturbed()), ("WARNING", self.warnings())]
    }

    /// Why nobody is called best in a world, whatever the figures are; `None` where they decide. Only live runs are ever in
    /// doubt.
    #[must_use]
    pub fn undecided(&self, world: World) -> Option<&'static str> {
        match world {
            World::Live if !self.invalid().is_empty() => Some("there are invalid runs"),
            World::Live if !self.disturbed().is_empty() => Some("something else had the machine"),
            _ => None,
        }
    }

    /// What may differ between identical runs.
    #[must_use]
    pub fn environment(&self) -> &Value {
        &self.environment
    }

    pub(super) fn variants(&self) -> Vec<Variant<'_>> {
        let mut variants = variants(&self.summaries);
        for variant in &mut variants {
            variant.is_undecided = self.undecided(variant.world).is_some();
        }
        if let Some(conclusion) = &self.about.conclusion {
            variants
                .iter_mut()
                .for_each(|variant| variant.is_chosen = variant.runs.contains(&conclusion.chosen));
        }
        variants
    }
}
