//! Options of policies: what may be set, to what, and what is said when it is something else.

use std::borrow::Cow;
use std::fmt;

/// One option of a policy.
#[derive(Debug, Clone, PartialEq)]
pub struct OptionSpec {
    /// Its name; the command-line flag is this with dashes.
    pub key: &'static str,
    /// What it takes.
    pub kind: OptionKind,
    /// What it is when it is not set.
    pub default: OptionValue,
    /// One line for people.
    pub help: &'static str,
    /// Where a better value is looked for when none is named; absent where a search has nothing to gain.
    pub search: Option<SearchRange>,
}

/// The part of an option's range that is worth a search. Both ends belong to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchRange {
    /// Smallest.
    pub low: f64,
    /// Largest.
    pub high: f64,
    /// Whether even steps are even ratios.
    pub log: bool,
}

/// What an option takes. Both ends of a range belong to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OptionKind {
    /// A whole number.
    Integer {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
    },
    /// A number, never infinite.
    Float {
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// What was given for an option.
#[derive(Debug, Clone, PartialEq)]
pub enum OptionValue {
    /// True or false; no option takes it yet, but files can say it.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Float(f64),
    /// A word.
    Text(Cow<'static, str>),
}

/// An option that cannot be set so.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum OptionError {
    /// The policy has no such option.
    #[error("policy `{policy}` has no option `{key}`{}; {}", did_you_mean(.nearest), known_options(.known))]
    Unknown {
        /// The policy.
        policy: &'static str,
        /// What was given as a key.
        key: String,
        /// The keys that there are.
        known: Vec<&'static str>,
        /// The one that was probably meant.
        nearest: Option<&'static str>,
    },
    /// The option does not take this value.
    #[error("option `{key}` of policy `{policy}` cannot be {value}: it takes {allowed}")]
    NotAllowed {
        /// The policy.
        policy: &'static str,
        /// The option.
        key: &'static str,
        /// What was given.
        value: OptionValue,
        /// What it takes.
        allowed: OptionKind,
    },
}

// === impl OptionSpec ===

impl OptionSpec {
    /// `value` as this option keeps it (a whole number where any number may stand becomes one of that kind), or `None` if it
    /// is not allowed.
    #[must_use]
    pub fn accept(&self, value: &OptionValue) -> Option<OptionValue> {
        match (self.kind, value) {
            (OptionKind::Integer { min, max }, OptionValue::Integer(n)) => {
                (min..=max).contains(n).then(|| value.clone())
            }
            (OptionKind::Float { min, max }, OptionValue::Float(x)) => {
                (x.is_finite() && (min..=max).contains(x)).then(|| value.clone())
            }
            (OptionKind::Float { .. }, OptionValue::Integer(n)) => {
                self.accept(&OptionValue::Float(*n as f64))
            }
            (OptionKind::Choice(words), OptionValue::Text(word)) => {
                words.contains(&word.as_ref()).then(|| value.clone())
            }
            _ => None,
        }
    }

    /// The value that `text` means for this option, as on a command line. What cannot be read is returned as text, for
    /// [`crate::PolicyConfig::set`] to refuse.
    #[must_use]
    pub fn parse(&self, text: &str) -> OptionValue {
        let number = match self.kind {
            OptionKind::Integer { .. } => text.parse().ok().map(OptionValue::Integer),
            OptionKind::Float { .. } => text.parse().ok().map(OptionValue::Float),
            OptionKind::Choice(_) => None,
        };
        number.unwrap_or_else(|| OptionValue::Text(Cow::Owned(text.to_owned())))
    }
}

// === impl OptionKind ===

impl fmt::Display for OptionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer { min, max: i64::MAX } => write!(f, "a whole number, {min} or more"),
            Self::Integer { min, max } => write!(f, "a whole number from {min} to {max}"),
            Self::Float { min, max } if *max == f64::INFINITY => write!(f, "a number, {min} or more"),
            Self::Float { min, max } => write!(f, "a number from {min} to {max}"),
            Self::Choice(words) => write!(f, "one of {}", words.join(", ")),
        }
    }
}

// === impl OptionValue ===

impl OptionValue {
    /// The value as a command line has it: words without quotes.
    #[must_use]
    pub fn as_argument(&self) -> String {
        match self {
            Self::Text(value) => value.to_string(),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "\"{}\"", value.escape_debug()),
        }
    }
}

impl From<i64> for OptionValue {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<f64> for OptionValue {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for OptionValue {
    fn from(value: &str) -> Self {
        Self::Text(Cow::Owned(value.to_owned()))
    }
}

/// The part of a message that names what was probably meant.
pub(super) fn did_you_mean(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!(" (did you mean `{nearest}`?)"))
}

fn known_options(known: &[&'static str]) -> String {
    match known {
        [] => "it has none".to_owned(),
        known => format!("it has {}", known.join(", ")),
    }
}
