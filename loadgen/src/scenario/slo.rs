//! `[slo]` and `[[assert]]`: what counts as good, and what must hold.

use std::sync::Arc;

use router_core::POLICIES;

use super::document::{Document, Node, Value};
use super::error::{ScenarioError, suggest};
use super::policies;
use super::resolve::Mode;
use super::section::{Field, Section};
use super::target::Target;
use crate::report::{Assertion, AssertionError, METRICS, Slo};
use crate::run::{Params, World};

/// The keys of `[slo]`.
pub(super) const KEYS: &[&str] = &["ttft", "tpot"];
/// The keys of `[[assert]]`.
pub(super) const ASSERT_KEYS: &[&str] = &[
    "metric",
    "policy",
    "mode",
    "op",
    "value",
    "versus",
    "params",
    "versus_params",
    "versus_mode",
    "own_trace",
];

/// Reads `[slo]`.
pub(super) fn read(node: &Node) -> Result<Slo, ScenarioError> {
    let section = Section::open(node, "slo", KEYS)?;
    Ok(Slo { ttft_ns: section.need("ttft")?.duration_ns()?, tpot_ns: section.need("tpot")?.duration_ns()? })
}

/// What an assertion may be about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judged<'a> {
    /// The policies that run.
    pub(super) policies: &'a [String],
    /// The command line narrowed them: assertions about others are left out. Otherwise these are mistakes.
    pub(super) narrowed: bool,
    /// The other routers, which run live.
    pub(super) targets: &'a [Arc<Target>],
}

/// One side of an assertion: a policy of ours, or another router.
struct Side<'a> {
    field: Field<'a>,
    name: String,
    is_target: bool,
}

impl<'a> Side<'a> {
    fn read(field: Field<'a>, judged: Judged<'_>) -> Result<Self, ScenarioError> {
        let name = field.text()?;
        let is_target = judged.targets.iter().any(|target| target.name == name);
        if is_target || judged.targets.is_empty() {
            let name = if is_target { name.to_owned() } else { policies::known_name(&field)? };
            return Ok(Self { field, name, is_target });
        }
        let policies = || POLICIES.iter().map(|row| row.name);
        if policies().any(|known| known == name) {
            return Ok(Self { name: name.to_owned(), field, is_target });
        }
        let known = policies().chain(judged.targets.iter().map(|target| target.name.as_str()));
        let problem = format!("\"{name}\" is neither a policy nor the name of a [[target]]");
        Err(field.error(problem, suggest(name, known)))
    }

    /// Whether it runs. A policy that could not run, whatever the command line says, is a mistake.
    fn runs(&self, judged: Judged<'_>) -> Result<bool, ScenarioError> {
        if self.is_target || judged.policies.contains(&self.name) {
            return Ok(true);
        }
        if judged.narrowed {
            return Ok(false);
        }
        Err(self.field.error(format!("\"{}\" does not run here", self.name), "add it to router.policies"))
    }

    /// The world that it is judged in: another router runs live only.
    fn world(
        &self,
        given: Option<World>,
        section: &Section<'_>,
        key: &str,
    ) -> Result<Option<World>, ScenarioError> {
        match given {
            Some(World::Virtual) if self.is_target => {
                let problem = format!("\"{}\" is a [[target]], which runs live only", self.name);
                Err(section.error(key, problem, "use \"live\""))
            }
            None if self.is_target => Ok(Some(World::Live)),
            given => Ok(given),
        }
    }
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
    /// Which trace is replayed.
    pub(super) trace: Replayed,
}

/// Which trace a scenario replays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replayed {
    /// None: its requests are generated.
    Nothing,
    /// The one that its file names.
    Own,
    /// One that the command line names.
    Other,
}

impl Replayed {
    /// Which one `document` replays, with `--trace` or without.
    pub(super) fn of(document: &Document, has_flag: bool) -> Self {
        let kind = document.get(&["workload", "kind"]);
        if !kind.is_some_and(|kind| matches!(&kind.value, Value::Text(kind) if kind == "trace")) {
            return Self::Nothing;
        }
        let is_typed = |node: &Node| node.origin.is_flag();
        let is_other = has_flag || document.get(&["workload", "path"]).is_some_and(is_typed);
        if is_other { Self::Other } else { Self::Own }
    }
}

impl Measured {
    /// Refuses an assertion about a figure that nothing here can measure.
    fn check(
        self,
        metric: &Field<'_>,
        sides: [Option<&Side<'_>>; 2],
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
                for Side { field, name, is_target } in sides.into_iter().flatten() {
                    if *is_target || !policies::predicts(name) {
                        let problem = format!("\"{name}\" predicts no hits");
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
    let policy = Side::read(section.need("policy")?, judged)?;
    let versus = section.get("versus").map(|field| Side::read(field, judged)).transpose()?;
    let mode = section.get("mode").map(|field| {
        field.choice(&[("virtual", Some(World::Virtual)), ("live", Some(World::Live)), ("both", None)])
    });
    let mode = mode.transpose()?.flatten();
    let versus_mode = versus_mode(&section, mode)?;
    let set_aside = set_aside(&section, measured.trace)?;
    let mode = live_where_targets_are(&section, mode, versus_mode, &policy, versus.as_ref())?;
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
        &policy.name,
        mode,
        op.text()?,
        value.number(-1e18..=1e18)?,
        versus.as_ref().map(|side| side.name.as_str()),
    )
    .map(|assertion| assertion.where_params(params).versus_params(versus_params))
    .map(|assertion| match versus_mode {
        Some(mode) => assertion.versus_mode(mode),
        None => assertion,
    })
    .map(|assertion| match set_aside {
        Some(why) => assertion.set_aside(why),
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
    for side in [Some(&policy), versus.as_ref()].into_iter().flatten() {
        all_run &= side.runs(judged)?;
    }
    measured.check(&metric, [Some(&policy), versus.as_ref()], [mode, versus_mode])?;
    Ok(all_run.then_some(assertion))
}

/// Why an assertion is not judged: it speaks of the scenario's own trace, and another one is replayed.
fn set_aside(section: &Section<'_>, trace: Replayed) -> Result<Option<&'static str>, ScenarioError> {
    let Some(field) = section.get("own_trace") else { return Ok(None) };
    match (field.boolean()?, trace) {
        (false, _) | (true, Replayed::Own) => Ok(None),
        (true, Replayed::Other) => {
            Ok(Some("it is about the scenario's own trace, and another one is replayed"))
        }
        (true, Replayed::Nothing) => Err(field.error("there is no trace here", "remove it")),
    }
}

/// The world of an assertion, which is the live one where it is about a target, or compares with one in its own world.
fn live_where_targets_are(
    section: &Section<'_>,
    mode: Option<World>,
    versus_mode: Option<World>,
    policy: &Side<'_>,
    versus: Option<&Side<'_>>,
) -> Result<Option<World>, ScenarioError> {
    let mode = policy.world(mode, section, "mode")?;
    let other = versus.unwrap_or(policy);
    match versus_mode {
        Some(given) => other.world(Some(given), section, "versus_mode").map(|_| mode),
        None => other.world(mode, section, "mode"),
    }
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::report::{RunSummary, Verdict, evaluate};
    use crate::run::Run;

    #[test]
    fn what_is_about_the_own_trace_is_not_judged_on_another() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
        let trace = folder.join("mooncake_small.jsonl");
        let set = [("workload.path".to_owned(), "mooncake_small.jsonl".to_owned())];
        for (set, trace, judged) in
            [(&set[..0], None, true), (&set[..0], Some(trace.as_path()), false), (&set[..], None, false)]
        {
            let scenario =
                crate::scenario::load(&folder.join("mooncake.toml"), set, None, trace, None).unwrap();
            let of = |cell| RunSummary::of(&Run::without_records(cell, 1), scenario.slo);
            let summaries: Vec<RunSummary> = scenario.cells().iter().map(of).collect();
            let outcomes = evaluate(&scenario.asserts, &summaries);
            assert!(!outcomes.is_empty());
            for outcome in outcomes {
                assert_eq!(outcome.verdict != Verdict::NotJudged, judged, "{outcome}");
                assert!(judged || outcome.to_string().contains("another one is replayed"), "{outcome}");
            }
        }
    }
}
