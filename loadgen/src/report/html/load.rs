//! Requests in flight per worker over time: a small panel for every setting that is drawn, and of it for every role,
//! for a mean over roles would mean nothing. All are on the same axes.

use minijinja::{Error, Value};
use serde::Serialize;

use super::super::format::trimmed;
use super::super::variant::Variant;
use super::template::{escape, fill, markup};
use super::view::View;
use crate::run::{LoadTimeline, World};
use crate::scenario::Pool;

/// Most moments a line is drawn through, and most workers drawn as lines of their own.
const MAX_MOMENTS: usize = 120;
const MAX_LINES: usize = 16;

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 160.0;

#[derive(Serialize)]
struct Facts {
    worlds: Vec<Panels>,
}

#[derive(Serialize)]
struct Panels {
    world: &'static str,
    note: String,
    top: u32,
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

pub(super) fn section(view: &View<'_>) -> Result<Option<Value>, Error> {
    let worlds: Vec<Panels> = view.worlds().into_iter().filter_map(|world| panels(view, world)).collect();
    if worlds.is_empty() {
        return Ok(None);
    }
    fill("load.html", include_str!("../templates/load.html"), Facts { worlds }).map(Some)
}

fn panels(view: &View<'_>, world: World) -> Option<Panels> {
    let shown: Vec<(&Variant<'_>, &LoadTimeline)> =
        view.shown(world).into_iter().map(|v| (v, &view.typical(v).load)).collect();
    let top = shown.iter().filter_map(|(_, load)| peak(load)).max().filter(|top| *top > 0)?;
    let end_ns = shown.iter().map(|(_, load)| duration_ns(load)).max()?;
    let of_variant = |(variant, load): &(&Variant<'_>, &LoadTimeline)| -> Vec<Panel> {
        let (name, colour) = (view.name(variant), view.colour(variant));
        let pools = &view.typical(variant).pools;
        let panel = |pool: &Pool| {
            let load = of_pool(load, pool);
            let role = if pools.len() > 1 { format!(": {} workers", pool.word()) } else { String::new() };
            let (name, caption) = (format!("{name}{role}"), caption(&load));
            Panel { chart: markup(svg(&load, colour, top, end_ns, &name, &caption)), name, caption }
        };
        pools.iter().map(panel).collect()
    };
    Some(Panels {
        world: world.label(),
        note: view.caveat(world),
        top,
        end: format!("{} s", trimmed(end_ns as f64 / 1e9, 1)),
        grid: if shown.iter().any(|(v, _)| view.typical(v).pools.len() == 2) { "two" } else { "many" },
        panels: shown.iter().flat_map(of_variant).collect(),
    })
}

/// The load of the workers of one role.
fn of_pool(load: &LoadTimeline, pool: &Pool) -> LoadTimeline {
    let places = pool.places.start as usize..pool.places.end as usize;
    let samples =
        load.samples.iter().map(|row| row.get(places.clone()).unwrap_or_default().to_vec()).collect();
    LoadTimeline { interval_ns: load.interval_ns, samples }
}

fn peak(load: &LoadTimeline) -> Option<u32> {
    load.samples.iter().flatten().max().copied()
}

fn duration_ns(load: &LoadTimeline) -> u64 {
    load.interval_ns * load.samples.len().saturating_sub(1) as u64
}

fn caption(load: &LoadTimeline) -> String {
    let workers = load.samples.first().map_or(0, Vec::len);
    let peaks: Vec<u32> = (0..workers)
        .filter_map(|w| load.samples.iter().map(|row| row.get(w).copied().unwrap_or(0)).max())
        .collect();
    match (peaks.iter().min(), peaks.iter().max()) {
        (Some(low), Some(high)) => format!("peaks from {low} to {high} in flight per worker"),
        _ => String::new(),
    }
}

/// Lines of single workers under a bold mean; with many workers, the range they span instead.
fn svg(load: &LoadTimeline, colour: usize, top: u32, end_ns: u64, name: &str, caption: &str) -> String {
    let stride = load.samples.len().div_ceil(MAX_MOMENTS).max(1);
    let moments: Vec<(f64, &Vec<u32>)> = load
        .samples
        .iter()
        .enumerate()
        .step_by(stride)
        .map(|(i, row)| ((i as u64 * load.interval_ns) as f64 / end_ns.max(1) as f64 * WIDTH, row))
        .collect();
    let y = |level: f64| HEIGHT - level / f64::from(top.max(1)) * HEIGHT;
    let along = |level: &dyn Fn(&[u32]) -> f64| -> String {
        moments.iter().map(|(x, row)| format!("{} {} ", trimmed(*x, 1), trimmed(y(level(row)), 1))).collect()
    };
    let workers = load.samples.first().map_or(0, Vec::len);
    let mut shapes = String::new();
    if workers <= MAX_LINES {
        for worker in 0..workers {
            let points = along(&|row| row.get(worker).copied().map_or(0.0, f64::from));
            shapes
                .push_str(&format!("<polyline class=\"thin s{colour}\" points=\"{}\"/>", points.trim_end()));
        }
    } else {
        let upper = along(&|row| row.iter().max().copied().map_or(0.0, f64::from));
        let lower = along(&|row| row.iter().min().copied().map_or(0.0, f64::from));
        let back: Vec<&str> = lower.split_whitespace().collect();
        let back: Vec<String> = back.chunks(2).rev().map(|pair| pair.join(" ")).collect();
        shapes.push_str(&format!("<polygon class=\"band f{colour}\" points=\"{upper}{}\"/>", back.join(" ")));
    }
    let mean = along(&|row| f64::from(row.iter().sum::<u32>()) / row.len().max(1) as f64);
    format!(
        "<svg class=\"load\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\">\
         <title>{}</title><desc>{}</desc>{shapes}<polyline class=\"mean\" points=\"{}\"/></svg>",
        escape(&format!("{name}: requests in flight per worker over time")),
        escape(caption),
        mean.trim_end()
    )
}
