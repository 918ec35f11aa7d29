//! Horizontal bars, one per variant, with whiskers from the lowest to the highest seed.
//!
//! Names and figures are text beside the bar, so that they keep their size on any screen.

use minijinja::{Error, Value};
use serde::Serialize;

use super::super::best::best_text;
use super::super::metric::Metric;
use super::policies::range;
use super::template::fill;
use super::view::View;
use crate::run::World;

#[derive(Serialize)]
struct Chart {
    title: &'static str,
    unit: &'static str,
    ranged: bool,
    bars: Vec<Bar>,
}

#[derive(Serialize)]
struct Bar {
    colour: usize,
    name: String,
    params: String,
    figure: String,
    range: String,
    best: bool,
    /// Per mille of the axis: the bar's end, and both ends of the whisker.
    end: u32,
    low: u32,
    high: u32,
}

/// The bars of one metric. Shares are drawn on 0–100 %, everything else from 0 to the highest seed.
pub(super) fn bars(
    view: &View<'_>,
    world: World,
    title: &'static str,
    unit: &'static str,
    metric: &str,
) -> Result<Value, Error> {
    let Some(metric) = Metric::named(metric) else { return Ok(Value::from("")) };
    let rows = view.tabled(world);
    let spreads = || rows.iter().filter_map(|v| Some((*v, v.spread(metric)?)));
    let top = if metric.unit == "share" { 1.0 } else { spreads().map(|(_, s)| s.max).fold(0.0, f64::max) };
    let place = |value: f64| if top > 0.0 { (value / top * 1000.0).round() as u32 } else { 0 };
    let bars: Vec<Bar> = spreads()
        .map(|(variant, spread)| Bar {
            colour: view.colour(variant),
            name: variant.policy.to_owned(),
            params: view.distinction(variant),
            figure: metric.cell(spread.median),
            range: range(spread, metric),
            best: best_text(&rows, variant, metric) == Some(metric.cell(spread.median)),
            end: place(spread.median),
            low: place(spread.min),
            high: place(spread.max),
        })
        .collect();
    let ranged = bars.iter().any(|b| b.low != b.high);
    fill("bars.html", include_str!("../templates/bars.html"), Chart { title, unit, ranged, bars })
}
