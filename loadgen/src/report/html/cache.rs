//! The cache at work: hit rate over time, and which worker serves which prefix group.

use minijinja::{Error, Value};
use protocol::record::RequestRecord;
use serde::Serialize;

use super::super::best::is_best;
use super::super::summary::{by_arrival, hit_rate};
use super::curves::Figure;
use super::heat::{Map, map};
use super::lines::{Axis, Chart, Line};
use super::template::{fill, markup};
use super::view::View;
use crate::run::{Run, World};

/// How many windows a run is cut into, and how few requests a window may have.
const WINDOWS: usize = 48;
const WINDOW_MIN: usize = 16;

#[derive(Serialize)]
struct Facts {
    figures: Vec<Figure>,
    maps: Vec<Maps>,
}

#[derive(Serialize)]
struct Maps {
    world: &'static str,
    note: String,
    maps: Vec<Map>,
}

pub(super) fn section(view: &View<'_>) -> Result<Option<Value>, Error> {
    let worlds = view.worlds();
    let figures: Vec<Figure> = worlds.iter().filter_map(|world| over_time(view, *world)).collect();
    let maps: Vec<Maps> = worlds
        .iter()
        .map(|world| Maps {
            world: world.label(),
            note: view.caveat(*world),
            maps: view.shown(*world).into_iter().filter_map(|v| map(view, v)).collect(),
        })
        .filter(|maps| !maps.maps.is_empty())
        .collect();
    if figures.is_empty() && maps.is_empty() {
        return Ok(None);
    }
    fill("cache.html", include_str!("../templates/cache.html"), Facts { figures, maps }).map(Some)
}

fn over_time(view: &View<'_>, world: World) -> Option<Figure> {
    let shown = view.shown(world);
    let lines: Vec<Line> = shown
        .iter()
        .map(|variant| Line {
            colour: view.colour(variant),
            bold: is_best(&view.variants, variant),
            points: windows(view.typical(variant)),
            marks: Vec::new(),
        })
        .collect();
    let end = lines.iter().filter_map(|l| l.points.last()).map(|p| p.0).reduce(f64::max)?;
    let size = shown.first().map_or(0, |v| window_size(view.typical(v).records.len()));
    let title = format!("Hit rate over time, {}", world.label());
    let ends = shown.iter().zip(&lines).filter_map(|(variant, line)| {
        let (first, last) = (line.points.first()?, line.points.last()?);
        Some(format!("{}: from {:.0} % to {:.0} %", view.name(variant), first.1 * 100.0, last.1 * 100.0))
    });
    let chart = Chart {
        id: format!("hit-{}", world.label()),
        title: &title,
        description: &format!("{}.", ends.collect::<Vec<_>>().join("; ")),
        x: Axis {
            label: "time of arrival",
            tick: |s| format!("{} s", super::super::format::trimmed(s, 2)),
            range: 0.0..end.max(1e-3),
            logarithmic: false,
        },
        y: Axis::shares("hit rate"),
        guides: &[],
        edge: Vec::new(),
        lines,
    };
    let note = format!("Each point is {size} requests in order of arrival. {}", view.caveat(world));
    let key = shown.iter().map(|variant| view.key(variant)).collect();
    Some(Figure { chart: markup(chart.svg()), note, title, key })
}

fn window_size(requests: usize) -> usize {
    requests.div_ceil(WINDOWS).max(WINDOW_MIN)
}

/// Mean arrival in seconds after the first, and hit rate, of consecutive windows of equally many requests.
fn windows(run: &Run) -> Vec<(f64, f64)> {
    let start_ns = run.records.iter().map(|r| r.intended_ns).min().unwrap_or(0);
    let seconds = |r: &RequestRecord| (r.intended_ns - start_ns) as f64 / 1e9;
    let point = |window: &[&RequestRecord]| {
        let mean = window.iter().map(|r| seconds(r)).sum::<f64>() / window.len() as f64;
        let measured = window.iter().any(|r| r.succeeded() && r.prompt_tokens > 0);
        measured.then(|| (mean, hit_rate(window.iter().copied())))
    };
    by_arrival(&run.records).chunks(window_size(run.records.len())).filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{failed, record, run};

    #[test]
    fn windows_follow_arrival_and_skip_what_failed() {
        let mut records: Vec<RequestRecord> = (0..32)
            .map(|i| {
                record(i).sent_ms(1000 + 100 * i, 9000).tokens(10, if i < 16 { 0 } else { 5 }, 1).build()
            })
            .collect();
        assert_eq!(windows(&run("random", records.clone())), [(0.75, 0.0), (2.35, 0.5)]);
        for seq in 0..16 {
            records[seq as usize] = failed(seq, 1000 + 100 * seq, 9000, 503, "no worker");
        }
        assert_eq!(windows(&run("random", records)), [(2.35, 0.5)]);
        assert_eq!(windows(&run("random", vec![])), []);
    }

    #[test]
    fn a_turn_that_was_due_late_is_in_a_late_window() {
        // The second half of the plan is due before the first half.
        let due = |seq: u64| if seq < 16 { 5000 + seq } else { 1000 + seq };
        let one =
            |seq| record(seq).sent_ms(due(seq), 9000).tokens(10, if seq < 16 { 5 } else { 0 }, 1).build();
        let windows = windows(&run("random", (0..32).map(one).collect()));
        assert!(windows.len() == 2 && windows[0].0 < windows[1].0, "{windows:?}");
        assert_eq!((windows[0].1, windows[1].1), (0.0, 0.5));
    }
}
