//! `report.html`: one file that explains an experiment without network or scripts.
//!
//! Each section is a module that turns the experiment into plain facts, and a template that turns the facts into
//! markup; templates escape everything they are given. Charts with axes are drawn by plotters, the others by hand;
//! colours are classes, so that one drawing serves light, dark and print.

mod bars;
mod cache;
mod curves;
mod heat;
mod lines;
mod load;
mod policies;
mod reasons;
mod scenario;
mod sweep;
mod template;
mod verdict;
mod view;

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
}

/// The whole page.
///
/// # Errors
/// If a template does not fit its facts, which is a defect of this crate.
pub(super) fn render(experiment: &Experiment) -> Result<String, Error> {
    let view = View::of(experiment);
    let mut sections = Vec::new();
    let mut add = |id, title, body: Option<Value>| {
        if let Some(body) = body {
            sections.push(Section { id, title, body });
        }
    };
    add("sweep", "Swept settings", sweep::section(&view)?);
    add("policies", "Policies compared", policies::section(&view)?);
    add("latency", "Latency", curves::section(&view)?);
    add("cache", "Cache over time and by prefix group", cache::section(&view)?);
    add("load", "Load per worker", load::section(&view)?);
    add("reasons", "Why the router decided", reasons::section(&view)?);
    add("scenario", "Scenario", scenario::section(&view)?);
    add("definitions", "What the numbers mean", scenario::definitions()?);
    let page = Page {
        name: &experiment.about().name,
        style: Value::from_safe_string(include_str!("../templates/style.css").to_owned()),
        palette: Value::from_safe_string(view::palette_css()),
        verdict: verdict::section(&view)?,
        sections,
    };
    Ok(fill("page.html", include_str!("../templates/page.html"), page)?.to_string())
}

#[derive(Serialize)]
struct Page<'a> {
    name: &'a str,
    style: Value,
    palette: Value,
    verdict: Value,
    sections: Vec<Section>,
}
