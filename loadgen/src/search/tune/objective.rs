//! What is to become better.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use protocol::record::RequestRecord;
use serde::{Serialize, Serializer};

use super::figures::ttft_ms;
use crate::report::{Slo, hit_rate, met, quantile};
use crate::statistics::mean;

/// The figure that settings are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// The 90th percentile of the time to first token.
    TtftP90,
    /// Requests per second that met both service level objectives.
    Goodput,
    /// Share of the prompt tokens that came from caches.
    HitRate,
}

// === impl Objective ===

impl Objective {
    /// Whether it is about service level objectives.
    #[must_use]
    pub fn needs_slo(self) -> bool {
        self == Self::Goodput
    }

    /// Whether more of it is better.
    #[must_use]
    pub fn more_is_better(self) -> bool {
        self != Self::TtftP90
    }

    /// Its name, on the command line and in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TtftP90 => "ttft_p90",
            Self::Goodput => "goodput",
            Self::HitRate => "hit_rate",
        }
    }

    /// The figure of a run's summary that is nearest to it.
    #[must_use]
    pub fn metric(self) -> &'static str {
        match self {
            Self::TtftP90 => "ttft_ms.p90",
            Self::Goodput => "slo_attainment",
            Self::HitRate => "hit_rate",
        }
    }

    fn help(self) -> &'static str {
        match self {
            Self::TtftP90 => "The 90th percentile of the time to first token",
            Self::Goodput => "Requests per second that met both service level objectives",
            Self::HitRate => "Share of the prompt tokens that came from caches",
        }
    }

    /// The figure as people read it.
    #[must_use]
    pub fn figure(self, value: f64) -> String {
        match self {
            Self::Goodput => format!("{value:.3} requests/s"),
            Self::TtftP90 => format!("{value:.1} ms"),
            Self::HitRate => format!("{:.2} %", value * 100.0),
        }
    }

    /// The figure of some requests. A request that failed counts as one that waited for its first token to the end of them all:
    /// no setting looks good by failing.
    pub(super) fn of(self, records: &[RequestRecord], slo: Option<Slo>) -> f64 {
        match self {
            Self::HitRate => hit_rate(records),
            Self::Goodput => {
                let good = records.iter().filter(|record| slo.is_some_and(|slo| met(record, slo))).count();
                good as f64 / seconds(records).max(1e-9)
            }
            Self::TtftP90 => quantile(&ttft_ms(records), 0.9).unwrap_or(0.0),
        }
    }

    /// By how much `value` is better than `base`; negative where it is worse.
    pub(super) fn gain(self, value: f64, base: f64) -> f64 {
        if self.more_is_better() { value - base } else { base - value }
    }

    /// The gains of paired observations, as shares of the mean of `base`; in the figure's own unit where that is 0.
    pub(super) fn gains(self, values: &[f64], base: &[f64]) -> Vec<f64> {
        let mean = mean(base).unwrap_or(0.0);
        let scale = if mean == 0.0 { 1.0 } else { mean.abs() };
        values.iter().zip(base).map(|(value, base)| self.gain(*value, *base) / scale).collect()
    }
}

impl ValueEnum for Objective {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::TtftP90, Self::Goodput, Self::HitRate]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()).help(self.help()))
    }
}

impl Serialize for Objective {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// From the first intended send to the last byte.
pub(super) fn seconds(records: &[RequestRecord]) -> f64 {
    let start_ns = records.iter().map(|record| record.intended_ns).min().unwrap_or(0);
    let end_ns = records.iter().map(|record| record.last_ns).max().unwrap_or(0);
    end_ns.saturating_sub(start_ns) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn record(seq: u64, ttft_ms: u64, status: u16) -> RequestRecord {
        let mut record = RequestRecord::sent(seq, None, seq * 10 * MS, seq * 10 * MS);
        record.first_ns = (status == 200).then_some((seq * 10 + ttft_ms) * MS);
        record.last_ns = 1000 * MS;
        (record.prompt_tokens, record.cached_tokens, record.output_tokens) = (100, 25, 1);
        record.status = status;
        record
    }

    #[test]
    fn figures_of_a_few_requests() {
        let slo = Some(Slo { ttft_ns: 50 * MS, tpot_ns: MS });
        let good = [record(0, 10, 200), record(1, 20, 200), record(2, 90, 200)];
        assert_eq!(Objective::HitRate.of(&good, None), 0.25);
        assert_eq!(Objective::Goodput.of(&good, slo), 2.0, "two within one second");
        assert!((Objective::TtftP90.of(&good, None) - 76.0).abs() < 1e-9);
        let failing = [record(0, 10, 200), record(1, 20, 503), record(2, 90, 503)];
        assert_eq!(Objective::TtftP90.of(&failing, None), 1000.0, "failing does not pay");
        assert_eq!(Objective::Goodput.of(&failing, slo), 1.0);
        assert_eq!((Objective::TtftP90.gain(90.0, 100.0), Objective::HitRate.gain(0.5, 0.25)), (10.0, 0.25));
    }

    #[test]
    fn gains_are_shares_of_the_mean_of_the_base() {
        assert_eq!(Objective::TtftP90.gains(&[90.0, 150.0], &[50.0, 150.0]), [-0.4, 0.0]);
        assert_eq!(Objective::HitRate.gains(&[0.5], &[0.0]), [0.5], "of nothing no share is known");
    }
}
