//! The table of policies and the bars beside it.

use minijinja::{Error, Value};
use serde::Serialize;

use super::super::best::{baseline_policy, best_text, is_best, speedup};
use super::super::format::{duration_ms, grouped};
use super::super::metric::Metric;
use super::super::stats::Spread;
use super::super::variant::{Variant, contests};
use super::bars::bars;
use super::template::fill;
use super::view::View;
use crate::run::World;

/// A column: heading, unit, metric.
type Column = (&'static str, &'static str, &'static str);

/// What is seen at first: as many as fit beside one another on a page of 1,200 pixels.
const COLUMNS: [Column; 12] = [
    ("Input", "tok/s", "input_tok_s"),
    ("Hits", "%", "hit_rate"),
    ("TTFT p50", "ms", "ttft_ms.p50"),
    ("TTFT p90", "ms", "ttft_ms.p90"),
    ("TTFT p99", "ms", "ttft_ms.p99"),
    ("TPOT p50", "ms", "tpot_ms.p50"),
    ("ITL p99", "ms", "itl_ms.p99"),
    ("E2E p50", "ms", "e2e_ms.p50"),
    ("SLO met", "%", "slo_attainment"),
    ("Imba\u{ad}lance", "", "imbalance"),
    ("Failed", "", "failed"),
    ("Router CPU", "µs/req", "router_cpu_us_per_request"),
];

/// What a second table has, which is unfolded.
const MORE: [Column; 12] = [
    ("Output", "tok/s", "output_tok_s"),
    ("Span", "s", "makespan_s"),
    ("Hits, later half", "%", "hit_rate_last_half"),
    ("Hits, predicted", "%", "predicted_hit_rate"),
    ("TTFT mean", "ms", "ttft_ms.mean"),
    ("TPOT p99", "ms", "tpot_ms.p99"),
    ("ITL p50", "ms", "itl_ms.p50"),
    ("E2E p90", "ms", "e2e_ms.p90"),
    ("E2E p99", "ms", "e2e_ms.p99"),
    ("Router adds p50", "ms", "router_ms.p50"),
    ("Router adds p99", "ms", "router_ms.p99"),
    ("Router memory", "MB", "router_peak_rss_mb"),
];

#[derive(Serialize)]
struct Facts<'a> {
    worlds: Vec<WorldFacts<'a>>,
}

#[derive(Serialize)]
struct WorldFacts<'a> {
    world: &'static str,
    seeds: usize,
    requests: String,
    /// What is seen at first, and what is unfolded.
    tables: [Table<'a>; 2],
    /// How many there are, with those that have no row.
    settings: usize,
    /// Whether policies have rows for a few settings, and not only for the best.
    few: bool,
    /// Whether rows differ in their work, too.
    contested: bool,
    lag: Option<String>,
    bars: Vec<Value>,
}

#[derive(Serialize)]
struct Table<'a> {
    headings: Vec<Heading<'a>>,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Heading<'a> {
    title: &'a str,
    unit: &'a str,
}

#[derive(Serialize)]
struct Row {
    colour: usize,
    policy: String,
    params: String,
    champion: bool,
    default: bool,
    cells: Vec<Cell>,
}

#[derive(Default, Serialize)]
struct Cell {
    text: String,
    /// Lowest to highest over the seeds; empty for a single seed or when they agree.
    range: String,
    /// The mean over the seeds, and half the width of its interval; empty as `range`.
    mean: String,
    reach: String,
    best: bool,
    /// A count of failures above zero.
    bad: bool,
}

pub(super) fn section(view: &View<'_>) -> Result<Option<Value>, Error> {
    let worlds =
        view.worlds().into_iter().map(|world| world_facts(view, world)).collect::<Result<Vec<_>, _>>()?;
    if worlds.is_empty() {
        return Ok(None);
    }
    fill("policies.html", include_str!("../templates/policies.html"), Facts { worlds }).map(Some)
}

fn world_facts<'a>(view: &View<'a>, world: World) -> Result<WorldFacts<'a>, Error> {
    let requests = view.of_world(world).map(|v| v.requests_and_failed().0 / v.seeds().max(1) as u64).max();
    Ok(WorldFacts {
        world: world.label(),
        seeds: view.of_world(world).map(Variant::seeds).max().unwrap_or(0),
        requests: grouped(requests.unwrap_or(0) as f64),
        tables: [
            table(view, world, &COLUMNS, baseline_policy(&view.variants, world)),
            table(view, world, &MORE, None),
        ],
        settings: view.of_world(world).count(),
        few: view.tables_few(world),
        contested: contests(&view.variants, world).len() > 1,
        lag: (world == World::Live).then(|| schedule_lag(view)).flatten(),
        bars: vec![
            bars(view, world, "Input throughput", "tok/s", "input_tok_s")?,
            bars(view, world, "Hit rate", "%", "hit_rate")?,
        ],
    })
}

/// The columns that were measured, and behind the first one the throughput relative to the first policy's, if it is named.
fn table<'a>(view: &View<'a>, world: World, of: &[Column], baseline: Option<&'a str>) -> Table<'a> {
    let columns: Vec<(&Column, &'static Metric)> = of
        .iter()
        .filter_map(|column| Some((column, Metric::named(column.2)?)))
        .filter(|(_, metric)| view.of_world(world).any(|v| v.spread(metric).is_some()))
        .collect();
    let mut headings: Vec<Heading<'_>> =
        columns.iter().map(|(c, _)| Heading { title: c.0, unit: c.1 }).collect();
    if let Some(policy) = baseline {
        headings.insert(1, Heading { title: "vs.", unit: policy });
    }
    let tabled = view.tabled(world);
    let row = |variant: &&Variant<'_>| Row {
        colour: view.colour(variant),
        policy: variant.policy.to_owned(),
        params: view.distinction(variant),
        champion: is_best(&view.variants, variant),
        default: view.is_default(variant),
        cells: cells(view, &tabled, variant, &columns, baseline.is_some()),
    };
    Table { rows: tabled.iter().map(row).collect(), headings }
}

/// How late the generator sent, at its worst; `None` where nothing was measured. In virtual time it is never late.
fn schedule_lag(view: &View<'_>) -> Option<String> {
    let worst = |name| view.of_world(World::Live).filter_map(|v| v.median(name)).reduce(f64::max);
    let (p50, p99) = (worst("send_lag_ms.p50")?, worst("send_lag_ms.p99")?);
    Some(format!("p50 {}, p99 {}", duration_ms(p50), duration_ms(p99)))
}

fn cells(
    view: &View<'_>,
    rows: &[&Variant<'_>],
    variant: &Variant<'_>,
    columns: &[(&Column, &'static Metric)],
    compared: bool,
) -> Vec<Cell> {
    let mut cells: Vec<Cell> = columns
        .iter()
        .map(|(_, metric)| {
            let spread = variant.spread(metric);
            let text = spread.map_or("–".to_owned(), |s| metric.cell(s.median));
            let best = best_text(rows, variant, metric);
            let range = spread.map_or(String::new(), |s| range(s, metric));
            let bad = metric.name == "failed" && spread.is_some_and(|s| s.max > 0.0);
            let interval = if range.is_empty() || bad { None } else { variant.interval(metric) };
            let (mean, reach) = interval.map(|interval| metric.around(interval)).unwrap_or_default();
            Cell { best: best.is_some_and(|best| best == text), text, range, mean, reach, bad }
        })
        .collect();
    if compared {
        let text = speedup(&view.variants, variant).map_or("–".to_owned(), |r| format!("{r:.2}×"));
        cells.insert(1, Cell { text, ..Cell::default() });
    }
    cells
}

/// The range over seeds, when there is one to see.
pub(super) fn range(spread: Spread, metric: &Metric) -> String {
    let (low, high) = (metric.cell(spread.min), metric.cell(spread.max));
    if low == high { String::new() } else { format!("{low}\u{2009}– {high}") }
}
