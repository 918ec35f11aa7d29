//! The table of figures: name, unit, definition, and how to read each off a summary.

use serde_json::Number;

use super::format;
use super::summary::{Quantiles, RunSummary};
use crate::statistics::Interval;

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
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Its path in `summary.json`, for example `hit_rate` or `ttft_ms.p50`; also its name in asserts and its column in
    /// `summary.csv`.
    pub name: &'static str,
    /// Its unit; empty for counts and shares.
    pub unit: &'static str,
    /// Which direction is an improvement.
    pub better: Better,
    /// What it means, in one sentence; the figures of one distribution share it.
    pub definition: &'static str,
    get: Get,
}

/// How a figure is read off a summary.
#[derive(Debug, Clone, Copy)]
enum Get {
    Alone(fn(&RunSummary) -> Option<Number>),
    OfDistribution(fn(&RunSummary) -> &Quantiles, fn(&Quantiles) -> Option<f64>),
}

impl Metric {
    /// The metric of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        METRICS.iter().find(|metric| metric.name == name)
    }

    /// The figure as a number that prints as it does in `summary.json`; `None` where it was not measured.
    #[must_use]
    pub fn number(&self, summary: &RunSummary) -> Option<Number> {
        match self.get {
            Get::Alone(get) => get(summary),
            Get::OfDistribution(distribution, figure) => figure(distribution(summary)).and_then(real),
        }
    }

    /// The figure; `None` where it was not measured.
    #[must_use]
    pub fn value(&self, summary: &RunSummary) -> Option<f64> {
        self.number(summary)?.as_f64()
    }

    /// A value of this figure as it reads in tables and charts, which name the unit elsewhere.
    pub(super) fn cell(&self, value: f64) -> String {
        format::cell(value, self.unit)
    }

    /// The middle of an interval of this figure and how far it reaches, both as [`Self::cell`] reads.
    pub(super) fn around(&self, interval: Interval) -> (String, String) {
        let middle = f64::midpoint(interval.low, interval.high);
        (self.cell(middle), self.cell((interval.high - interval.low) / 2.0))
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
    Metric { name, unit, better, definition, get: Get::Alone(get) }
}

/// The four figures of a distribution in milliseconds; `names` are those of its mean, p50, p90 and p99.
const fn distribution(
    names: [&'static str; 4],
    get: fn(&RunSummary) -> &Quantiles,
    definition: &'static str,
) -> [Metric; 4] {
    let [mean, p50, p90, p99] = names;
    [
        of_distribution(mean, get, |q| q.mean, definition),
        of_distribution(p50, get, |q| q.p50, definition),
        of_distribution(p90, get, |q| q.p90, definition),
        of_distribution(p99, get, |q| q.p99, definition),
    ]
}

const fn of_distribution(
    name: &'static str,
    get: fn(&RunSummary) -> &Quantiles,
    figure: fn(&Quantiles) -> Option<f64>,
    definition: &'static str,
) -> Metric {
    let get = Get::OfDistribution(get, figure);
    Metric { name, unit: "ms", better: Better::Lower, definition, get }
}

use Better::{Higher, Lower, Neither};

/// Every figure of a run, in the order of `summary.json`.
pub const METRICS: &[Metric] = &joined::<{ length(PARTS) }>(PARTS);

const PARTS: &[&[Metric]] = &[
    TOTALS,
    &distribution(
        ["ttft_ms.mean", "ttft_ms.p50", "ttft_ms.p90", "ttft_ms.p99"],
        |s| &s.ttft_ms,
        "Time to first token, from the intended send.",
    ),
    &distribution(
        ["tpot_ms.mean", "tpot_ms.p50", "tpot_ms.p90", "tpot_ms.p99"],
        |s| &s.tpot_ms,
        "Time per output token after the first, one mean per request; replies of one token have none.",
    ),
    &distribution(
        ["itl_ms.mean", "itl_ms.p50", "itl_ms.p90", "itl_ms.p99"],
        |s| &s.itl_ms,
        "Gap between consecutive tokens at the client, over all gaps of the requests that succeeded. Live tokens that come in one SSE frame share its gap evenly, so a live figure with stream_interval > 1 is smoothed.",
    ),
    &distribution(
        ["e2e_ms.mean", "e2e_ms.p50", "e2e_ms.p90", "e2e_ms.p99"],
        |s| &s.e2e_ms,
        "Intended send to last byte.",
    ),
    OUTCOMES,
    &distribution(
        ["send_lag_ms.mean", "send_lag_ms.p50", "send_lag_ms.p90", "send_lag_ms.p99"],
        |s| &s.send_lag_ms,
        "Intended send to actual send: how far the generator was behind its schedule. Part of ttft_ms and e2e_ms.",
    ),
    &distribution(
        ["service_ttft_ms.mean", "service_ttft_ms.p50", "service_ttft_ms.p90", "service_ttft_ms.p99"],
        |s| &s.service_ttft_ms,
        "Time to first token, from the actual send: what the cluster took, without the generator's lag.",
    ),
    MEMORY,
    &distribution(
        ["router_ms.mean", "router_ms.p50", "router_ms.p90", "router_ms.p99"],
        |s| &s.router_ms,
        "What of service_ttft_ms the engine did not take, by its own clock: router, network, and this client; live only.",
    ),
];

const TOTALS: &[Metric] = &[
    row("requests", "", Neither, |s| count(s.requests), "Requests of the run, failed ones too."),
    row(
        "failed",
        "",
        Lower,
        |s| count(s.failed),
        "Requests that were not answered in full. They count in no latency, token total or rate, and miss every objective.",
    ),
    row(
        "left",
        "",
        Neither,
        |s| count(s.left),
        "Requests whose client left before it had its answer. Nobody failed them: they count neither as failed nor against the objectives.",
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
        "What the router believed when it booked, Σ predicted / Σ prompt tokens over the requests it had a belief about. Its distance from the hit rate is how stale the router's picture is; replies to earlier turns, which engines keep and the router learns of with the next prompt, are not in it.",
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
];

const OUTCOMES: &[Metric] = &[
    row(
        "slo_attainment",
        "share",
        Higher,
        |s| s.slo_attainment.and_then(real),
        "Share of the requests whose client stayed that met both objectives of [slo]; a one-token reply meets the TPOT one, failed requests miss.",
    ),
    row(
        "imbalance",
        "×",
        Lower,
        |s| s.imbalance.and_then(real),
        "Busiest worker over the mean of all workers, in prompt + output tokens of successful requests; 1.0 is perfect. Where prefill and decode are apart: over the mean of its role, in prompt or in output tokens, of the role that is worse.",
    ),
    row(
        "router_cpu_us_per_request",
        "µs",
        Lower,
        |s| s.router_cpu_us_per_request.and_then(real),
        "CPU time of the router process per request, user and system; live only.",
    ),
];

const MEMORY: &[Metric] = &[row(
    "router_peak_rss_mb",
    "MB",
    Lower,
    |s| s.router_peak_rss_mb.and_then(real),
    "The most memory that the router's processes held, in millions of bytes; live only.",
)];

/// How many metrics some parts have together.
const fn length(parts: &[&[Metric]]) -> usize {
    let (mut length, mut part) = (0, 0);
    while part < parts.len() {
        length += parts[part].len();
        part += 1;
    }
    length
}

/// The `N` metrics of some parts, one after the other.
const fn joined<const N: usize>(parts: &[&[Metric]]) -> [Metric; N] {
    let mut all = [parts[0][0]; N];
    let (mut to, mut part) = (0, 0);
    while part < parts.len() {
        let mut from = 0;
        while from < parts[part].len() {
            all[to] = parts[part][from];
            (to, from) = (to + 1, from + 1);
        }
        part += 1;
    }
    all
}

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
    fn names_are_paths_and_nothing_else() {
        assert_eq!(Metric::named("ttft_ms.p50").map(|m| m.name), Some("ttft_ms.p50"));
        assert_eq!(Metric::named("hit_rate").map(|m| m.name), Some("hit_rate"));
        for unknown in ["ttft_ms_p50", "ttft_ms", "speed"] {
            assert!(Metric::named(unknown).is_none(), "{unknown}");
        }
    }

    #[test]
    fn a_figure_is_the_one_of_the_summary() {
        let only = record(0).tokens(100, 30, 11).sent_ms(1, 4).first_ms(9).last_ms(29).worker(0).build();
        let summary = RunSummary::of(&run("random", vec![only]), None);
        let fields = serde_json::to_value(&summary).unwrap();
        for metric in METRICS {
            let path = format!("/{}", metric.name.replace('.', "/"));
            let number = metric.number(&summary).map_or(serde_json::Value::Null, Into::into);
            assert_eq!(fields.pointer(&path), Some(&number), "{}", metric.name);
        }
    }
}
