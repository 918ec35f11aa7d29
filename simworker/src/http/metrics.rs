//! `/metrics`: SGLang's names, types and labels (`metrics_collector.py`), as far as an engine without GPUs can fill
//! them.

mod answers;
mod histograms;
mod labels;
mod queues;
mod rows;
mod tier;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::header::CONTENT_TYPE;

use crate::config::WorkerConfig;
use crate::exposition::sample;
use crate::lag;
use crate::worker::{FullReport, RankReport, Worker};
use labels::Labels;
use rows::{Kind, ROWS, Row, Source};

/// The content type of Prometheus' text format.
pub(super) const CONTENT_TYPE_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The route.
pub(super) fn routes(config: &WorkerConfig) -> Router<Arc<Worker>> {
    if config.wire.enable_metrics { Router::new().route("/metrics", get(metrics)) } else { Router::new() }
}

async fn metrics(State(worker): State<Arc<Worker>>) -> Response {
    let report = worker.full_report();
    let config = &worker.config;
    let labels = Labels::of(config);
    let mut text = String::with_capacity(ROWS.len() * 200 * report.ranks.len());
    render(&report, config, &labels, &mut text);
    answers::render(&report.tally, &labels, &mut text);
    histograms::render(&report, config.engine.role, &labels, &mut text);
    lag::render(worker.index(), &worker.lag.report(), &report.latencies, &mut text);
    ([(CONTENT_TYPE, CONTENT_TYPE_TEXT)], text).into_response()
}

/// The lines before the samples of one of SGLang's names.
fn describe(text: &mut String, name: &str, kind: &str, help: &str) {
    crate::exposition::describe(text, &format!("sglang:{name}"), kind, help);
}

fn render(report: &FullReport, config: &WorkerConfig, labels: &Labels, text: &mut String) {
    let FullReport { ranks, up_ns, is_paused, .. } = report;
    let mut described = "";
    let of_tier = config.engine.host_tier.is_some().then_some(tier::ROWS);
    for row in ROWS.iter().chain(of_tier.into_iter().flatten()) {
        let Row { name, kind, labels: own, help, value } = row;
        if described != *name {
            let word = if matches!(kind, Kind::SchedulerGauge) { "gauge" } else { "counter" };
            describe(text, name, word, help);
            described = name;
        }
        let source = |rank: &RankReport| {
            let RankReport { loads, totals, idle_ns, .. } = *rank;
            value(&Source { loads, totals, config, up_ns: *up_ns, idle_ns, is_paused: *is_paused })
        };
        let (full, values) = (format!("sglang:{name}"), ranks.iter().map(source));
        if matches!(kind, Kind::TokenizerCounter) {
            sample(text, &full, &format!("{}{own}", labels.tokenizer(None)), values.sum());
            continue;
        }
        for ((rank, value), counted) in (0..).zip(values).zip(ranks) {
            sample(text, &full, &format!("{}{own}", labels.rank(rank, "")), value);
            queues::by_priority(name, rank, counted, labels, text);
        }
    }
}
