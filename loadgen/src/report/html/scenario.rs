//! What was run, and what the numbers mean.

use minijinja::{Error, Value};
use serde::Serialize;

use super::super::metric::METRICS;
use super::template::fill;
use super::view::View;

#[derive(Serialize)]
struct Facts<'a> {
    facts: &'a [(String, String)],
    overrides: &'a [String],
    source: &'a str,
}

pub(super) fn section(view: &View<'_>) -> Result<Option<Value>, Error> {
    let about = view.experiment.about();
    let facts = Facts { facts: &about.facts, overrides: &about.overrides, source: &about.source };
    fill("scenario.html", include_str!("../templates/scenario.html"), facts).map(Some)
}

#[derive(Serialize)]
struct Definitions {
    rows: Vec<(&'static str, &'static str, &'static str)>,
}

/// One entry per figure, the four of a latency as one.
pub(super) fn definitions() -> Result<Option<Value>, Error> {
    let entry = |m: &super::super::Metric| match m.name.split_once('.') {
        None => Some((m.name, m.unit, m.definition)),
        Some((family, "mean")) => Some((family, m.unit, m.definition)),
        Some(_) => None,
    };
    let rows = METRICS.iter().filter_map(entry).collect();
    fill("definitions.html", include_str!("../templates/definitions.html"), Definitions { rows }).map(Some)
}
