//! What became of a claim: every variant that it covers is judged, and told in words.

use std::fmt;

use serde::Serialize;

use super::super::format::figure;
use super::super::summary::RunSummary;
use super::super::variant::{Variant, label, variants, worlds};
use super::{Assertion, words};
use crate::run::World;

/// The figure rounded for reading, unless rounding would make it look like the bound it misses.
fn distinct(value: f64, bound: f64, unit: &str) -> String {
    let rounded = figure(value, unit);
    if value != bound && rounded == figure(bound, unit) { value.to_string() } else { rounded }
}

enum Measured {
    Figure(f64),
    Missing(String),
    WorldNotRun,
    SetAside(&'static str),
}

/// Whether a claim holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It does.
    Held,
    /// It does not, or there is nothing to show that it does.
    Failed,
    /// The world it is about was not run.
    NotChecked,
    /// It is about something else than what was run.
    NotJudged,
}

/// What became of one claim about one variant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AssertOutcome {
    /// Whether it holds.
    pub verdict: Verdict,
    /// The claim in words.
    pub claim: String,
    /// What was found, in words.
    pub finding: String,
    /// The median over seeds, or the ratio of two; absent when it could not be had.
    pub measured: Option<f64>,
}

impl AssertOutcome {
    /// Whether it makes the exit code 1.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.verdict == Verdict::Failed
    }
}

impl fmt::Display for AssertOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.claim, self.finding)
    }
}

impl Assertion {
    fn outcome(&self, subject: String, world: Option<World>, measured: Measured) -> AssertOutcome {
        let verdict = match &measured {
            Measured::Figure(measured) if self.op.holds(*measured, self.value) => Verdict::Held,
            Measured::Figure(_) | Measured::Missing(_) => Verdict::Failed,
            Measured::WorldNotRun => Verdict::NotChecked,
            Measured::SetAside(_) => Verdict::NotJudged,
        };
        let unit = if self.versus.is_some() { "×" } else { self.metric.unit };
        let name = match &self.versus {
            Some(other) => {
                let mode = self.versus_mode.map_or(String::new(), |mode| format!(" ({})", mode.label()));
                let other = format!("{other}{}{mode}", words(&self.versus_params));
                format!("{} relative to {other}", self.metric.name)
            }
            None => self.metric.name.to_owned(),
        };
        let place = world.map_or(String::new(), |w| format!(" ({})", w.label()));
        let claim = format!("{subject}{place}: {name} {} {}", self.op.words(), figure(self.value, unit));
        let (measured, finding) = match measured {
            Measured::Figure(value) => {
                (Some(value), format!("measured {}", distinct(value, self.value, unit)))
            }
            Measured::Missing(why) => (None, why),
            Measured::SetAside(why) => (None, format!("not judged: {why}")),
            Measured::WorldNotRun => (None, "not checked: that mode was not run".to_owned()),
        };
        AssertOutcome { verdict, claim, finding, measured }
    }
}

/// Checks the claims, in order; one outcome for every variant a claim covers.
#[must_use]
pub fn evaluate(assertions: &[Assertion], summaries: &[RunSummary]) -> Vec<AssertOutcome> {
    let variants = variants(summaries);
    assertions.iter().flat_map(|assertion| check(assertion, &variants)).collect()
}

fn check(assertion: &Assertion, variants: &[Variant<'_>]) -> Vec<AssertOutcome> {
    let nothing = |measured| vec![assertion.outcome(assertion.policy.clone(), assertion.mode, measured)];
    if let Some(why) = assertion.set_aside {
        return nothing(Measured::SetAside(why));
    }
    let has_not_run = |mode: &World| !variants.is_empty() && !worlds(variants).contains(mode);
    if assertion.mode.iter().chain(&assertion.versus_mode).any(has_not_run) {
        return nothing(Measured::WorldNotRun);
    }
    let mine: Vec<&Variant<'_>> = variants.iter().filter(|v| assertion.covers(v)).collect();
    if mine.is_empty() {
        return nothing(Measured::Missing(format!("no run of policy `{}`", assertion.subject())));
    }
    mine.into_iter().flat_map(|variant| check_variant(assertion, variants, variant)).collect()
}

fn check_variant(
    assertion: &Assertion,
    variants: &[Variant<'_>],
    variant: &Variant<'_>,
) -> Vec<AssertOutcome> {
    let outcome = |measured| assertion.outcome(label(variants, variant), Some(variant.world), measured);
    let name = assertion.metric.name;
    let Some(median) = variant.median(name) else {
        return vec![outcome(Measured::Missing(format!("{name} was not measured")))];
    };
    let Some(versus) = &assertion.versus else { return vec![outcome(Measured::Figure(median))] };
    let others = variants.iter().filter(|v| v.policy == versus && assertion.compares(variant, v));
    let ratios: Vec<AssertOutcome> = others
        .map(|other| match other.median(name) {
            Some(base) if base != 0.0 => outcome(Measured::Figure(median / base)),
            _ => outcome(Measured::Missing(format!("{name} of {versus} is zero or was not measured"))),
        })
        .collect();
    if ratios.is_empty() {
        return vec![outcome(Measured::Missing(format!("no comparable run of policy `{versus}`")))];
    }
    ratios
}
