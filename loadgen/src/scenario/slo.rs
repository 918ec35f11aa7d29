//! `[slo]` and `[[assert]]`: what counts as good, and what must hold.

use super::document::{Node, Value};
use super::error::{ScenarioError, suggest};
use super::policies;
use super::section::{Field, Section};
use crate::report::{Assertion, AssertionError, METRICS, Slo};
use crate::run::{Params, World};

/// The keys of `[slo]`.
pub(super) const KEYS: &[&str] = &["ttft", "tpot"];
/// The keys of `[[assert]]`.
pub(super) const ASSERT_KEYS: &[&str] = &["metric", "policy", "mode", "op", "value", "versus", "params"];

/// Reads `[slo]`.
pub(super) fn read(node: &Node) -> Result<Slo, ScenarioError> {
    let section = Section::open(node, "slo", KEYS)?;
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
    let section = Section::open(item.node, "assert", ASSERT_KEYS)?;
    let (metric, op, value) = (section.need("metric")?, section.need("op")?, section.need("value")?);
    let policy = section.need("policy")?;
    let versus = section.get("versus");
    let mode = section.get("mode").map(|field| {
        field.choice(&[("virtual", Some(World::Virtual)), ("live", Some(World::Live)), ("both", None)])
    });
    let params = section.get("params").map_or(Ok(Params::new()), |field| params(&field))?;
    let assertion = Assertion::new(
        metric.text()?,
        &policies::known_name(&policy)?,
        mode.transpose()?.flatten(),
        op.text()?,
        value.number(-1e18..=1e18)?,
        versus.as_ref().map(policies::known_name).transpose()?.as_deref(),
    )
    .map(|assertion| assertion.where_params(params))
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

/// The values of parameters that a cell must have.
fn params(field: &Field<'_>) -> Result<Params, ScenarioError> {
    let value = |(name, field): (&str, Field<'_>)| match &field.node.value {
        Value::List(_) | Value::Table(_) => Err(field.wrong_kind("a number or a word")),
        plain => Ok((name.to_owned(), plain.to_json())),
    };
    Section::unchecked(field.node, field.path())?.fields().map(value).collect()
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
