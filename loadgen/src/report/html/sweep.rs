//! What swept settings do: a matrix when two keys vary, a list otherwise.

use minijinja::{Error, Value};
use serde::Serialize;

use super::super::best::is_best;
use super::super::metric::{Better, Metric};
use super::super::variant::{Variant, plain, short, varying};
use super::template::fill;
use super::view::View;
use crate::run::World;

/// What is shown of each setting: title and metric.
type Shown = (&'static str, &'static str);

const SHOWN: [Shown; 8] = [
    ("Hit rate, %", "hit_rate"),
    ("Input, tok/s", "input_tok_s"),
    ("TTFT p50, ms", "ttft_ms.p50"),
    ("TTFT p99, ms", "ttft_ms.p99"),
    ("TPOT p50, ms", "tpot_ms.p50"),
    ("ITL p99, ms", "itl_ms.p99"),
    ("SLO met, %", "slo_attainment"),
    ("Imbalance", "imbalance"),
];

#[derive(Serialize)]
struct Facts {
    sweeps: Vec<Sweep>,
}

#[derive(Serialize)]
struct Sweep {
    world: &'static str,
    policy: String,
    tables: Vec<Table>,
}

/// A table of figures; `columns` are values of the second key, or metrics.
#[derive(Serialize)]
struct Table {
    title: String,
    corner: Vec<String>,
    columns: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    /// The values of the first keys.
    headings: Vec<String>,
    /// The best of those with the same work.
    best: bool,
    /// The policy's own defaults.
    default: bool,
    cells: Vec<Shade>,
}

/// A figure and how good it is among its like, from 0 to 8.
#[derive(Serialize)]
struct Shade {
    text: String,
    level: usize,
    /// The best of its row, where a row is one amount of work.
    wins: bool,
}

pub(super) fn section(view: &View<'_>) -> Result<Option<Value>, Error> {
    let mut sweeps = Vec::new();
    for world in view.worlds() {
        let policies: Vec<&str> = view.shown(world).iter().map(|variant| variant.policy).collect();
        sweeps.extend(policies.into_iter().filter_map(|policy| sweep(view, world, policy)));
    }
    if sweeps.is_empty() {
        return Ok(None);
    }
    fill("sweep.html", include_str!("../templates/sweep.html"), Facts { sweeps }).map(Some)
}

fn sweep(view: &View<'_>, world: World, policy: &str) -> Option<Sweep> {
    let keys = varying(&view.variants, world, policy);
    let mine: Vec<&Variant<'_>> = view.of_world(world).filter(|v| v.policy == policy).collect();
    let tables = match keys[..] {
        [] => return None,
        [down, across] => SHOWN.iter().filter_map(|shown| matrix(&mine, shown, down, across)).collect(),
        _ => vec![list(view, &mine, &keys)],
    };
    Some(Sweep { world: world.label(), policy: policy.to_owned(), tables })
}

fn matrix(mine: &[&Variant<'_>], shown: &Shown, down: &str, across: &str) -> Option<Table> {
    let metric = Metric::named(shown.1)?;
    let (rows, columns) = (values(mine, down), values(mine, across));
    let figure = |row: &str, column: &str| {
        let here =
            |v: &&&Variant<'_>| plain(v.params.get(down)) == row && plain(v.params.get(across)) == column;
        Some(mine.iter().find(here)?.spread(metric)?.median)
    };
    let span = Span::of(mine.iter().filter_map(|v| Some(v.spread(metric)?.median)), metric);
    if span.is_empty() {
        return None;
    }
    let row = |heading: &String| {
        let figures: Vec<Option<f64>> = columns.iter().map(|column| figure(heading, column)).collect();
        let mut cells: Vec<Shade> = figures.iter().map(|figure| span.shade(*figure, metric)).collect();
        if is_demand(down) {
            mark_winner(&mut cells, &figures, metric);
        }
        Row { headings: vec![heading.clone()], best: false, default: false, cells }
    };
    Some(Table {
        title: shown.0.to_owned(),
        corner: vec![format!("{} ↓ {} →", short(down), short(across))],
        rows: rows.iter().map(row).collect(),
        columns,
    })
}

fn list(view: &View<'_>, mine: &[&Variant<'_>], keys: &[&str]) -> Table {
    let metrics: Vec<(&Shown, &Metric, Span)> = SHOWN
        .iter()
        .filter_map(|shown| {
            let metric = Metric::named(shown.1)?;
            let span = Span::of(mine.iter().filter_map(|v| Some(v.spread(metric)?.median)), metric);
            (!span.is_empty()).then_some((shown, metric, span))
        })
        .collect();
    let row = |variant: &&Variant<'_>| Row {
        headings: keys.iter().map(|key| plain(variant.params.get(*key))).collect(),
        best: is_best(&view.variants, variant),
        default: view.is_default(variant),
        cells: metrics
            .iter()
            .map(|(_, metric, span)| span.shade(variant.spread(metric).map(|s| s.median), metric))
            .collect(),
    };
    Table {
        title: String::new(),
        corner: keys.iter().map(|key| short(key).to_owned()).collect(),
        columns: metrics.iter().map(|(shown, ..)| shown.0.to_owned()).collect(),
        rows: mine.iter().map(row).collect(),
    }
}

/// Whether a key says what is asked of the cluster, and not what the cluster is: figures of one value of it compare.
fn is_demand(key: &str) -> bool {
    ["workload.", "arrival.", "faults."].iter().any(|table| key.starts_with(table))
}

/// Marks the best of a row, unless all of it reads the same.
fn mark_winner(cells: &mut [Shade], figures: &[Option<f64>], metric: &Metric) {
    let known = figures.iter().flatten().copied();
    let best = match metric.better {
        Better::Higher => known.reduce(f64::max),
        Better::Lower => known.reduce(f64::min),
        Better::Neither => None,
    };
    let Some(best) = best.map(|best| metric.cell(best)) else { return };
    if cells.iter().any(|cell| cell.text != best) {
        cells.iter_mut().filter(|cell| cell.text == best).for_each(|cell| cell.wins = true);
    }
}

/// The values of a key in order of appearance, which is the order of the scenario.
fn values(mine: &[&Variant<'_>], key: &str) -> Vec<String> {
    let mut values: Vec<String> = Vec::new();
    for variant in mine {
        let value = plain(variant.params.get(key));
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

/// The range of a metric, from its worst to its best.
struct Span {
    worst: f64,
    best: f64,
}

impl Span {
    fn of(medians: impl Iterator<Item = f64> + Clone, metric: &Metric) -> Self {
        let (low, high) =
            (medians.clone().fold(f64::INFINITY, f64::min), medians.fold(f64::NEG_INFINITY, f64::max));
        let (worst, best) = if metric.better == Better::Lower { (high, low) } else { (low, high) };
        Self { worst, best }
    }

    /// Whether nothing was measured.
    fn is_empty(&self) -> bool {
        !(self.worst.is_finite() && self.best.is_finite())
    }

    fn shade(&self, figure: Option<f64>, metric: &Metric) -> Shade {
        let Some(figure) = figure else { return Shade { text: "–".to_owned(), level: 0, wins: false } };
        let share = (figure - self.worst) / (self.best - self.worst);
        let level = if share.is_finite() { (share * 8.0).round().clamp(0.0, 8.0) as usize } else { 0 };
        Shade { text: metric.cell(figure), level, wins: false }
    }
}
