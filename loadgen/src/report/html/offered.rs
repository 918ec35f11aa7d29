//! Latency against offered load: one line per setting that is drawn, with its knee.

use std::collections::BTreeSet;

use minijinja::{Error, Value};

use super::super::format::trimmed;
use super::super::metric::Metric;
use super::super::variant::{Variant, is_demand};
use super::curves::{Figure, figures_section, latency_axis, latency_label};
use super::lines::{Axis, Chart, Line};
use super::template::markup;
use super::view::{Key, View};
use crate::run::{Params, World};
use crate::statistics::knee::knee;

/// The keys that say how much is asked for, and what their values are called.
const LOADS: [(&str, &str); 4] = [
    ("arrival.rate", "requests/s"),
    ("arrival.concurrency", "in flight"),
    ("arrival.speedup", "× the recorded rate"),
    ("workload.speedup", "× the recorded rate"),
];

/// What is drawn over the load: title and metric.
const LATENCIES: [(&str, &str); 6] = [
    ("TTFT p50", "ttft_ms.p50"),
    ("TTFT p90", "ttft_ms.p90"),
    ("TTFT p99", "ttft_ms.p99"),
    ("ITL p90", "itl_ms.p90"),
    ("E2E p50", "e2e_ms.p50"),
    ("E2E p90", "e2e_ms.p90"),
];

/// A knee is not looked for in fewer.
const FEWEST_LOADS: usize = 5;
/// Most lines that can be told apart.
const MOST_SERIES: usize = 8;

/// A setting under every load.
struct Series<'v, 'a> {
    colour: usize,
    name: String,
    /// Ascending by load.
    variants: Vec<(f64, &'v Variant<'a>)>,
}

pub(super) fn section(view: &View<'_>) -> Result<Option<Value>, Error> {
    let figures: Vec<Figure> = view.worlds().into_iter().flat_map(|world| figures(view, world)).collect();
    let intro = "How long a request takes when more is asked for; medians over the seeds. The dot is the knee: two straight \
                 lines fit the latency best when they meet there, and much better than one line does. It is looked for \
                 where there are five loads or more. Beyond it queues grow and do not empty.";
    figures_section(intro, figures)
}

fn figures(view: &View<'_>, world: World) -> Vec<Figure> {
    let Some((key, unit)) = load_key(view, world) else { return Vec::new() };
    let series = series(view, world, key);
    LATENCIES.iter().filter_map(|latency| figure(world, &series, latency, unit)).collect()
}

/// The one key that sets the load, if it and nothing else of the demand is swept.
fn load_key(view: &View<'_>, world: World) -> Option<(&'static str, &'static str)> {
    let keys: BTreeSet<&str> = view
        .of_world(world)
        .flat_map(|v| v.params.keys())
        .map(String::as_str)
        .filter(|k| is_demand(k))
        .collect();
    let is_swept = |key: &&str| {
        let values = view.of_world(world).map(|v| v.params.get(*key).map(ToString::to_string));
        values.collect::<BTreeSet<_>>().len() > 1
    };
    let mut swept = keys.into_iter().filter(is_swept);
    let only = swept.next().filter(|_| swept.next().is_none())?;
    LOADS.into_iter().find(|(key, _)| *key == only)
}

/// The settings that charts draw, each under every load.
fn series<'v, 'a>(view: &'v View<'a>, world: World, key: &str) -> Vec<Series<'v, 'a>> {
    let drawn: Vec<String> = view.shown(world).into_iter().map(|v| view.name(v)).collect();
    let mut series: Vec<(&str, Params, Series<'_, '_>)> = Vec::new();
    for variant in view.of_world(world) {
        let Some(load) = variant.params.get(key).and_then(serde_json::Value::as_f64) else { continue };
        let name = view.name(variant);
        if !drawn.contains(&name) {
            continue;
        }
        let mut rest = variant.params.clone();
        rest.remove(key);
        let known =
            series.iter().position(|(policy, params, _)| *policy == variant.policy && *params == rest);
        match known {
            Some(place) => series[place].2.variants.push((load, variant)),
            None if series.len() < MOST_SERIES => {
                let colour = view.colour(variant);
                series.push((variant.policy, rest, Series { colour, name, variants: vec![(load, variant)] }));
            }
            None => {}
        }
    }
    let mut series: Vec<Series<'_, '_>> = series.into_iter().map(|(_, _, series)| series).collect();
    series.iter_mut().for_each(|s| s.variants.sort_by(|a, b| a.0.total_cmp(&b.0)));
    series
}

/// A line: a latency over the load, ascending, and its knee.
struct Curve<'s> {
    colour: usize,
    name: &'s str,
    points: Vec<(f64, f64)>,
    knee: Option<(f64, f64)>,
}

impl<'s> Curve<'s> {
    /// `None` where there is nothing to draw a line through.
    fn of(series: &'s Series<'_, '_>, metric: &Metric) -> Option<Self> {
        let point = |(load, variant): &(f64, &Variant<'_>)| Some((*load, variant.spread(metric)?.median));
        // There is no place for 0 on a logarithmic axis.
        let points = series.variants.iter().filter_map(point).map(|(load, ms)| (load, ms.max(1e-3)));
        let points: Vec<(f64, f64)> = points.collect();
        let knee = knee(&points).map(|knee| points[knee.at]);
        (points.len() > 1).then_some(Self { colour: series.colour, name: &series.name, points, knee })
    }

    fn line(&self) -> Line {
        let marks = self.knee.into_iter().collect();
        Line { colour: self.colour, bold: false, points: self.points.clone(), marks }
    }
}

fn figure(
    world: World,
    series: &[Series<'_, '_>],
    (name, metric): &(&str, &str),
    unit: &str,
) -> Option<Figure> {
    let metric = Metric::named(metric)?;
    let curves: Vec<Curve<'_>> = series.iter().filter_map(|series| Curve::of(series, metric)).collect();
    let all = || curves.iter().flat_map(|curve| curve.points.iter());
    let (least, most) = (all().map(|p| p.0).reduce(f64::min)?, all().map(|p| p.0).reduce(f64::max)?);
    let (low, high) = (all().map(|p| p.1).reduce(f64::min)?, all().map(|p| p.1).reduce(f64::max)?);
    let words: Vec<String> = curves.iter().map(|curve| knee_words(curve.name, curve.knee, unit)).collect();
    let title = format!("{name}, {}", world.label());
    let y_label = latency_label(name, low, high);
    let chart = Chart {
        id: format!("offered-{}-{}", name.to_lowercase().replace(' ', "-"), world.label()),
        title: &title,
        description: &format!("{}.", words.join("; ")),
        x: Axis {
            label: &format!("offered: {unit}"),
            tick: |load| trimmed(load, 2),
            range: least..most,
            logarithmic: false,
        },
        y: latency_axis(&y_label, low, high),
        guides: &[],
        edge: Vec::new(),
        lines: curves.iter().map(Curve::line).collect(),
    };
    let key = curves.iter().map(|curve| Key { colour: curve.colour, name: curve.name.to_owned() }).collect();
    Some(Figure { chart: markup(chart.svg()), note: note(&curves, &words), title, key })
}

/// Where the knees are, or why there are none.
fn note(curves: &[Curve<'_>], words: &[String]) -> String {
    let found = words.iter().zip(curves).filter(|(_, curve)| curve.knee.is_some());
    let found: Vec<&str> = found.map(|(words, _)| words.as_str()).collect();
    let loads = curves.iter().map(|curve| curve.points.len()).max().unwrap_or(0);
    match found.len() {
        0 if loads < FEWEST_LOADS => format!("{loads} loads are too few to look for a knee"),
        0 => "no knee found".to_owned(),
        _ => found.join("; "),
    }
}

fn knee_words(name: &str, at: Option<(f64, f64)>, unit: &str) -> String {
    match at {
        Some((load, ms)) => {
            format!("{name}: knee at {} {unit}, {}", trimmed(load, 2), super::super::format::duration_ms(ms))
        }
        None => format!("{name}: no knee found"),
    }
}
