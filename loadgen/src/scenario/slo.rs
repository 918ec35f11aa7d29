//! `[slo]` and `[[assert]]`: what counts as good, and what must hold.

use super::document::{Node, Value};
use super::error::{ScenarioError, suggest};
use super::policies;
use super::resolve::Mode;
use super::section::{Field, Section};
use crate::report::{Assertion, AssertionError, METRICS, Slo};
use crate::run::{Params, World};

/// The keys of `[slo]`.
pub(super) const KEYS: &[&str] = &["ttft", "tpot"];
/// The keys of `[[assert]]`.
pub(super) const ASSERT_KEYS: &[&str] =
    &["metric", "policy", "mode", "op", "value", "versus", "params", "versus_params", "versus_mode"];

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
pub(super) fn read_asserts(
    field: &Field<'_>,
    judged: Judged<'_>,
    measured: Measured,
) -> Result<Vec<Assertion>, ScenarioError> {
    let all = field.list()?;
    all.iter().filter_map(|item| assertion(item, judged, measured).transpose()).collect()
}

/// What the scenario around an assertion measures.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// Whether there are objectives.
    pub(super) slo: bool,
    /// The worlds that run.
    pub(super) mode: Mode,
}

impl Measured {
    /// Refuses an assertion about a figure that nothing here can measure.
    fn check(
        self,
        metric: &Field<'_>,
        policies: [Option<&Field<'_>>; 2],
        [mode, versus_mode]: [Option<World>; 2],
    ) -> Result<(), ScenarioError> {
        let name = metric.text()?;
        let in_virtual = match mode {
            _ if versus_mode == Some(World::Virtual) => true,
            None => self.mode.worlds().contains(&World::Virtual),
            Some(world) => world == World::Virtual,
        };
        match name {
            "slo_attainment" if !self.slo => {
                Err(metric.error("is not measured without objectives", "add the table [slo]"))
            }
            // Of the process and of real time: router_cpu_us_per_request, router_peak_rss_mb, router_ms.
            router if router.starts_with("router_") && in_virtual => {
                Err(metric.error("is not measured in virtual time", "add mode = \"live\" to the assert"))
            }
            "predicted_hit_rate" => {
                for field in policies.into_iter().flatten() {
                    let policy = policies::known_name(field)?;
                    if !policies::predicts(&policy) {
                        let problem = format!("\"{policy}\" predicts no hits");
                        return Err(field.error(problem, "name a policy that keeps an index of prefixes"));
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn assertion(
    item: &Field<'_>,
    judged: Judged<'_>,
    measured: Measured,
) -> Result<Option<Assertion>, ScenarioError> {
    let section = Section::open(item.node, "assert", ASSERT_KEYS)?;
    let (metric, op, value) = (section.need("metric")?, section.need("op")?, section.need("value")?);
    let policy = section.need("policy")?;
    let versus = section.get("versus");
    let mode = section.get("mode").map(|field| {
        field.choice(&[("virtual", Some(World::Virtual)), ("live", Some(World::Live)), ("both", None)])
    });
    let mode = mode.transpose()?.flatten();
    let versus_mode = versus_mode(&section, mode)?;
    let values = |key: &str| section.get(key).map_or(Ok(Params::new()), |field| params(&field));
    let (params, versus_params) = (values("params")?, values("versus_params")?);
    if versus.is_none() && versus_mode.is_none() && !versus_params.is_empty() {
        return Err(section.error(
            "versus_params",
            "there is nothing to compare with",
            "add versus = \"POLICY\"",
        ));
    }
    let assertion = Assertion::new(
        metric.text()?,
        &policies::known_name(&policy)?,
        mode,
        op.text()?,
        value.number(-1e18..=1e18)?,
        versus.as_ref().map(policies::known_name).transpose()?.as_deref(),
    )
    .map(|assertion| assertion.where_params(params).versus_params(versus_params))
    .map(|assertion| match versus_mode {
        Some(mode) => assertion.versus_mode(mode),
        None => assertion,
    })
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
    measured.check(&metric, [Some(&policy), versus.as_ref()], [mode, versus_mode])?;
    Ok(all_run.then_some(assertion))
}

/// The world that an assertion about `mode` compares with, if it is the other one.
fn versus_mode(section: &Section<'_>, mode: Option<World>) -> Result<Option<World>, ScenarioError> {
    let Some(field) = section.get("versus_mode") else { return Ok(None) };
    let versus = field.choice(&[("virtual", World::Virtual), ("live", World::Live)])?;
    let other = match versus {
        World::Virtual => World::Live,
        World::Live => World::Virtual,
    };
    if mode == Some(other) {
        return Ok(Some(versus));
    }
    let problem = format!("compares a figure of mode \"{}\"", other.label());
    Err(field.error(problem, format!("add mode = \"{}\" to the assert", other.label())))
}

/// The values of parameters that a cell must have.
fn params(field: &Field<'_>) -> Result<Params, ScenarioError> {
    let value = |(name, field): (&str, Field<'_>)| match &field.node.value {
        Value::Date(_) | Value::List(_) | Value::Table(_) => Err(field.wrong_kind("a number or a word")),
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
