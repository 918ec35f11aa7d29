//! Claims about results: a metric of a policy, or its ratio to another policy's, compared with a number.
//!
//! A claim is checked on the median over seeds, once for every variant of the policy (world and parameters) that it
//! covers, and all must hold. A claim that covers nothing fails: a renamed policy must not turn a gate green. The one
//! exception is a claim about a world that was not run at all, which is shown as not checked.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use serde_json::Value;

use super::format::figure;
use super::metric::Metric;
use super::summary::RunSummary;
use super::variant::{Variant, agree, label, plain, variants, worlds};
use crate::run::{Params, World};

/// How the measured figure must compare with the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// `>=`
    AtLeast,
    /// `>`
    Above,
    /// `<=`
    AtMost,
    /// `<`
    Below,
    /// `==`, exact
    Equal,
}

impl Op {
    const ALL: [(&'static str, Op, &'static str); 5] = [
        (">=", Op::AtLeast, "at least"),
        (">", Op::Above, "above"),
        ("<=", Op::AtMost, "at most"),
        ("<", Op::Below, "below"),
        ("==", Op::Equal, "exactly"),
    ];

    /// Whether the comparison holds.
    #[must_use]
    pub fn holds(self, measured: f64, value: f64) -> bool {
        match self {
            Op::AtLeast => measured >= value,
            Op::Above => measured > value,
            Op::AtMost => measured <= value,
            Op::Below => measured < value,
            Op::Equal => measured == value,
        }
    }

    fn words(self) -> &'static str {
        Self::ALL.iter().find(|(_, op, _)| *op == self).map_or("", |row| row.2)
    }
}

impl FromStr for Op {
    type Err = AssertionError;

    fn from_str(text: &str) -> Result<Self, AssertionError> {
        let row = Self::ALL.iter().find(|(sign, ..)| *sign == text);
        row.map(|(_, op, _)| *op).ok_or_else(|| AssertionError::Op { given: text.to_owned() })
    }
}

/// A claim that cannot be checked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AssertionError {
    /// No figure has that name.
    #[error("`{given}` is no metric; one of {}", metric_names())]
    Metric {
        /// What was written.
        given: String,
    },
    /// No comparison has that sign.
    #[error("`{given}` is no comparison; one of >=, >, <=, <, ==")]
    Op {
        /// What was written.
        given: String,
    },
    /// A bound must be a finite number.
    #[error("{given} is no bound; a finite number is needed")]
    Value {
        /// What was written.
        given: f64,
    },
}

fn metric_names() -> String {
    super::METRICS.iter().map(|m| m.name).collect::<Vec<_>>().join(", ")
}

/// One `[[assert]]` of a scenario.
#[derive(Debug, Clone)]
pub struct Assertion {
    metric: &'static Metric,
    policy: String,
    mode: Option<World>,
    op: Op,
    value: f64,
    versus: Option<String>,
    params: Params,
    versus_params: Params,
    versus_mode: Option<World>,
}

impl Assertion {
    /// The claim that `policy`'s `metric` compares as `op` says with `value`, in `mode` or in every world that was run.
    /// With `versus` the measured figure is the ratio of the policy's median to that policy's.
    ///
    /// # Errors
    /// If there is no such metric or comparison, or the value is not finite.
    pub fn new(
        metric: &str,
        policy: &str,
        mode: Option<World>,
        op: &str,
        value: f64,
        versus: Option<&str>,
    ) -> Result<Self, AssertionError> {
        let unknown = || AssertionError::Metric { given: metric.to_owned() };
        let metric = Metric::named(metric).ok_or_else(unknown)?;
        if !value.is_finite() {
            return Err(AssertionError::Value { given: value });
        }
        let (policy, versus) = (policy.to_owned(), versus.map(str::to_owned));
        let (params, versus_params) = (Params::new(), Params::new());
        let op = op.parse()?;
        Ok(Self { metric, policy, mode, op, value, versus, params, versus_params, versus_mode: None })
    }

    /// The same claim about those variants only that have these values.
    #[must_use]
    pub fn where_params(self, params: Params) -> Self {
        Self { params, ..self }
    }

    /// The same claim, compared with the variant that has these values where it differs from the one that is judged.
    #[must_use]
    pub fn versus_params(self, versus_params: Params) -> Self {
        Self { versus_params, ..self }
    }

    /// The same claim, compared with a run in that world: of the same policy, unless it names another one.
    #[must_use]
    pub fn versus_mode(self, mode: World) -> Self {
        let versus = self.versus.or_else(|| Some(self.policy.clone()));
        Self { versus, versus_mode: Some(mode), ..self }
    }

    /// Whether `other` is what it compares `variant` with.
    fn compares(&self, variant: &Variant<'_>, other: &Variant<'_>) -> bool {
        if other.world != self.versus_mode.unwrap_or(variant.world) {
            return false;
        }
        if self.versus_params.is_empty() {
            return agree(other, variant);
        }
        let mut wanted = variant.params.clone();
        wanted.extend(self.versus_params.clone());
        let has_same = |(key, value): (&String, &Value)| match other.params.get(key) {
            Some(has) => equal(has, value),
            None => !self.versus_params.contains_key(key),
        };
        wanted.iter().all(has_same)
    }

    /// Whether it is about this variant.
    fn covers(&self, variant: &Variant<'_>) -> bool {
        let same = |(name, wanted): (&String, &Value)| {
            variant.params.get(name).is_some_and(|value| equal(value, wanted))
        };
        self.mode.is_none_or(|mode| mode == variant.world)
            && self.policy == variant.policy
            && self.params.iter().all(same)
    }

    /// What it is about, in words.
    fn subject(&self) -> String {
        format!("{}{}", self.policy, words(&self.params))
    }

    /// The policy it is about.
    #[must_use]
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// The policy it compares with, if it does.
    #[must_use]
    pub fn versus(&self) -> Option<&str> {
        self.versus.as_deref()
    }

    fn outcome(&self, subject: String, world: Option<World>, measured: Measured) -> AssertOutcome {
        let verdict = match &measured {
            Measured::Figure(measured) if self.op.holds(*measured, self.value) => Verdict::Held,
            Measured::Figure(_) | Measured::Missing(_) => Verdict::Failed,
            Measured::WorldNotRun => Verdict::NotChecked,
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
            Measured::WorldNotRun => (None, "not checked: that mode was not run".to_owned()),
        };
        AssertOutcome { verdict, claim, finding, measured }
    }
}

/// Parameters as words.
fn words(params: &Params) -> String {
    params.iter().map(|(name, value)| format!(" {name}={}", plain(Some(value)))).collect()
}

/// Whether two values are the same; numbers are, however they were written.
fn equal(a: &Value, b: &Value) -> bool {
    a == b || a.as_f64().is_some_and(|number| Some(number) == b.as_f64())
}

/// The figure rounded for reading, unless rounding would make it look like the bound it misses.
fn distinct(value: f64, bound: f64, unit: &str) -> String {
    let rounded = figure(value, unit);
    if value != bound && rounded == figure(bound, unit) { value.to_string() } else { rounded }
}

enum Measured {
    Figure(f64),
    Missing(String),
    WorldNotRun,
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

/// Checks the claims, in order; one outcome for every variant a claim covers.
#[must_use]
pub fn evaluate(assertions: &[Assertion], summaries: &[RunSummary]) -> Vec<AssertOutcome> {
    let variants = variants(summaries);
    assertions.iter().flat_map(|assertion| check(assertion, &variants)).collect()
}

fn check(assertion: &Assertion, variants: &[Variant<'_>]) -> Vec<AssertOutcome> {
    let nothing = |measured| vec![assertion.outcome(assertion.policy.clone(), assertion.mode, measured)];
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::fixture::{record, run};

    /// A summary with the given cached share of 100 prompt tokens.
    fn summary(policy: &str, cached: u64, seed: u64) -> RunSummary {
        let mut run = run(policy, vec![record(0).tokens(100, cached, 5).last_ms(10).worker(0).build()]);
        run.seed = seed;
        RunSummary::of(&run, None)
    }

    fn claim(policy: &str, op: &str, value: f64, versus: Option<&str>) -> Assertion {
        Assertion::new("hit_rate", policy, None, op, value, versus).unwrap()
    }

    fn verdicts(assertion: Assertion, summaries: &[RunSummary]) -> Vec<Verdict> {
        evaluate(&[assertion], summaries).into_iter().map(|o| o.verdict).collect()
    }

    #[test]
    fn a_claim_may_compare_cells_of_other_parameters() {
        let swept = |policy: &str, aware: bool, cached| {
            let mut summary = summary(policy, cached, 1);
            summary.params.insert("router.dp_aware".into(), json!(aware));
            summary
        };
        let summaries = [
            swept("round_robin", false, 20),
            swept("round_robin", true, 60),
            swept("cache_aware", false, 30),
            swept("cache_aware", true, 80),
        ];
        let params = |aware: bool| Params::from([("router.dp_aware".to_owned(), json!(aware))]);
        let versus = |wanted: Option<bool>| {
            let claim = claim("cache_aware", ">=", 4.0, Some("round_robin")).where_params(params(true));
            let claim = claim.versus_params(wanted.map(params).unwrap_or_default());
            evaluate(&[claim], &summaries)
        };
        assert_eq!(versus(Some(false)).len(), 1);
        assert_eq!(versus(Some(false))[0].verdict, Verdict::Held, "80 against 20");
        assert!(versus(Some(false))[0].claim.contains("relative to round_robin router.dp_aware=false"));
        assert_eq!(versus(None)[0].verdict, Verdict::Failed, "80 against 60");
        let itself = claim("cache_aware", ">", 2.0, Some("cache_aware"));
        let itself = itself.where_params(params(true)).versus_params(params(false));
        assert_eq!(evaluate(&[itself], &summaries)[0].verdict, Verdict::Held, "80 against 30");
    }

    #[test]
    fn a_claim_may_compare_the_two_worlds_of_one_cell() {
        let of = |world, policy: &str, threshold: f64, cached| {
            let mut summary = summary(policy, cached, 1);
            summary.mode = world;
            summary.params.insert("cache_threshold".into(), json!(threshold));
            summary
        };
        let (live, in_virtual) = (World::Live, World::Virtual);
        let summaries = [
            of(in_virtual, "cache_aware", 0.3, 50),
            of(in_virtual, "cache_aware", 0.5, 10),
            of(in_virtual, "round_robin", 0.3, 20),
            of(live, "cache_aware", 0.3, 48),
            of(live, "cache_aware", 0.5, 20),
            of(live, "round_robin", 0.3, 96),
        ];
        let claim = |op: &str, value: f64, versus: Option<&str>, threshold: f64| {
            let claim = Assertion::new("hit_rate", "cache_aware", Some(live), op, value, versus).unwrap();
            let params = Params::from([("cache_threshold".to_owned(), json!(threshold))]);
            claim.versus_mode(in_virtual).where_params(params)
        };
        let outcomes = evaluate(&[claim("<=", 0.95, None, 0.3)], &summaries);
        assert_eq!(outcomes.len(), 1, "each cell is compared with itself: {outcomes:?}");
        assert_eq!((outcomes[0].verdict, outcomes[0].measured), (Verdict::Failed, Some(0.96)));
        assert_eq!(
            outcomes[0].to_string(),
            "cache_aware cache_threshold=0.3 (live): hit_rate relative to cache_aware (virtual) at most 0.95×; \
             measured 0.96×"
        );
        assert_eq!(verdicts(claim("==", 2.0, None, 0.5), &summaries), [Verdict::Held]);
        assert_eq!(verdicts(claim("==", 2.4, Some("round_robin"), 0.3), &summaries), [Verdict::Held]);
        for one_world in [&summaries[..3], &summaries[3..]] {
            assert_eq!(verdicts(claim(">=", 0.95, None, 0.3), one_world), [Verdict::NotChecked]);
        }
        let without = [summaries[2].clone(), summaries[3].clone()];
        assert_eq!(verdicts(claim(">=", 0.95, None, 0.3), &without), [Verdict::Failed], "no such cell");
    }

    #[test]
    fn comparisons() {
        let cases = [
            (">=", 0.5, true),
            (">=", 0.51, false),
            (">", 0.5, false),
            (">", 0.49, true),
            ("<=", 0.5, true),
            ("<=", 0.49, false),
            ("<", 0.5, false),
            ("<", 0.51, true),
            ("==", 0.5, true),
            ("==", 0.4, false),
        ];
        for (op, value, holds) in cases {
            let expected = if holds { Verdict::Held } else { Verdict::Failed };
            let got = verdicts(claim("random", op, value, None), &[summary("random", 50, 1)]);
            assert_eq!(got, [expected], "0.5 {op} {value}");
        }
    }

    #[test]
    fn the_median_over_seeds_is_what_counts() {
        let seeds = [summary("random", 10, 1), summary("random", 60, 2), summary("random", 70, 3)];
        let outcome = &evaluate(&[claim("random", ">=", 0.6, None)], &seeds)[0];
        assert_eq!((outcome.verdict, outcome.measured), (Verdict::Held, Some(0.6)));
    }

    #[test]
    fn a_ratio_compares_the_medians_of_two_policies() {
        let runs = [summary("round_robin", 40, 1), summary("cache_aware", 80, 1)];
        let outcome = &evaluate(&[claim("cache_aware", ">", 2.1, Some("round_robin"))], &runs)[0];
        assert_eq!((outcome.verdict, outcome.measured), (Verdict::Failed, Some(2.0)));
        assert_eq!(
            outcome.to_string(),
            "cache_aware (virtual): hit_rate relative to round_robin above 2.1×; measured 2×"
        );
    }

    #[test]
    fn what_is_not_in_the_results_fails() {
        let runs = [summary("random", 0, 1)];
        assert_eq!(verdicts(claim("cache_aware", ">=", 0.0, None), &runs), [Verdict::Failed]);
        assert_eq!(verdicts(claim("random", ">=", 0.0, Some("round_robin")), &runs), [Verdict::Failed]);
        assert_eq!(verdicts(claim("random", ">=", 0.0, None), &[]), [Verdict::Failed]);
        let unmeasured = Assertion::new("predicted_hit_rate", "random", None, "<=", 1.0, None).unwrap();
        assert_eq!(verdicts(unmeasured, &runs), [Verdict::Failed]);
        let by_zero = claim("random", ">=", 0.0, Some("random"));
        assert_eq!(verdicts(by_zero, &runs), [Verdict::Failed], "a ratio to zero is no number");
    }

    #[test]
    fn a_world_that_was_not_run_is_shown_as_not_checked() {
        let live = Assertion::new("hit_rate", "random", Some(World::Live), ">=", 0.9, None).unwrap();
        let outcome = &evaluate(&[live], &[summary("random", 0, 1)])[0];
        assert_eq!(outcome.verdict, Verdict::NotChecked);
        assert!(!outcome.failed());
    }

    #[test]
    fn every_setting_of_a_sweep_must_hold_against_its_like() {
        let with = |policy: &str, cached, page: u64| {
            let mut summary = summary(policy, cached, 1);
            summary.params.insert("fleet.page".into(), json!(page));
            summary
        };
        let runs = [
            with("cache_aware", 80, 1),
            with("cache_aware", 60, 64),
            with("random", 40, 1),
            with("random", 50, 64),
        ];
        let outcomes = evaluate(&[claim("cache_aware", ">=", 1.5, Some("random"))], &runs);
        let measured: Vec<Option<f64>> = outcomes.iter().map(|o| o.measured).collect();
        assert_eq!(measured, [Some(2.0), Some(1.2)]);
        assert_eq!(outcomes.iter().filter(|o| o.failed()).count(), 1);
    }

    #[test]
    fn a_claim_about_one_setting_is_checked_there_only() {
        let with = |cached, page: u64| {
            let mut summary = summary("cache_aware", cached, 1);
            summary.params.insert("fleet.page".into(), json!(page));
            summary
        };
        let runs = [with(80, 1), with(60, 64)];
        let claim = |page: Value| {
            let params = Params::from([("fleet.page".to_owned(), page)]);
            evaluate(&[claim("cache_aware", ">=", 0.7, None).where_params(params)], &runs)
        };
        let measured = |outcomes: Vec<AssertOutcome>| outcomes.iter().map(|o| o.measured).collect::<Vec<_>>();
        assert_eq!(measured(claim(json!(1))), [Some(0.8)]);
        assert_eq!(measured(claim(json!(64.0))), [Some(0.6)], "a number, however it is written");
        let missing = &claim(json!(16))[0];
        assert!(missing.failed() && missing.finding == "no run of policy `cache_aware fleet.page=16`");
    }

    #[test]
    fn a_near_miss_does_not_read_like_a_hit() {
        let runs = [summary("random", 50, 1)];
        let outcome = &evaluate(&[claim("random", ">=", 0.500_000_1, None)], &runs)[0];
        assert_eq!(outcome.to_string(), "random (virtual): hit_rate at least 50 %; measured 0.5");
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let error = |metric, op, value| {
            Assertion::new(metric, "random", None, op, value, None).unwrap_err().to_string()
        };
        assert!(error("speed", ">=", 1.0).starts_with("`speed` is no metric; one of requests, failed"));
        assert!(error("hit_rate", "=>", 1.0).contains("`=>` is no comparison"));
        assert!(error("hit_rate", ">=", f64::NAN).contains("finite"));
    }
}
