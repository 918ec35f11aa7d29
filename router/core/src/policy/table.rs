//! The table of policies. Command-line help, configuration, documents, metric labels, contract tests and scenarios read
//! it; a new policy is one file and one line here.

use super::config::PolicyConfig;
use super::options::OptionSpec;
use super::{Policy, Signals};
use super::{
    bucket, cache_aware, consistent_hashing, manual, power_of_two, prefix_hash, random, round_robin,
};
use crate::fleet::Role;

/// What there is to know about a policy without running it.
#[derive(Debug)]
pub struct PolicyRow {
    /// Its name.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// What can be set.
    pub options: &'static [OptionSpec],
    /// Every reason that it gives.
    pub reasons: &'static [&'static str],
    /// Whether it is of use only to requests that carry a routing header.
    pub needs_header: bool,
    /// Workers below which it has no choice to make.
    pub fewest_workers: usize,
    /// Whether it can choose among workers of this role.
    pub fits: fn(Role) -> bool,
    /// The counter under which SGLang's gateway counts its reasons as branches, without `_total`; `None` if it does not.
    pub branch_metric: Option<&'static str>,
    /// What it needs to be told, with given options.
    pub signals: fn(&PolicyConfig) -> Signals,
    /// Makes one, with given options.
    pub build: fn(&PolicyConfig) -> Box<dyn Policy>,
}

/// A policy by its place in [`POLICIES`]: what is counted of each is found by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PolicyId(usize);

impl PolicyId {
    /// The policy of this row.
    pub(crate) fn of(row: &PolicyRow) -> Self {
        let place = POLICIES.iter().position(|other| other.name == row.name);
        Self(place.expect("a row of the table"))
    }

    /// Its place.
    #[must_use]
    pub fn place(self) -> usize {
        self.0
    }

    /// Its row.
    #[must_use]
    pub fn row(self) -> &'static PolicyRow {
        &POLICIES[self.0]
    }
}

/// All policies.
pub const POLICIES: &[PolicyRow] = &[
    round_robin::ROW,
    random::ROW,
    power_of_two::ROW,
    cache_aware::ROW,
    bucket::ROW,
    consistent_hashing::ROW,
    prefix_hash::ROW,
    manual::ROW,
];
