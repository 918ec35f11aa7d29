//! The table of figures: name, unit, definition, and how to read each off a summary.

use serde_json::Number;

use super::summary::RunSummary;

/// Which direction is an improvement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// A fact, not a merit.
    Neither,
}

/// One figure of a run.
#[derive(Debug)]
pub struct Metric {
    /// Its path in `summary.json`, for example `hit_rate` or `ttft_ms.p50`; also its name in asserts and its column in
    /// `summary.csv`.
    pub name: &'static str,
    /// Its unit; empty for counts and shares.
    pub unit: &'static str,
    /// Which direction is an improvement.
    pub better: Better,
    /// What it means, in one sentence.
    pub definition: &'static str,
    get: fn(&RunSummary) -> Option<Number>,
}

impl Metric {
    /// The metric of that name. `ttft_ms_p50` is understood as `ttft_ms.p50`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        let same = |m: &&Metric| m.name == name || m.name.replace('.', "_") == name;
        METRICS.iter().find(same)
    }

    /// The figure as a number that prints as it does in `summary.json`; `None` where it was not measured.
    #[must_use]
    pub fn number(&self, summary: &RunSummary) -> Option<Number> {
        (self.get)(summary)
    }

    /// The figure; `None` where it was not measured.
    #[must_use]
    pub fn value(&self, summary: &RunSummary) -> Option<f64> {
        self.number(summary)?.as_f64()
    }
}

fn count(value: u64) -> Option<Number> {
    Some(value.into())
}

fn real(value: f64) -> Option<Number> {
    Number::from_f64(value)
}

const fn row(
    name: &'static str,
    unit: &'static str,
    better: Better,
    get: fn(&RunSummary) -> Option<Number>,
    definition: &'static str,
) -> Metric {
    Metric { name, unit, better, definition, get }
}

use Better::{Higher, Lower, Neither};

/// Every figure of a run, in the order of `summary.json`.
pub const METRICS: &[Metric] = &[
    row("requests", "", Neither, |s| count(s.requests), "Requests of the run, failed ones too."),
    row(
        "failed",
        "",
        Lower,
        |s| count(s.failed),
        "Requests that were not answered in full. They count in no latency, token total or rate, and miss every objective.",
    ),
    row(
        "makespan_s",
        "s",
        Lower,
        |s| real(s.makespan_s),
        "First intended send to last byte of the last request that succeeded.",
    ),
    row(
        "prompt_tokens",
        "tokens",
        Neither,
        |s| count(s.prompt_tokens),
        "Prompt tokens of the requests that succeeded, as the engine counted them.",
    ),
    row(
        "cached_tokens",
        "tokens",
        Neither,
        |s| count(s.cached_tokens),
        "Those of them that came from the engine's cache, as the engine reports.",
    ),
    row(
        "hit_rate",
        "share",
        Higher,
        |s| real(s.hit_rate),
        "Σ cached_tokens / Σ prompt_tokens, as the engine counted them.",
    ),
    row(
        "hit_rate_last_half",
        "share",
        Higher,
        |s| real(s.hit_rate_last_half),
        "The same over the later half of the requests by arrival: the cache is warm by then.",
    ),
    row(
        "predicted_hit_rate",
        "share",
        Neither,
        |s| s.predicted_hit_rate.and_then(real),
        "What the router believed when it booked, Σ predicted / Σ prompt tokens over the requests it had a belief about. Its distance from the hit rate is how stale the router's picture is.",
    ),
    row(
        "input_tok_s",
        "tok/s",
        Higher,
        |s| real(s.input_tok_s),
        "Prompt tokens of successful requests per second of makespan: the throughput.",
    ),
    row(
        "output_tok_s",
        "tok/s",
        Higher,
        |s| real(s.output_tok_s),
        "Output tokens of successful requests per second of makespan.",
    ),
    row(
        "ttft_ms.mean",
        "ms",
        Lower,
        |s| s.ttft_ms.mean.and_then(real),
        "Time to first token, from the intended send. Arithmetic mean.",
    ),
    row(
        "ttft_ms.p50",
        "ms",
        Lower,
        |s| s.ttft_ms.p50.and_then(real),
        "Time to first token, from the intended send. Median.",
    ),
    row(
        "ttft_ms.p90",
        "ms",
        Lower,
        |s| s.ttft_ms.p90.and_then(real),
        "Time to first token, from the intended send. 90th percentile.",
    ),
    row(
        "ttft_ms.p99",
        "ms",
        Lower,
        |s| s.ttft_ms.p99.and_then(real),
        "Time to first token, from the intended send. 99th percentile.",
    ),
    row(
        "tpot_ms.mean",
        "ms",
        Lower,
        |s| s.tpot_ms.mean.and_then(real),
        "Time per output token after the first, one mean per request; replies of one token have none. Arithmetic mean.",
    ),
    row(
        "tpot_ms.p50",
        "ms",
        Lower,
        |s| s.tpot_ms.p50.and_then(real),
        "Time per output token after the first, one mean per request; replies of one token have none. Median.",
    ),
    row(
        "tpot_ms.p90",
        "ms",
        Lower,
        |s| s.tpot_ms.p90.and_then(real),
        "Time per output token after the first, one mean per request; replies of one token have none. 90th percentile.",
    ),
    row(
        "tpot_ms.p99",
        "ms",
        Lower,
        |s| s.tpot_ms.p99.and_then(real),
        "Time per output token after the first, one mean per request; replies of one token have none. 99th percentile.",
    ),
    row(
        "itl_ms.mean",
        "ms",
        Lower,
        |s| s.itl_ms.mean.and_then(real),
        "Gap between consecutive tokens at the client, over all gaps of all requests; tokens that come in one frame share its gap (live, by stream_interval). Arithmetic mean.",
    ),
    row(
        "itl_ms.p50",
        "ms",
        Lower,
        |s| s.itl_ms.p50.and_then(real),
        "Gap between consecutive tokens at the client, over all gaps of all requests. Median.",
    ),
    row(
        "itl_ms.p90",
        "ms",
        Lower,
        |s| s.itl_ms.p90.and_then(real),
        "Gap between consecutive tokens at the client, over all gaps of all requests. 90th percentile.",
    ),
    row(
        "itl_ms.p99",
        "ms",
        Lower,
        |s| s.itl_ms.p99.and_then(real),
        "Gap between consecutive tokens at the client, over all gaps of all requests. 99th percentile.",
    ),
    row(
        "e2e_ms.mean",
        "ms",
        Lower,
        |s| s.e2e_ms.mean.and_then(real),
        "Intended send to last byte. Arithmetic mean.",
    ),
    row("e2e_ms.p50", "ms", Lower, |s| s.e2e_ms.p50.and_then(real), "Intended send to last byte. Median."),
    row(
        "e2e_ms.p90",
        "ms",
        Lower,
        |s| s.e2e_ms.p90.and_then(real),
        "Intended send to last byte. 90th percentile.",
    ),
    row(
        "e2e_ms.p99",
        "ms",
        Lower,
        |s| s.e2e_ms.p99.and_then(real),
        "Intended send to last byte. 99th percentile.",
    ),
    row(
        "slo_attainment",
        "share",
        Higher,
        |s| s.slo_attainment.and_then(real),
        "Share of all requests that met both objectives of [slo]; a one-token reply meets the TPOT one, failed requests miss.",
    ),
    row(
        "imbalance",
        "",
        Lower,
        |s| s.imbalance.and_then(real),
        "Busiest worker over the mean of all workers, in prompt + output tokens of successful requests; 1.0 is perfect.",
    ),
    row(
        "router_cpu_us_per_request",
        "µs",
        Lower,
        |s| s.router_cpu_us_per_request.and_then(real),
        "CPU time of the router process per request, user and system; live only.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{record, run};

    #[test]
    fn every_number_of_the_summary_has_a_row_in_its_order() {
        let summary = RunSummary::of(&run("random", vec![record(0).build()]), None);
        let fields = serde_json::to_value(&summary).unwrap();
        let mut names = Vec::new();
        for (key, value) in fields.as_object().unwrap() {
            match value.as_object() {
                _ if ["mode", "policy", "params", "seed"].contains(&key.as_str()) => {}
                Some(parts) => names.extend(parts.keys().map(|part| format!("{key}.{part}"))),
                None => names.push(key.clone()),
            }
        }
        let mut rows: Vec<&str> = METRICS.iter().map(|m| m.name).collect();
        let text = serde_json::to_string(&summary).unwrap();
        let place = |name: &&str| text.find(&format!("\"{}\":", name.split('.').next().unwrap())).unwrap();
        assert!(rows.is_sorted_by_key(place));
        rows.sort_unstable();
        names.sort_unstable();
        assert_eq!(rows, names);
    }

    #[test]
    fn names_are_paths_and_underscores_are_forgiven() {
        assert_eq!(Metric::named("ttft_ms_p50").map(|m| m.name), Some("ttft_ms.p50"));
        assert_eq!(Metric::named("hit_rate").map(|m| m.name), Some("hit_rate"));
        assert!(Metric::named("speed").is_none());
    }
}
