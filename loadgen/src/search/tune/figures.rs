//! What is told of a setting beside the objective, so that nobody buys a gain without knowing what it costs.

use protocol::record::RequestRecord;
use serde::Serialize;
use simworker_core::cost::{CostModel, PrefillWork};

use super::objective::seconds;
use crate::report::{e2e_ns, hit_rate, quantile, tpot_ns, ttft_ns};
use crate::run::was_left;
use crate::statistics::mean;

/// The fleet is overloaded where waiting for a turn is this share of the time to first token, over the slowest tenth of the
/// requests. It is chosen: with random arrivals it is reached where workers compute for about nine tenths of the time.
pub(super) const OVERLOADED: f64 = 0.9;

/// Figures of some requests. Times are in milliseconds; absent where nothing was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Share of the prompt tokens that came from caches.
    pub hit_rate: Option<f64>,
    /// Median time to first token.
    pub ttft_p50_ms: Option<f64>,
    /// Its 90th percentile.
    pub ttft_p90_ms: Option<f64>,
    /// Median mean time per token after the first.
    pub tpot_p50_ms: Option<f64>,
    /// Median time to the last byte.
    pub e2e_p50_ms: Option<f64>,
    /// Share of the time to first token that the slowest tenth waited for its turn, by the engine's cost model.
    pub waiting_share: Option<f64>,
}

// === impl Figures ===

impl Figures {
    /// Of these requests, on engines of this cost.
    pub(super) fn of(records: &[RequestRecord], cost: &CostModel) -> Self {
        let ttft_ms = ttft_ms(records);
        let good = || records.iter().filter(|record| record.succeeded());
        let median = |values: Vec<f64>| quantile(&sorted(values), 0.5);
        Self {
            hit_rate: Some(hit_rate(records)),
            ttft_p50_ms: quantile(&ttft_ms, 0.5),
            ttft_p90_ms: quantile(&ttft_ms, 0.9),
            tpot_p50_ms: median(good().filter_map(tpot_ns).map(|ns| ns / 1e6).collect()),
            e2e_p50_ms: median(good().map(|record| e2e_ns(record) / 1e6).collect()),
            waiting_share: waiting_share(records, cost),
        }
    }

    /// The mean of each figure.
    pub(super) fn mean(all: &[Self]) -> Self {
        let of = |get: fn(&Self) -> Option<f64>| mean(&all.iter().filter_map(get).collect::<Vec<_>>());
        Self {
            hit_rate: of(|f| f.hit_rate),
            ttft_p50_ms: of(|f| f.ttft_p50_ms),
            ttft_p90_ms: of(|f| f.ttft_p90_ms),
            tpot_p50_ms: of(|f| f.tpot_p50_ms),
            e2e_p50_ms: of(|f| f.e2e_p50_ms),
            waiting_share: of(|f| f.waiting_share),
        }
    }

    /// Whether no setting helps much: requests wait for workers and not for their own prompts.
    #[must_use]
    pub fn overloaded(&self) -> bool {
        self.waiting_share.is_some_and(|share| share > OVERLOADED)
    }

    /// What people are shown: name and value.
    #[must_use]
    pub fn rows(&self) -> [(&'static str, String); 5] {
        let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
        let hit_rate = self.hit_rate.map_or_else(|| "-".to_owned(), |rate| format!("{:.2}", rate * 100.0));
        [
            ("hit rate %", hit_rate),
            ("TTFT p50 ms", ms(self.ttft_p50_ms)),
            ("TTFT p90 ms", ms(self.ttft_p90_ms)),
            ("TPOT p50 ms", ms(self.tpot_p50_ms)),
            ("E2E p50 ms", ms(self.e2e_p50_ms)),
        ]
    }
}

/// Times to first token in milliseconds, sorted. Who failed has waited to the end of them all; who left counts nowhere.
pub(super) fn ttft_ms(records: &[RequestRecord]) -> Vec<f64> {
    let never = seconds(records) * 1e3;
    let stayed = records.iter().filter(|record| !was_left(record));
    let waited = |record: &RequestRecord| match ttft_ns(record) {
        Some(ns) if record.succeeded() => ns / 1e6,
        _ => never,
    };
    sorted(stayed.map(waited).collect())
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// Of the slowest tenth: what of the time to first token their own prompts do not explain.
fn waiting_share(records: &[RequestRecord], cost: &CostModel) -> Option<f64> {
    let mut known: Vec<(f64, &RequestRecord)> = records
        .iter()
        .filter(|record| record.succeeded())
        .filter_map(|record| Some((ttft_ns(record)?, record)))
        .collect();
    known.sort_by(|a, b| b.0.total_cmp(&a.0));
    known.truncate(known.len().div_ceil(10));
    let computed = |record: &RequestRecord| {
        let mut work = PrefillWork::default();
        work.add(record.prompt_tokens.saturating_sub(record.cached_tokens), record.cached_tokens);
        cost.prefill(work).ns() as f64
    };
    let (waited, own) = known
        .iter()
        .fold((0.0, 0.0), |(waited, own), (ttft, record)| (waited + ttft, own + computed(record).min(*ttft)));
    (waited > 0.0).then(|| 1.0 - own / waited)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(seq: u64, ttft_ms: u64, prompt_tokens: u64) -> RequestRecord {
        let mut record = RequestRecord::sent(seq, None, 0, 0);
        record.first_ns = Some(ttft_ms * 1_000_000);
        record.last_ns = (ttft_ms + 90) * 1_000_000;
        (record.prompt_tokens, record.cached_tokens, record.output_tokens) = (prompt_tokens, 0, 10);
        record.status = 200;
        record
    }

    fn cost() -> CostModel {
        simworker_core::preset("a100-80g-llama3-8b").unwrap().cost
    }

    #[test]
    fn every_figure_of_a_few_requests() {
        let found = Figures::of(&[record(0, 100, 10), record(1, 200, 10), record(2, 300, 10)], &cost());
        assert_eq!((found.hit_rate, found.ttft_p50_ms), (Some(0.0), Some(200.0)));
        assert_eq!((found.tpot_p50_ms, found.e2e_p50_ms), (Some(10.0), Some(290.0)));
        assert!((found.ttft_p90_ms.unwrap() - 280.0).abs() < 1e-9);
        let both = Figures::mean(&[found, Figures { ttft_p50_ms: Some(400.0), ..Figures::default() }]);
        assert_eq!((both.ttft_p50_ms, both.e2e_p50_ms), (Some(300.0), Some(290.0)), "of what was measured");
    }

    #[test]
    fn a_long_prompt_is_no_queue_and_a_short_one_that_waits_is() {
        // About 0.9 s of work for one prompt, and a few milliseconds for the other.
        let own = Figures::of(&[record(0, 1_000, 10_000)], &cost());
        assert!(own.waiting_share.unwrap() < 0.5 && !own.overloaded(), "{own:?}");
        assert!(Figures::of(&[record(0, 1_000, 100)], &cost()).overloaded());
        assert!(!Figures::default().overloaded(), "nothing is known");
    }
}
