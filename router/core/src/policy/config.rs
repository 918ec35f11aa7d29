//! A policy's name and options, checked when they are set.

use super::options::{OptionError, OptionSpec, OptionValue, did_you_mean};
use super::prefix_hash::TOKEN_COUNT;
use super::table::{POLICIES, PolicyId, PolicyRow};
use super::{Policy, Signals};
use crate::fleet::Role;
use crate::spelling;

/// Which policy, with which options. Whatever it holds is allowed.
#[derive(Debug, Clone)]
pub struct PolicyConfig {
    row: &'static PolicyRow,
    /// One place per option of the row; `None` where the default holds.
    values: Vec<Option<OptionValue>>,
}

/// There is no policy of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy `{name}`{}; there are {}", did_you_mean(.nearest), .known.join(", "))]
pub struct UnknownPolicy {
    /// What was given as a name.
    pub name: String,
    /// The names that there are.
    pub known: Vec<&'static str>,
    /// The one that was probably meant.
    pub nearest: Option<&'static str>,
}

// === impl PolicyConfig ===

impl PolicyConfig {
    /// The policy called `name`, with its defaults.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn new(name: &str) -> Result<Self, UnknownPolicy> {
        POLICIES.iter().find(|row| row.name == name).map(Self::of).ok_or_else(|| {
            let known: Vec<_> = POLICIES.iter().map(|row| row.name).collect();
            UnknownPolicy { name: name.to_owned(), nearest: spelling::nearest(name, &known), known }
        })
    }

    /// The policy of a row, with its defaults.
    #[must_use]
    pub fn of(row: &'static PolicyRow) -> Self {
        Self { row, values: vec![None; row.options.len()] }
    }

    /// Sets an option.
    ///
    /// # Errors
    /// The policy has no such option, or the option does not take this value.
    pub fn set(&mut self, key: &str, value: impl Into<OptionValue>) -> Result<(), OptionError> {
        let at = self.place(key)?;
        let (spec, value) = (&self.row.options[at], value.into());
        let accepted = spec.accept(&value);
        let refusal =
            || OptionError::NotAllowed { policy: self.row.name, key: spec.key, value, allowed: spec.kind };
        self.values[at] = Some(accepted.ok_or_else(refusal)?);
        Ok(())
    }

    /// Sets an option to what `text` means for it, as on a command line.
    ///
    /// # Errors
    /// As [`PolicyConfig::set`].
    pub fn set_text(&mut self, key: &str, text: &str) -> Result<(), OptionError> {
        let value = self.row.options[self.place(key)?].parse(text);
        self.set(key, value)
    }

    /// The policy's row.
    #[must_use]
    pub fn row(&self) -> &'static PolicyRow {
        self.row
    }

    /// The policy's place in the table.
    #[must_use]
    pub fn id(&self) -> PolicyId {
        PolicyId::of(self.row)
    }

    /// The policy's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.row.name
    }

    /// Every option with its value, set or default, in the order of the row.
    pub fn options(&self) -> impl Iterator<Item = (&'static OptionSpec, &OptionValue)> {
        self.row
            .options
            .iter()
            .zip(&self.values)
            .map(|(spec, value)| (spec, value.as_ref().unwrap_or(&spec.default)))
    }

    /// The options that were set, in the order of the row.
    pub fn overrides(&self) -> impl Iterator<Item = (&'static str, &OptionValue)> {
        self.row
            .options
            .iter()
            .zip(&self.values)
            .filter_map(|(spec, value)| Some((spec.key, value.as_ref()?)))
    }

    /// Whether a request that stands at some place of a ring under this ([`crate::Router::places`]) stands there under
    /// `other` too.
    #[must_use]
    pub fn hashes_as(&self, other: &Self) -> bool {
        let hashed = |config: &Self| {
            let count = config.options().find(|(spec, _)| spec.key == TOKEN_COUNT.key);
            count.map(|(_, value)| value.clone())
        };
        self.id() == other.id() && hashed(self) == hashed(other)
    }

    /// What the policy needs to be told, with these options.
    #[must_use]
    pub fn signals(&self) -> Signals {
        (self.row.signals)(self)
    }

    /// Whether the policy can choose among workers of this role.
    #[must_use]
    pub fn fits(&self, role: Role) -> bool {
        (self.row.fits)(role)
    }

    /// The policy itself.
    pub(crate) fn build(&self) -> Box<dyn Policy> {
        (self.row.build)(self)
    }

    /// The value of an integer option whose range begins at 0 or above.
    pub(super) fn integer(&self, key: &str) -> u64 {
        match self.value(key) {
            Some(OptionValue::Integer(value)) => value.unsigned_abs(),
            other => unreachable!("`{key}` of `{}` is no integer option: {other:?}", self.name()),
        }
    }

    /// The value of a number option.
    pub(super) fn float(&self, key: &str) -> f64 {
        match self.value(key) {
            Some(OptionValue::Float(value)) => *value,
            other => unreachable!("`{key}` of `{}` is no number option: {other:?}", self.name()),
        }
    }

    /// The value of a choice option.
    pub(super) fn choice(&self, key: &str) -> &str {
        match self.value(key) {
            Some(OptionValue::Text(value)) => value,
            other => unreachable!("`{key}` of `{}` is no choice option: {other:?}", self.name()),
        }
    }

    fn value(&self, key: &str) -> Option<&OptionValue> {
        self.options().find(|(spec, _)| spec.key == key).map(|(_, value)| value)
    }

    fn place(&self, key: &str) -> Result<usize, OptionError> {
        self.row.options.iter().position(|spec| spec.key == key).ok_or_else(|| {
            let known: Vec<_> = self.row.options.iter().map(|spec| spec.key).collect();
            let nearest = spelling::nearest(key, &known);
            OptionError::Unknown { policy: self.row.name, key: key.to_owned(), known, nearest }
        })
    }
}

impl PartialEq for PolicyConfig {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.values == other.values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str) -> PolicyConfig {
        PolicyConfig::new(name).expect("a policy of the table")
    }

    #[test]
    fn messages_name_what_was_given_and_what_is_allowed() {
        let mut cache_aware = config("cache_aware");
        let cases: [(&str, OptionValue, &str); 6] = [
            (
                "cache_threshold",
                OptionValue::Float(1.5),
                "option `cache_threshold` of policy `cache_aware` cannot be 1.5: it takes a number from 0 to 1",
            ),
            (
                "cache_threshold",
                OptionValue::Float(f64::NAN),
                "option `cache_threshold` of policy `cache_aware` cannot be NaN: it takes a number from 0 to 1",
            ),
            (
                "max_tree_size",
                OptionValue::Integer(0),
                "option `max_tree_size` of policy `cache_aware` cannot be 0: it takes a whole number, 1 or more",
            ),
            (
                "balance_rel_threshold",
                OptionValue::Text("high".into()),
                "option `balance_rel_threshold` of policy `cache_aware` cannot be \"high\": it takes a number, 1 or more",
            ),
            (
                "balance_scope",
                OptionValue::Bool(true),
                "option `balance_scope` of policy `cache_aware` cannot be true: it takes one of owner, fleet",
            ),
            (
                "cache_treshold",
                OptionValue::Float(0.5),
                "policy `cache_aware` has no option `cache_treshold` (did you mean `cache_threshold`?); it has \
                 cache_threshold, balance_abs_threshold, balance_rel_threshold, max_tree_size, max_tree_bytes, \
                 balance_scope",
            ),
        ];
        for (key, value, message) in cases {
            let error = cache_aware.set(key, value).expect_err(key);
            assert_eq!(error.to_string(), message);
        }
        assert_eq!(cache_aware, config("cache_aware"), "what is refused changes nothing");
        let error = config("random").set("anything", 1).expect_err("it has no options");
        assert_eq!(error.to_string(), "policy `random` has no option `anything`; it has none");
    }

    #[test]
    fn an_unknown_policy_is_told_which_there_are() {
        let error = PolicyConfig::new("cache-aware").expect_err("dashes are not our spelling");
        let message = error.to_string();
        assert!(
            message.starts_with("unknown policy `cache-aware` (did you mean `cache_aware`?); there are ")
        );
        assert!(POLICIES.iter().all(|row| message.contains(row.name)), "{message}");
        assert_eq!(PolicyConfig::new("xyzzy").expect_err("no such thing").nearest, None);
    }

    #[test]
    fn text_is_read_by_the_kind_of_the_option() {
        let mut config = config("cache_aware");
        config.set_text("cache_threshold", "1").expect("a whole number is a number");
        config.set_text("balance_abs_threshold", "7").expect("a whole number");
        config.set_text("balance_scope", "fleet").expect("a word");
        assert!(config.set_text("balance_abs_threshold", "7.5").is_err());
        assert!(config.set_text("cache_threshold", "inf").is_err());
        assert_eq!((config.float("cache_threshold"), config.integer("balance_abs_threshold")), (1.0, 7));
        let set: Vec<_> = config.overrides().map(|(key, _)| key).collect();
        assert_eq!(set, ["cache_threshold", "balance_abs_threshold", "balance_scope"]);
    }
}
