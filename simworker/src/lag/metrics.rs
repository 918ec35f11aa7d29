//! The lag as Prometheus series, and the engine's own latencies to compare a client's with.

use super::LagReport;
use crate::exposition::{describe, histogram, sample, sums};
use crate::latency::{Histogram, Latencies};
use crate::quantiles::Quantiles;

/// The quantiles that are shown.
const SHARES: [f64; 3] = [0.5, 0.9, 0.99];

/// Appends the series of the worker at this place of its host.
pub(crate) fn render(index: u32, lag: &LagReport, latencies: &Latencies, text: &mut String) {
    let label = format!("worker=\"{index}\"");
    let steps = "From a step's end in engine time to its readers being told, in real time.";
    buckets("simworker_pacer_lag_seconds", steps, &label, &lag.steps, text);
    let frames = "From the engine time of a frame that was waited for to its connection, in real time.";
    buckets("simworker_frame_lag_seconds", frames, &label, &lag.frames, text);
    let is_saturated = if lag.is_saturated { 1.0 } else { 0.0 };
    let help =
        "1 when the last second was late: a median lag above 2 ms and 3 % of the time between two tokens.";
    single("simworker_saturated", "gauge", help, &label, is_saturated, text);
    let seconds = lag.saturated_ns as f64 / 1e9;
    single("simworker_saturated_seconds_total", "counter", "Real time that was late.", &label, seconds, text);
    let first = "From arrival to the first token of streams, in engine time, within half a percent.";
    summary("simworker_time_to_first_token_seconds", first, &label, &latencies.exact_first_token, text);
    let inter = "From one token to the next, in engine time, within half a percent.";
    summary("simworker_inter_token_seconds", inter, &label, &latencies.exact_inter_token, text);
}

fn single(name: &str, kind: &str, help: &str, label: &str, value: f64, text: &mut String) {
    describe(text, name, kind, help);
    sample(text, name, label, value);
}

fn buckets(name: &str, help: &str, label: &str, all: &Histogram, text: &mut String) {
    describe(text, name, "histogram", help);
    histogram(text, name, label, all);
}

fn summary(name: &str, help: &str, label: &str, quantiles: &Quantiles, text: &mut String) {
    describe(text, name, "summary", help);
    for share in SHARES {
        let value = quantiles.at(share).map_or(f64::NAN, |ns| ns as f64 / 1e9);
        sample(text, name, &format!("{label},quantile=\"{share}\""), value);
    }
    sums(text, name, label, quantiles.sum_s(), quantiles.count());
}
