//! `report.html`: one file that explains an experiment without network or scripts.
//!
//! Each section is a module that turns the experiment into plain facts, and a template that turns the facts into
//! markup; templates escape everything they are given. Charts with axes are drawn by plotters, the others by hand;
//! colours are classes, so that one drawing serves light, dark and print.

mod bars;
mod belief;
mod cache;
mod curves;
mod failures;
mod heat;
mod lines;
mod load;
mod offered;
mod pareto;
mod policies;
mod reasons;
mod scenario;
mod sweep;
mod template;
mod timeline;
mod verdict;
mod view;
mod waterfall;

#[cfg(test)]
mod section_tests;
#[cfg(test)]
mod tests;

use minijinja::{Error, Value};
use serde::Serialize;

use super::experiment::Experiment;
use template::fill;
use view::View;

/// One part of the page.
#[derive(Serialize)]
struct Section {
    id: &'static str,
    title: &'static str,
    body: Value,
    /// The files that hold what it shows.
    files: &'static [&'static str],
}

const FIGURES: &[&str] = &["summary.csv"];
const REQUESTS: &[&str] = &["requests.csv"];

/// The whole page.
///
/// # Errors
/// If a template does not fit its facts, which is a defect of this crate.
pub(super) fn render(experiment: &Experiment) -> Result<String, Error> {
    let view = View::of(experiment);
    let mut sections = Vec::new();
    let mut add = |id, title, files, body: Option<Value>| {
        if let Some(body) = body {
            sections.push(Section { id, title, body, files });
        }
    };
    add("sweep", "Swept settings", FIGURES, sweep::section(&view)?);
    add("offered", "Latency against offered load", FIGURES, offered::section(&view)?);
    add("pareto", "Throughput against latency", FIGURES, pareto::section(&view)?);
    add("policies", "Policies compared", FIGURES, policies::section(&view)?);
    add("latency", "Latency", REQUESTS, curves::section(&view)?);
    add("reach", "Where the hit rate was lost", &["reach.csv"], waterfall::section(&view)?);
    add("cache", "Cache over time and by prefix group", REQUESTS, cache::section(&view)?);
    add("belief", "Predicted and actual hits", REQUESTS, belief::section(&view)?);
    add("load", "Load per worker", &["timeseries.csv", "workers.csv"], load::section(&view)?);
    add("reasons", "Why the router decided", REQUESTS, reasons::section(&view)?);
    add("failures", "Failed requests", REQUESTS, failures::section(&view)?);
    add("scenario", "Scenario", &[], scenario::section(&view)?);
    add("definitions", "What the numbers mean", &[], scenario::definitions()?);
    let page = Page {
        name: &experiment.about().name,
        description: &experiment.about().description,
        style: Value::from_safe_string(include_str!("../templates/style.css").to_owned()),
        palette: Value::from_safe_string(view::palette_css()),
        verdict: verdict::section(&view)?,
        sections,
        keeps_requests: view.experiment.runs().iter().any(|run| !run.records.is_empty()),
    };
    Ok(fill("page.html", include_str!("../templates/page.html"), page)?.to_string())
}

#[derive(Serialize)]
struct Page<'a> {
    name: &'a str,
    /// What the scenario shows, in its own words.
    description: &'a str,
    style: Value,
    palette: Value,
    verdict: Value,
    sections: Vec<Section>,
    keeps_requests: bool,
}
