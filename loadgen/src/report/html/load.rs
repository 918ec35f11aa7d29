//! The workers over time: a small panel for every setting that is drawn, and of it for every role, for a mean over roles would
//! mean nothing. The panels of one figure are on the same axes.

use minijinja::{Error, Value};
use serde::Serialize;

use super::super::format::{grouped, trimmed};
use super::super::variant::Variant;
use super::template::{fill, markup};
use super::timeline::{Levels, Scale};
use super::view::View;
use crate::run::{EngineSample, Run, World};
use crate::scenario::Pool;

#[derive(Serialize)]
struct Facts {
    worlds: Vec<Panels>,
}

/// One figure of all workers in one world.
#[derive(Serialize)]
struct Panels {
    title: String,
    text: &'static str,
    note: String,
    top: String,
    end: String,
    /// How panels stand beside one another: those of two roles in pairs.
    grid: &'static str,
    panels: Vec<Panel>,
}

#[derive(Serialize)]
struct Panel {
    name: String,
    caption: String,
    chart: Value,
}

/// What is drawn of every worker.
struct Measure {
    title: &'static str,
    text: &'static str,
    /// The end of "peaks from 3 to 7 …".
    what: &'static str,
    levels: fn(&Run) -> Option<Levels>,
    /// The roles that have it.
    of: fn(&Pool) -> bool,
    level: fn(f64) -> String,
    /// The top of the axis where it is not the highest level.
    top: Option<f64>,
}

const MEASURES: [Measure; 4] = [
    Measure {
        title: "In flight",
        text: "Requests on each worker from send to last byte. Lines that keep together are an even load.",
        what: "in flight",
        levels: in_flight,
        of: |_| true,
        level: grouped,
        top: None,
    },
    Measure {
        title: "Queued prefill",
        text: "Prompt tokens that wait on each worker to be computed, as its engine estimates them: what a new request \
               waits behind.",
        what: "tokens",
        levels: |run| of_engines(run, |sample| sample.queued_tokens as f64),
        of: Pool::computes,
        level: grouped,
        top: None,
    },
    Measure {
        title: "Cache fill",
        text: "The share of each worker's KV that holds something, needed or only cached. At the top a new token costs an \
               old one.",
        what: "% of the KV",
        levels: |run| of_engines(run, |sample| sample.fill),
        of: |_| true,
        level: |share| trimmed(share * 100.0, 0),
        top: Some(1.0),
    },
    Measure {
        title: "Evictions",
        text: "Tokens that each worker's cache gave up per second.",
        what: "tokens/s",
        levels: evictions,
        of: |_| true,
        level: grouped,
        top: None,
    },
];

pub(super) fn section(view: &View<'_>) -> Result<Option<Value>, Error> {
    let worlds: Vec<Panels> = view
        .worlds()
        .into_iter()
        .flat_map(|world| MEASURES.iter().filter_map(move |measure| panels(view, world, measure)))
        .collect();
    if worlds.is_empty() {
        return Ok(None);
    }
    fill("load.html", include_str!("../templates/load.html"), Facts { worlds }).map(Some)
}

fn in_flight(run: &Run) -> Option<Levels> {
    let samples = run.load.samples.iter().map(|row| row.iter().map(|count| f64::from(*count)).collect());
    (!run.load.samples.is_empty())
        .then(|| Levels { interval_ns: run.load.interval_ns, samples: samples.collect() })
}

fn of_engines(run: &Run, level: fn(&EngineSample) -> f64) -> Option<Levels> {
    let samples = run.engines.samples.iter().map(|row| row.iter().map(level).collect());
    (!run.engines.samples.is_empty())
        .then(|| Levels { interval_ns: run.engines.interval_ns, samples: samples.collect() })
}

/// Per second, between each moment and the one before.
fn evictions(run: &Run) -> Option<Levels> {
    let sums = of_engines(run, |sample| sample.evicted_tokens as f64)?;
    let seconds = sums.interval_ns as f64 / 1e9;
    let first = vec![0.0; sums.samples.first().map_or(0, Vec::len)];
    let rate = |pair: &[Vec<f64>]| pair[0].iter().zip(&pair[1]).map(|(a, b)| (b - a) / seconds).collect();
    let samples = [first].into_iter().chain(sums.samples.windows(2).map(rate)).collect();
    Some(Levels { interval_ns: sums.interval_ns, samples })
}

fn panels(view: &View<'_>, world: World, measure: &Measure) -> Option<Panels> {
    let shown: Vec<(&Variant<'_>, Levels)> =
        view.shown(world).into_iter().filter_map(|v| Some((v, (measure.levels)(view.typical(v))?))).collect();
    let peak =
        shown.iter().filter_map(|(_, levels)| levels.peak()).reduce(f64::max).filter(|top| *top > 0.0)?;
    let end_ns = shown.iter().map(|(_, levels)| levels.duration_ns()).max()?;
    let scale = Scale { top: measure.top.unwrap_or(peak), end_ns };
    let of_variant = |(variant, levels): &(&Variant<'_>, Levels)| -> Vec<Panel> {
        let (name, colour) = (view.name(variant), view.colour(variant));
        let pools = &view.typical(variant).pools;
        let panel = |pool: &Pool| {
            let levels = levels.of_pool(pool);
            let role = if pools.len() > 1 { format!(": {} workers", pool.word()) } else { String::new() };
            let (name, caption) = (format!("{name}{role}"), caption(&levels, measure));
            let title = format!("{name}: {} per worker over time", measure.title.to_lowercase());
            Panel { chart: markup(levels.svg(colour, scale, &title, &caption)), name, caption }
        };
        pools.iter().filter(|pool| (measure.of)(pool)).map(panel).collect()
    };
    Some(Panels {
        title: format!("{}, {}", measure.title, world.label()),
        text: measure.text,
        note: view.caveat(world),
        top: (measure.level)(scale.top) + if measure.top.is_some() { " %" } else { "" },
        end: format!("{} s", trimmed(end_ns as f64 / 1e9, 1)),
        grid: if shown.iter().any(|(v, _)| view.typical(v).pools.len() == 2) { "two" } else { "many" },
        panels: shown.iter().flat_map(of_variant).collect(),
    })
}

fn caption(levels: &Levels, measure: &Measure) -> String {
    let Some((low, high)) = levels.peaks() else { return String::new() };
    let (low, high) = ((measure.level)(low), (measure.level)(high));
    match low == high {
        true => format!("peak of {high} {} on each worker", measure.what),
        false => format!("peaks from {low} to {high} {} per worker", measure.what),
    }
}
