//! What is to become better.

use clap::ValueEnum;
use protocol::record::RequestRecord;
use serde::Serialize;

use crate::report::{Slo, hit_rate, met, quantile, ttft_ns};
use crate::run::was_left;

/// The figure that settings are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[value(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// Requests per second that met both service level objectives
    Goodput,
    /// The 90th percentile of the time to first token
    #[value(name = "ttft_p90")]
    #[serde(rename = "ttft_p90")]
    TtftP90,
    /// Share of the prompt tokens that came from caches
    HitRate,
}

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

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Goodput => "goodput",
            Self::TtftP90 => "ttft_p90",
            Self::HitRate => "hit_rate",
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
            Self::TtftP90 => {
                let never = seconds(records) * 1e3;
                let stayed = records.iter().filter(|record| !was_left(record));
                let waited = |record: &RequestRecord| match ttft_ns(record) {
                    Some(ns) if record.succeeded() => ns / 1e6,
                    _ => never,
                };
                let mut ms: Vec<f64> = stayed.map(waited).collect();
                ms.sort_by(f64::total_cmp);
                quantile(&ms, 0.9).unwrap_or(0.0)
            }
        }
    }

    /// By how much `value` is better than `base`; negative where it is worse.
    pub(super) fn gain(self, value: f64, base: f64) -> f64 {
        if self.more_is_better() { value - base } else { base - value }
    }
}

/// From the first intended send to the last byte.
fn seconds(records: &[RequestRecord]) -> f64 {
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
}
