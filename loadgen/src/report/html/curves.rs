//! How TTFT, the gaps between tokens, TPOT and E2E are distributed: one curve per setting that is drawn.

use minijinja::{Error, Value};
use protocol::record::RequestRecord;
use serde::Serialize;

use super::super::best::is_best;
use super::super::format::{duration_ms, trimmed};
use super::super::stats::quantile;
use super::super::summary::{e2e_ns, tpot_ns, ttft_ns};
use super::super::variant::Variant;
use super::lines::{Axis, Chart, Line, MAX_POINTS};
use super::template::{fill, markup};
use super::view::{Key, View};
use crate::run::{Run, World};

/// Spans wider than this factor are drawn on a logarithmic axis.
const DECADES: f64 = 30.0;

/// The shares that are marked: the median and the 99th percentile.
const MARKED: [f64; 2] = [0.5, 0.99];

/// Charts side by side, each with its key and what must be said about it.
#[derive(Serialize)]
pub(super) struct Figure {
    pub(super) title: String,
    pub(super) note: String,
    pub(super) chart: Value,
    pub(super) key: Vec<Key>,
}

#[derive(Serialize)]
struct Facts {
    intro: &'static str,
    figures: Vec<Figure>,
}

pub(super) fn section(view: &View<'_>) -> Result<Option<Value>, Error> {
    let figures = view
        .worlds()
        .into_iter()
        .flat_map(|world| MEASURES.iter().filter_map(move |measure| figure(view, world, measure)));
    let figures: Vec<Figure> = figures.collect();
    let intro = "TTFT: the share of requests whose first token came within a time, counted from the intended send. ITL: \
                 the share of the gaps between tokens that were no longer; TPOT: the same of the mean gap of each request. E2E: the share of requests whose last byte came \
                 within a time, counted as TTFT is. Further left is better; a long flat end is a slow tail. The lines \
                 across, and the dots, are the median and the 99th percentile.";
    figures_section(intro, figures)
}

/// Figures under an introduction; nothing when there are none.
pub(super) fn figures_section(intro: &'static str, figures: Vec<Figure>) -> Result<Option<Value>, Error> {
    if figures.is_empty() {
        return Ok(None);
    }
    fill("figures.html", include_str!("../templates/figures.html"), Facts { intro, figures }).map(Some)
}

/// What is distributed: its name, what is counted, and its points in a run, ascending: (milliseconds, share).
struct Measure {
    name: &'static str,
    counted: &'static str,
    points: fn(&Run) -> Vec<(f64, f64)>,
}

const MEASURES: [Measure; 4] = [
    Measure { name: "TTFT", counted: "requests", points: |run| distribution(&sorted_ms(run, ttft_ns)) },
    Measure { name: "ITL", counted: "gaps between tokens", points: gaps },
    Measure { name: "TPOT", counted: "requests", points: |run| distribution(&sorted_ms(run, tpot_ns)) },
    Measure {
        name: "E2E",
        counted: "requests",
        points: |run| distribution(&sorted_ms(run, |record| Some(e2e_ns(record)))),
    },
];

fn figure(view: &View<'_>, world: World, measure: &Measure) -> Option<Figure> {
    let shown: Vec<(&Variant<'_>, Vec<(f64, f64)>)> = view
        .shown(world)
        .into_iter()
        .map(|variant| (variant, (measure.points)(view.typical(variant))))
        .filter(|(_, points)| !points.is_empty())
        .collect();
    let low = shown.iter().map(|(_, points)| points[0].0).reduce(f64::min)?;
    let high = shown.iter().map(|(_, points)| points[points.len() - 1].0).reduce(f64::max)?.max(low + 1e-3);
    let logarithmic = high > low.max(1e-3) * DECADES;
    let floor = if logarithmic { low.max(1e-3) } else { 0.0 };
    let line = |(variant, points): &(&Variant<'_>, Vec<(f64, f64)>)| {
        let points: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.max(floor), *y)).collect();
        Line {
            colour: view.colour(variant),
            bold: is_best(&view.variants, variant),
            marks: MARKED.iter().filter_map(|share| at_share(&points, *share)).collect(),
            points,
        }
    };
    let title = format!("{}, {}", measure.name, world.label());
    let axis = if logarithmic { format!("{} (logarithmic)", measure.name) } else { measure.name.to_owned() };
    let chart = Chart {
        id: format!("{}-{}", measure.name.to_lowercase(), world.label()),
        title: &title,
        description: &description(view, &shown),
        x: Axis { label: &axis, tick, range: floor..high * 1.02, logarithmic },
        y: Axis::shares(measure.counted),
        guides: &MARKED,
        edge: Vec::new(),
        lines: shown.iter().map(line).collect(),
    };
    let key = shown.iter().map(|(variant, _)| view.key(variant)).collect();
    Some(Figure { chart: markup(chart.svg()), note: view.caveat(world), title, key })
}

/// A vertical axis of latencies: logarithmic, but where they are so near one another that it would have hardly a label.
pub(super) fn latency_axis(label: &str, low_ms: f64, high_ms: f64) -> Axis<'_> {
    let logarithmic = is_wide(low_ms, high_ms);
    let range = if logarithmic { low_ms * 0.8..high_ms * 1.25 } else { 0.0..high_ms * 1.1 };
    Axis { label, tick, range, logarithmic }
}

/// The label of [`latency_axis`].
pub(super) fn latency_label(name: &str, low_ms: f64, high_ms: f64) -> String {
    if is_wide(low_ms, high_ms) { format!("{name} (log.)") } else { name.to_owned() }
}

fn is_wide(low_ms: f64, high_ms: f64) -> bool {
    high_ms > 10.0 * low_ms
}

/// A time on an axis: as short as it can be said.
fn tick(ms: f64) -> String {
    if ms >= 1000.0 { format!("{} s", trimmed(ms / 1000.0, 1)) } else { format!("{} ms", trimmed(ms, 2)) }
}

/// The first point at a share or above it.
fn at_share(points: &[(f64, f64)], share: f64) -> Option<(f64, f64)> {
    points.iter().find(|point| point.1 >= share).copied()
}

/// A latency of the requests that succeeded, ascending, in milliseconds.
fn sorted_ms(run: &Run, latency_ns: fn(&RequestRecord) -> Option<f64>) -> Vec<f64> {
    let good = run.records.iter().filter(|r| r.succeeded());
    let mut values: Vec<f64> = good.filter_map(latency_ns).map(|ns| ns / 1e6).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The points of a cumulative distribution: evenly spaced shares, both ends included, at most [`MAX_POINTS`].
fn distribution(ascending: &[f64]) -> Vec<(f64, f64)> {
    let steps = ascending.len().clamp(2, MAX_POINTS) - 1;
    let share = |i: usize| i as f64 / steps as f64;
    (0..=steps).filter_map(|i| Some((quantile(ascending, share(i))?, share(i)))).collect()
}

/// The distribution of gaps between tokens, from the histogram that was kept of them.
fn gaps(run: &Run) -> Vec<(f64, f64)> {
    if run.itl_ns.is_empty() {
        return Vec::new();
    }
    let steps = MAX_POINTS - 1;
    let share = |i: usize| i as f64 / steps as f64;
    (0..=steps).map(|i| (run.itl_ns.value_at_quantile(share(i)) as f64 / 1e6, share(i))).collect()
}

fn description(view: &View<'_>, shown: &[(&Variant<'_>, Vec<(f64, f64)>)]) -> String {
    let words = shown.iter().map(|(variant, points)| {
        let at = |q: f64| at_share(points, q).map_or(String::new(), |(ms, _)| duration_ms(ms));
        format!("{}: median {}, 99th percentile {}", view.name(variant), at(0.5), at(0.99))
    });
    format!("{}.", words.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_rise_from_the_shortest_to_the_longest() {
        let mut run = crate::report::fixture::run("random", vec![]);
        assert!(gaps(&run).is_empty());
        run.itl_ns = crate::report::fixture::gaps(&[8_000_000, 9_000_000, 9_000_000, 30_000_000]);
        let points = gaps(&run);
        let ends = [points[0], points[MAX_POINTS / 2], points[MAX_POINTS - 1]]
            .map(|(ms, share)| (ms.round(), share.round()));
        assert_eq!(ends, [(8.0, 0.0), (9.0, 1.0), (30.0, 1.0)]);
        assert!(points.is_sorted());
    }

    #[test]
    fn a_distribution_is_thinned_but_keeps_both_ends() {
        let values: Vec<f64> = (0..10_000).map(f64::from).collect();
        let points = distribution(&values);
        assert_eq!(points.len(), MAX_POINTS);
        assert_eq!((points[0], points[MAX_POINTS - 1]), ((0.0, 0.0), (9_999.0, 1.0)));
        assert_eq!(distribution(&[3.0]), [(3.0, 0.0), (3.0, 1.0)]);
    }
}
