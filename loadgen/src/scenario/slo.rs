//! `[slo]` and `[[assert]]`: what counts as good, and what must hold.

use super::document::Node;
use super::error::{ScenarioError, suggest};
use super::policies;
use super::section::{Field, Section};
use crate::report::{Assertion, AssertionError, METRICS, Slo};
use crate::run::World;

/// Reads `[slo]`.
pub(super) fn read(node: &Node) -> Result<Slo, ScenarioError> {
    let section = Section::open(node, "slo", &["ttft", "tpot"])?;
    Ok(Slo { ttft_ns: section.need("ttft")?.duration_ns()?, tpot_ns: section.need("tpot")?.duration_ns()? })
}

/// Which policies an assertion may be about.
#[derive(Debug, Clone, Copy)]
pub(super) enum Judged<'a> {
    /// The file alone decides what runs, so an assertion about anything else is a mistake.
    Exactly(&'a [String]),
    /// The command line narrowed what runs; assertions about the rest are left out.
    Among(&'a [String]),
}

/// Reads `[[assert]]`.
pub(super) fn read_asserts(field: &Field<'_>, judged: Judged<'_>) -> Result<Vec<Assertion>, ScenarioError> {
    let all = field.list()?;
    all.iter().filter_map(|item| assertion(item, judged).transpose()).collect()
}

fn assertion(item: &Field<'_>, judged: Judged<'_>) -> Result<Option<Assertion>, ScenarioError> {
    let keys = ["metric", "policy", "mode", "op", "value", "versus"];
    let section = Section::open(item.node, "assert", &keys)?;
    let (metric, op, value) = (section.need("metric")?, section.need("op")?, section.need("value")?);
    let policy = section.need("policy")?;
    let versus = section.get("versus");
    let mode = section.get("mode").map(|field| {
        field.choice(&[("virtual", Some(World::Virtual)), ("live", Some(World::Live)), ("both", None)])
    });
    let assertion = Assertion::new(
        metric.text()?,
        &policies::known_name(&policy)?,
        mode.transpose()?.flatten(),
        op.text()?,
        value.number(-1e18..=1e18)?,
        versus.as_ref().map(policies::known_name).transpose()?.as_deref(),
    )
    .map_err(|error| match error {
        AssertionError::Metric { given } => metric.error(
            format!("\"{given}\" is not a metric"),
            suggest(&given, METRICS.iter().map(|metric| metric.name)),
        ),
        AssertionError::Op { given } => {
            op.error(format!("\"{given}\" is not a comparison"), "use >=, >, <=, < or ==")
        }
        AssertionError::Value { given } => value.error(format!("{given} is no bound"), "use a finite number"),
    })?;
    let mut all_run = true;
    for field in [Some(&policy), versus.as_ref()].into_iter().flatten() {
        all_run &= runs(field, judged)?;
    }
    Ok(all_run.then_some(assertion))
}

/// Whether the policy named by `field` runs.
fn runs(field: &Field<'_>, judged: Judged<'_>) -> Result<bool, ScenarioError> {
    let name = policies::known_name(field)?;
    match judged {
        Judged::Among(policies) => Ok(policies.contains(&name)),
        Judged::Exactly(policies) if policies.contains(&name) => Ok(true),
        Judged::Exactly(_) => {
            Err(field.error(format!("\"{name}\" does not run here"), "add it to router.policies"))
        }
    }
}
