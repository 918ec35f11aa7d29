//! The balance test: the two-threshold rule for "too much on one worker".

use super::config::PolicyConfig;
use super::options::{OptionKind, OptionSpec, OptionValue, SearchRange};

/// The absolute threshold.
pub(super) const ABS_THRESHOLD: OptionSpec = OptionSpec {
    key: "balance_abs_threshold",
    kind: OptionKind::Integer { min: 0, max: i64::MAX },
    default: OptionValue::Integer(64),
    help: "balance test: least difference of load that counts as too much",
    search: Some(SearchRange { low: 4.0, high: 256.0, log: true }),
};

/// The relative threshold.
pub(super) const REL_THRESHOLD: OptionSpec = OptionSpec {
    key: "balance_rel_threshold",
    kind: OptionKind::Float { min: 1.0, max: f64::INFINITY },
    default: OptionValue::Float(1.5),
    help: "balance test: least ratio of load that counts as too much",
    search: Some(SearchRange { low: 1.05, high: 3.0, log: true }),
};

/// Both thresholds.
#[derive(Debug, Clone, Copy)]
pub(super) struct BalanceTest {
    abs: u64,
    rel: f64,
}

impl BalanceTest {
    pub(super) fn of(config: &PolicyConfig) -> Self {
        Self { abs: config.integer(ABS_THRESHOLD.key), rel: config.float(REL_THRESHOLD.key) }
    }

    /// Whether `load` is too much beside the smallest load: `load − min > abs` and `load > rel × min`.
    pub(super) fn fires(self, load: u64, min: u64) -> bool {
        load.saturating_sub(min) > self.abs && load as f64 > self.rel * min as f64
    }
}
