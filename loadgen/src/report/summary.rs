//! The figures of one run.
//!
//! Every total and every latency is over the requests that succeeded; `requests`, `failed` and `slo_attainment` are
//! over all of them, so that a policy cannot look good by failing. What was never measured is `null`, never 0 and
//! never NaN: a latency of no requests is unknown, a hit rate of no tokens is 0.

use hdrhistogram::Histogram;
use protocol::record::RequestRecord;
use serde::{Deserialize, Serialize};

use super::stats::{quantile, ratio};
use crate::run::{Params, Run, World, has_failed, was_left};
use crate::scenario::Pool;
use crate::statistics::mean;

/// The service level objectives of a scenario, both in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slo {
    /// The longest acceptable time from the intended send to the first token.
    pub ttft_ns: u64,
    /// The longest acceptable mean time per output token after the first.
    pub tpot_ns: u64,
}

/// A latency distribution in milliseconds; all four are `null` when nothing was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// The arithmetic mean.
    pub mean: Option<f64>,
    /// The median.
    pub p50: Option<f64>,
    /// The 90th percentile.
    pub p90: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
}

/// One run in figures: the fields of `summary.json`, in its order. What each means is said in
/// [`METRICS`](super::METRICS).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each figure is defined once, by its row of METRICS")]
pub struct RunSummary {
    pub mode: World,
    pub policy: String,
    pub params: Params,
    pub seed: u64,
    pub requests: u64,
    pub failed: u64,
    pub left: u64,
    pub makespan_s: f64,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub hit_rate: f64,
    pub hit_rate_last_half: f64,
    pub predicted_hit_rate: Option<f64>,
    pub input_tok_s: f64,
    pub output_tok_s: f64,
    pub ttft_ms: Quantiles,
    pub tpot_ms: Quantiles,
    pub itl_ms: Quantiles,
    pub e2e_ms: Quantiles,
    pub slo_attainment: Option<f64>,
    pub imbalance: Option<f64>,
    pub router_cpu_us_per_request: Option<f64>,
    pub send_lag_ms: Quantiles,
    pub service_ttft_ms: Quantiles,
    #[serde(default)]
    pub router_peak_rss_mb: Option<f64>,
    #[serde(default)]
    pub router_ms: Quantiles,
    /// What people call its fleet; not a figure.
    #[serde(skip)]
    pub fleet: String,
}

impl RunSummary {
    /// The figures of a run. Without objectives there is no attainment.
    #[must_use]
    pub fn of(run: &Run, slo: Option<Slo>) -> Self {
        let records = &run.records;
        let good: Vec<&RequestRecord> = records.iter().filter(|r| r.succeeded()).collect();
        let prompt_tokens = good.iter().map(|r| r.prompt_tokens).sum();
        let output_tokens: u64 = good.iter().map(|r| r.output_tokens).sum();
        let makespan_s = makespan_ns(records) as f64 / 1e9;
        let beside = run.beside.as_ref();
        Self {
            mode: run.world,
            policy: run.router().to_owned(),
            params: run.params.clone(),
            seed: run.seed,
            requests: records.len() as u64,
            failed: records.iter().filter(|r| has_failed(r)).count() as u64,
            left: records.iter().filter(|r| was_left(r)).count() as u64,
            makespan_s,
            prompt_tokens,
            cached_tokens: good.iter().map(|r| r.cached_tokens).sum(),
            hit_rate: hit_rate(records),
            hit_rate_last_half: hit_rate(by_arrival(records).into_iter().skip(records.len() / 2)),
            predicted_hit_rate: predicted_hit_rate(&good),
            input_tok_s: ratio(prompt_tokens as f64, makespan_s),
            output_tok_s: ratio(output_tokens as f64, makespan_s),
            ttft_ms: Quantiles::of(good.iter().filter_map(|r| ttft_ns(r))),
            tpot_ms: Quantiles::of(good.iter().filter_map(|r| tpot_ns(r))),
            itl_ms: Quantiles::of_histogram(&run.itl_ns),
            e2e_ms: Quantiles::of(good.iter().map(|r| e2e_ns(r))),
            slo_attainment: slo.map(|slo| attainment(records, slo)),
            imbalance: imbalance(&good, run),
            router_cpu_us_per_request: run.router_cpu_us_per_request,
            send_lag_ms: Quantiles::of(good.iter().map(|r| send_lag_ns(r))),
            service_ttft_ms: Quantiles::of(good.iter().filter_map(|r| service_ttft_ns(r))),
            router_peak_rss_mb: beside.and_then(|b| b.router_peak_bytes).map(|bytes| bytes as f64 / 1e6),
            router_ms: beside.map_or(Quantiles::default(), |b| Quantiles::of_histogram(&b.router_ns)),
            fleet: Pool::fleet_word(&run.pools),
        }
    }
}

impl Quantiles {
    /// Exact figures of values in nanoseconds.
    fn of(values_ns: impl Iterator<Item = f64>) -> Self {
        let mut ms: Vec<f64> = values_ns.map(|ns| ns / 1e6).collect();
        ms.sort_by(f64::total_cmp);
        let at = |q| quantile(&ms, q);
        Self { mean: mean(&ms), p50: at(0.5), p90: at(0.9), p99: at(0.99) }
    }

    /// Figures of a histogram of nanoseconds, as exact as its precision (too many gaps to keep each).
    fn of_histogram(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let at = |q| Some(histogram.value_at_quantile(q) as f64 / 1e6);
        Self { mean: Some(histogram.mean() / 1e6), p50: at(0.5), p90: at(0.9), p99: at(0.99) }
    }
}

/// Intended send to first token: waiting for a late generator counts, so that an overloaded run cannot hide it.
pub(crate) fn ttft_ns(record: &RequestRecord) -> Option<f64> {
    Some(record.first_ns?.saturating_sub(record.intended_ns) as f64)
}

/// Mean gap after the first token; a reply of one token has none.
pub(crate) fn tpot_ns(record: &RequestRecord) -> Option<f64> {
    let gaps = record.output_tokens.checked_sub(1).filter(|gaps| *gaps > 0)?;
    Some(record.last_ns.saturating_sub(record.first_ns?) as f64 / gaps as f64)
}

/// Intended send to last byte.
pub(crate) fn e2e_ns(record: &RequestRecord) -> f64 {
    record.last_ns.saturating_sub(record.intended_ns) as f64
}

/// How late it was sent.
pub(super) fn send_lag_ns(record: &RequestRecord) -> f64 {
    record.sent_ns.saturating_sub(record.intended_ns) as f64
}

/// First intended send of any request to last byte of the last success.
fn makespan_ns(records: &[RequestRecord]) -> u64 {
    let start = records.iter().map(|r| r.intended_ns).min().unwrap_or(0);
    let end = records.iter().filter(|r| r.succeeded()).map(|r| r.last_ns).max().unwrap_or(start);
    end.saturating_sub(start)
}

/// First token from the actual send: waiting for a late generator does not count.
fn service_ttft_ns(record: &RequestRecord) -> Option<f64> {
    Some(record.first_ns?.saturating_sub(record.sent_ns) as f64)
}

/// Share of the prompt tokens of the requests that succeeded which came from the cache; 0 of no tokens.
#[must_use]
pub fn hit_rate<'r>(records: impl IntoIterator<Item = &'r RequestRecord>) -> f64 {
    let good = records.into_iter().filter(|r| r.succeeded());
    let (cached, prompt) = good.fold((0, 0), |(c, p), r| (c + r.cached_tokens, p + r.prompt_tokens));
    ratio(cached as f64, prompt as f64)
}

/// The requests in the order in which they were due; a plan does not know when a turn will be, which waits for an answer.
pub(super) fn by_arrival(records: &[RequestRecord]) -> Vec<&RequestRecord> {
    let mut order: Vec<&RequestRecord> = records.iter().collect();
    order.sort_by_key(|record| record.intended_ns);
    order
}

/// The hit rate the router believed in, over the requests for which it believed anything: judging it on the others too
/// would make a correct belief look wrong.
fn predicted_hit_rate(good: &[&RequestRecord]) -> Option<f64> {
    let believed = good.iter().filter_map(|r| Some((r.predicted_cached_tokens?, r.prompt_tokens)));
    let (predicted, prompt) = believed.fold(None, |sum: Option<(u64, u64)>, (p, n)| {
        let (predicted, prompt) = sum.unwrap_or_default();
        Some((predicted + p, prompt + n))
    })?;
    Some(ratio(predicted as f64, prompt as f64))
}

/// By what a request missed its objectives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missed {
    /// It has no whole answer.
    Failed,
    /// Its first token came too late.
    Ttft,
    /// Its other tokens came too slowly.
    Tpot,
}

/// By what a request missed its objectives first; `None` where it met both. A reply of one token has no gaps and meets the
/// second one; a failed request, or one that never had a first token, misses.
pub(crate) fn missed(record: &RequestRecord, slo: Slo) -> Option<Missed> {
    match ttft_ns(record).filter(|_| record.succeeded()) {
        None => Some(Missed::Failed),
        Some(ns) if ns > slo.ttft_ns as f64 => Some(Missed::Ttft),
        Some(_) => tpot_ns(record).filter(|ns| *ns > slo.tpot_ns as f64).map(|_| Missed::Tpot),
    }
}

/// Whether a request met both objectives.
pub(crate) fn met(record: &RequestRecord, slo: Slo) -> bool {
    missed(record, slo).is_none()
}

/// Share of all requests that met both objectives. One whose client left is not looked at.
fn attainment(records: &[RequestRecord], slo: Slo) -> f64 {
    let stayed = records.iter().filter(|r| !was_left(r));
    ratio(stayed.clone().filter(|r| met(r, slo)).count() as f64, stayed.count() as f64)
}

/// Busiest worker over the mean of the workers of its role, idle ones too, in the tokens that it has worked on: prompt
/// and output, or only one of them where another worker did the rest. Of several roles the most uneven one.
fn imbalance(good: &[&RequestRecord], run: &Run) -> Option<f64> {
    let mut tokens = vec![0u64; run.workers as usize];
    let mut add = |worker: Option<u32>, count: u64| {
        let Some(worker) = worker.map(|w| w as usize) else { return };
        if worker >= tokens.len() {
            tokens.resize(worker + 1, 0);
        }
        tokens[worker] += count;
    };
    for record in good {
        add(record.prefill_worker.or(record.worker), record.prompt_tokens);
        add(record.worker, record.output_tokens);
    }
    let unevenness = |pool: &Pool| {
        let pool = &tokens[pool.places.start as usize..pool.places.end as usize];
        let max = pool.iter().max().copied().filter(|max| *max > 0)?;
        Some(max as f64 * pool.len() as f64 / pool.iter().sum::<u64>() as f64)
    };
    run.pools.iter().filter_map(unevenness).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::fixture::{apart, failed, gaps, record, regular, run};

    const MS: u64 = 1_000_000;
    const SLO: Slo = Slo { ttft_ns: 100 * MS, tpot_ns: 10 * MS };

    /// Four requests on three workers, one of which fails and one of which has a single token.
    fn small() -> Run {
        let first = record(0).group(0).sent_ms(1000, 1001).first_ms(1050).last_ms(1140).worker(0);
        let second = record(1).group(1).sent_ms(1010, 1010).first_ms(1210).last_ms(1210).worker(1);
        let fourth = record(3).group(0).sent_ms(1030, 1030).first_ms(1060).last_ms(1260).worker(0);
        let mut run = run(
            "cache_aware",
            vec![
                first.tokens(100, 0, 10).predicted(0).build(),
                second.tokens(100, 40, 1).build(),
                failed(2, 1020, 9000, 503, "no worker"),
                fourth.tokens(200, 160, 11).predicted(150).build(),
            ],
        );
        run.workers = 3;
        run.pools = regular(3);
        run.seed = 7;
        run.params = Params::from([("cache_threshold".into(), json!(0.3))]);
        run.itl_ns = gaps(&[10 * MS, 20 * MS]);
        run
    }

    #[test]
    fn every_field_of_a_small_run() {
        let summary = serde_json::to_value(RunSummary::of(&small(), Some(SLO))).unwrap();
        let itl = summary["itl_ms"].clone();
        assert!((itl["p50"].as_f64().unwrap() - 10.0).abs() < 0.01, "{itl}");
        assert!((itl["p99"].as_f64().unwrap() - 20.0).abs() < 0.02, "{itl}");
        let expected = json!({
            "mode": "virtual", "policy": "cache_aware", "params": {"cache_threshold": 0.3}, "seed": 7,
            "requests": 4, "failed": 1, "left": 0,
            // 1000 ms to 1260 ms: the failure at 9000 ms does not count.
            "makespan_s": 0.26,
            "prompt_tokens": 400, "cached_tokens": 200, "hit_rate": 0.5,
            // The later half is the failed request and the last one.
            "hit_rate_last_half": 0.8,
            // (0 + 150) of (100 + 200): the second request had no prediction.
            "predicted_hit_rate": 0.5,
            "input_tok_s": 400.0 / 0.26, "output_tok_s": 22.0 / 0.26,
            // 50, 200, 30 ms from the intended send.
            "ttft_ms": {"mean": 280.0 / 3.0, "p50": 50.0, "p90": 170.0, "p99": 197.0},
            // 90 ms in 9 gaps, 200 ms in 10; the single token has none.
            "tpot_ms": {"mean": 15.0, "p50": 15.0, "p90": 19.0, "p99": 19.9},
            "itl_ms": itl,
            // 140, 200, 230 ms.
            "e2e_ms": {"mean": 190.0, "p50": 200.0, "p90": 224.0, "p99": 229.4},
            // Only the first: the second is late, the third failed, the fourth is slow per token.
            "slo_attainment": 0.25,
            // Worker 0: 110 + 211 tokens, worker 1: 101, worker 2: none.
            "imbalance": 321.0 * 3.0 / 422.0,
            "router_cpu_us_per_request": null,
            // Only the first was sent late, by 1 ms.
            "send_lag_ms": {"mean": 1.0 / 3.0, "p50": 0.0, "p90": 0.8, "p99": 0.98},
            // 49, 200, 30 ms from the actual send.
            "service_ttft_ms": {"mean": 93.0, "p50": 49.0, "p90": 169.8, "p99": 196.98},
            "router_peak_rss_mb": null,
            "router_ms": {"mean": null, "p50": null, "p90": null, "p99": null}
        });
        for (key, want) in expected.as_object().unwrap() {
            close(key, &summary[key], want);
        }
        assert_eq!(summary.as_object().unwrap().len(), expected.as_object().unwrap().len());
    }

    fn close(key: &str, got: &serde_json::Value, want: &serde_json::Value) {
        match (got.as_f64(), want.as_f64(), want.as_object()) {
            (Some(g), Some(w), _) => {
                assert!((g - w).abs() <= 1e-9 * w.abs().max(1.0), "{key}: {g} is not {w}")
            }
            (_, _, Some(fields)) => fields.iter().for_each(|(k, v)| close(&format!("{key}.{k}"), &got[k], v)),
            _ => assert_eq!(got, want, "{key}"),
        }
    }

    #[test]
    fn fields_come_in_the_documented_order() {
        let text = serde_json::to_string(&RunSummary::of(&small(), Some(SLO))).unwrap();
        let order = [
            "mode",
            "policy",
            "params",
            "seed",
            "requests",
            "failed",
            "makespan_s",
            "prompt_tokens",
            "cached_tokens",
            "hit_rate",
            "hit_rate_last_half",
            "predicted_hit_rate",
            "input_tok_s",
            "output_tok_s",
            "ttft_ms",
            "tpot_ms",
            "itl_ms",
            "e2e_ms",
            "slo_attainment",
            "imbalance",
            "router_cpu_us_per_request",
            "send_lag_ms",
            "service_ttft_ms",
            "router_peak_rss_mb",
            "router_ms",
        ];
        let places: Vec<usize> = order.iter().map(|key| text.find(&format!("\"{key}\":")).unwrap()).collect();
        assert!(places.is_sorted(), "{text}");
    }

    #[test]
    fn a_single_token_reply_meets_the_tpot_objective() {
        let only = record(0).sent_ms(0, 0).first_ms(50).last_ms(50).worker(0).tokens(10, 0, 1).build();
        let summary = RunSummary::of(&run("random", vec![only]), Some(SLO));
        assert_eq!(summary.slo_attainment, Some(1.0));
        assert_eq!(summary.tpot_ms, Quantiles::default());
    }

    #[test]
    fn empty_and_failed_runs_are_zeros_and_nulls() {
        for records in [vec![], vec![failed(0, 0, 5, 0, "refused"), failed(1, 1, 5, 503, "no worker")]] {
            let count = records.len() as u64;
            let summary = RunSummary::of(&run("random", records), Some(SLO));
            assert_eq!((summary.requests, summary.failed), (count, count));
            assert_eq!((summary.makespan_s, summary.input_tok_s, summary.hit_rate), (0.0, 0.0, 0.0));
            assert_eq!(summary.ttft_ms, Quantiles::default());
            assert_eq!((summary.imbalance, summary.predicted_hit_rate), (None, None));
            assert_eq!(summary.slo_attainment, Some(0.0));
        }
    }

    #[test]
    fn an_answer_that_breaks_off_misses_the_objectives_however_fast_it_began() {
        let mut broken = record(0).first_ms(1).last_ms(2).tokens(10, 0, 3).build();
        broken.error = "the answering worker was lost".into();
        let good = record(1).first_ms(1).last_ms(2).tokens(10, 0, 3).build();
        assert_eq!(RunSummary::of(&run("random", vec![broken, good]), Some(SLO)).slo_attainment, Some(0.5));
    }

    #[test]
    fn the_later_half_is_by_arrival_and_not_by_the_plan() {
        // The first request of the plan is a turn that was due last.
        let one = |seq, due, cached| record(seq).sent_ms(due, due).tokens(10, cached, 1).build();
        let records = vec![one(0, 900, 8), one(1, 10, 0), one(2, 20, 0), one(3, 30, 2)];
        assert_eq!(RunSummary::of(&run("random", records), None).hit_rate_last_half, 0.5);
    }

    #[test]
    fn who_left_has_neither_failed_nor_missed() {
        let mut left = small();
        left.records[2].error = crate::run::CLIENT_LEFT.into();
        let [failed, left] = [small(), left].map(|run| RunSummary::of(&run, Some(SLO)));
        assert_eq!((failed.failed, failed.left), (1, 0));
        assert_eq!((left.failed, left.left), (0, 1));
        let met = failed.slo_attainment.unwrap() * 4.0;
        assert_eq!(left.slo_attainment, Some(met / 3.0));
    }

    #[test]
    fn workers_are_compared_with_those_of_their_role() {
        // Prefill workers 0 and 1 have 200 and 100 prompt tokens, decode workers 2 and 3 have 9 and 1 output tokens.
        let request = |seq, prefill, worker, prompt, output| {
            record(seq).prefill_worker(prefill).worker(worker).tokens(prompt, 0, output).build()
        };
        let mut run = run("round_robin", vec![request(0, 0, 2, 200, 9), request(1, 1, 3, 100, 1)]);
        (run.workers, run.pools) = (4, apart(2, 2));
        assert_eq!(RunSummary::of(&run, None).imbalance, Some(9.0 / 5.0), "decode is the more uneven one");
        run.records[0].output_tokens = 1;
        assert_eq!(RunSummary::of(&run, None).imbalance, Some(200.0 / 150.0));
    }

    #[test]
    fn a_perfectly_spread_run_has_imbalance_one() {
        let records = (0..4).map(|i| record(i).worker(i as u32).tokens(10, 0, 5).build()).collect();
        let mut run = run("round_robin", records);
        run.workers = 4;
        run.pools = regular(4);
        assert_eq!(RunSummary::of(&run, None).imbalance, Some(1.0));
        assert_eq!(RunSummary::of(&run, None).slo_attainment, None);
    }
}
