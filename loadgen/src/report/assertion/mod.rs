//! Claims about results: a metric of a policy, or its ratio to another policy's, compared with a number.
//!
//! A claim is checked on the median over seeds, once for every variant of the policy (world and parameters) that it
//! covers, and all must hold. A claim that covers nothing fails: a renamed policy must not turn a gate green. The one
//! exception is a claim about a world that was not run at all, which is shown as not checked.

mod outcome;
#[cfg(test)]
mod tests;

use std::str::FromStr;

use serde_json::Value;

use super::metric::Metric;
use super::variant::{Variant, agree, plain};
use crate::run::{Params, World};
pub use outcome::{AssertOutcome, Verdict, evaluate};

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
    /// Why it is not judged here, in words; it is listed all the same.
    set_aside: Option<&'static str>,
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
        let (versus_mode, set_aside) = (None, None);
        Ok(Self { metric, policy, mode, op, value, versus, params, versus_params, versus_mode, set_aside })
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

    /// The same claim, which is listed and not judged.
    #[must_use]
    pub fn set_aside(self, why: &'static str) -> Self {
        Self { set_aside: Some(why), ..self }
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

    /// The world it is about; `None` for every one that was run.
    #[must_use]
    pub fn mode(&self) -> Option<World> {
        self.mode
    }

    /// The policy, or the other router, that it is about.
    #[must_use]
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// The policy it compares with, if it does.
    #[must_use]
    pub fn versus(&self) -> Option<&str> {
        self.versus.as_deref()
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
