//! Throughput against latency: a dot per setting, and the frontier of those that no other one beats in both.

use std::ops::Range;

use minijinja::{Error, Value};

use super::super::format::{duration_ms, grouped};
use super::super::metric::Metric;
use super::super::variant::Variant;
use super::curves::{Figure, figures_section, latency_axis, latency_label};
use super::lines::{Axis, Chart, Line};
use super::template::markup;
use super::view::{Key, View};
use crate::run::World;

/// Dots whose least figure is more than this share of the highest are drawn without the zero.
const NEAR: f64 = 0.4;

/// Most dots; the frontier is that of all settings.
const MOST_DOTS: usize = 600;
/// Most settings of the frontier that are named.
const MOST_NAMED: usize = 4;

/// A setting: its throughput in tokens per second, its latency in milliseconds.
struct Dot<'v, 'a> {
    variant: &'v Variant<'a>,
    at: (f64, f64),
}

pub(super) fn section(view: &View<'_>) -> Result<Option<Value>, Error> {
    let figures: Vec<Figure> = view
        .worlds()
        .into_iter()
        .filter(|world| is_swept(view, *world))
        .flat_map(|world| {
            [("TTFT p90", "ttft_ms.p90"), ("ITL p90", "itl_ms.p90")]
                .into_iter()
                .filter_map(move |latency| figure(view, world, latency))
        })
        .collect();
    let intro = "Each dot is a setting: how many output tokens it made per second, and how long its clients waited; \
                 medians over the seeds. Further right and further down is better. The line is the frontier: no setting \
                 has both more throughput and less latency than one that lies on it.";
    figures_section(intro, figures)
}

/// Whether a policy has several settings: a dot per policy would say no more than the table does.
fn is_swept(view: &View<'_>, world: World) -> bool {
    let mut policies: Vec<&str> = view.of_world(world).map(|v| v.policy).collect();
    let settings = policies.len();
    policies.sort_unstable();
    policies.dedup();
    settings > policies.len() && settings > 2
}

fn figure(view: &View<'_>, world: World, (name, metric): (&str, &str)) -> Option<Figure> {
    let (throughput, latency) = (Metric::named("output_tok_s")?, Metric::named(metric)?);
    let dot = |variant| -> Option<Dot<'_, '_>> {
        let variant: &Variant<'_> = variant;
        let at = (variant.spread(throughput)?.median, variant.spread(latency)?.median.max(1e-3));
        Some(Dot { variant, at })
    };
    let dots: Vec<Dot<'_, '_>> = view.of_world(world).filter_map(dot).collect();
    let most = dots.iter().map(|d| d.at.0).reduce(f64::max).filter(|most| *most > 0.0)?;
    let least = dots.iter().map(|d| d.at.0).reduce(f64::min)?;
    let low = dots.iter().map(|d| d.at.1).reduce(f64::min)?;
    let high = dots.iter().map(|d| d.at.1).reduce(f64::max)?;
    let frontier = frontier(&dots);
    let title = format!("{name} and output throughput, {}", world.label());
    let named = named(view, &dots, &frontier);
    let (lines, key) = coloured(view, &dots);
    let y_label = latency_label(name, low, high);
    let y = latency_axis(&y_label, low, high);
    let chart = Chart {
        id: format!("pareto-{}-{}", name.to_lowercase().replace(' ', "-"), world.label()),
        title: &title,
        description: &named,
        x: Axis { label: "output tok/s", tick: grouped, range: around(least, most), logarithmic: false },
        y: Axis { range: if y.logarithmic { y.range.clone() } else { around(low, high) }, ..y },
        guides: &[],
        edge: frontier.iter().map(|place| dots[*place].at).collect(),
        lines,
    };
    Some(Figure { chart: markup(chart.svg()), note: named, title, key })
}

/// The range of an axis of dots: from 0, but where they are so near one another that they would lie on a heap.
fn around(low: f64, high: f64) -> Range<f64> {
    let margin = (high - low) * 0.08;
    if low > NEAR * high && high > low { low - margin..high + margin } else { 0.0..high * 1.05 }
}

/// The places of the dots that none beats in both, from the fastest to the slowest.
fn frontier(dots: &[Dot<'_, '_>]) -> Vec<usize> {
    let points: Vec<(f64, f64)> = dots.iter().map(|dot| dot.at).collect();
    undominated(&points)
}

fn undominated(points: &[(f64, f64)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    // Most throughput first, among equals the least latency.
    order.sort_by(|a, b| points[*b].0.total_cmp(&points[*a].0).then(points[*a].1.total_cmp(&points[*b].1)));
    let mut least = f64::INFINITY;
    order.retain(|place| {
        let better = points[*place].1 < least;
        least = least.min(points[*place].1);
        better
    });
    order.reverse();
    order
}

fn named(view: &View<'_>, dots: &[Dot<'_, '_>], frontier: &[usize]) -> String {
    let word = |place: &usize| {
        let Dot { variant, at } = &dots[*place];
        format!("{} ({} tok/s, {})", view.label(variant), grouped(at.0), duration_ms(at.1))
    };
    let words: Vec<String> = frontier.iter().rev().take(MOST_NAMED).map(word).collect();
    let more = match frontier.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("On the frontier: {}{more}.", words.join("; "))
}

/// The dots by colour, and what the colours are.
fn coloured(view: &View<'_>, dots: &[Dot<'_, '_>]) -> (Vec<Line>, Vec<Key>) {
    let stride = dots.len().div_ceil(MOST_DOTS).max(1);
    let (mut lines, mut key): (Vec<Line>, Vec<Key>) = (Vec::new(), Vec::new());
    for Dot { variant, at } in dots.iter().step_by(stride) {
        let colour = view.colour(variant);
        match lines.iter_mut().find(|line| line.colour == colour) {
            Some(line) => {
                line.marks.push(*at);
                // Many settings of a policy share its colour.
                let name = view.name(variant);
                key.iter_mut()
                    .filter(|key| key.colour == colour && key.name != name)
                    .for_each(|key| key.name = variant.policy.to_owned());
            }
            None => {
                lines.push(Line { colour, marks: vec![*at], ..Line::default() });
                key.push(view.key(variant));
            }
        }
    }
    (lines, key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frontier_is_what_no_other_beats_in_both() {
        let points = [(1.0, 5.0), (2.0, 5.0), (3.0, 9.0), (3.0, 8.0), (2.5, 20.0), (0.5, 1.0)];
        assert_eq!(undominated(&points), [5, 1, 3]);
        assert!(undominated(&[]).is_empty());
    }

    #[test]
    fn dots_that_are_near_one_another_are_drawn_from_near() {
        assert_eq!(around(100.0, 1000.0), 0.0..1050.0);
        assert_eq!(around(500.0, 1000.0), 460.0..1040.0);
        assert_eq!(around(5.0, 5.0), 0.0..5.25);
    }
}
