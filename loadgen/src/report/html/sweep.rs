//! What swept settings do: a matrix when two settings cross, a list otherwise. Where a demand is swept, settings are
//! compared under the same demand only.

use std::collections::BTreeSet;

use minijinja::{Error, Value};
use serde::Serialize;

use super::super::best::is_best;
use super::super::margin::{RULE, Standing, standing};
use super::super::metric::{Better, Metric};
use super::super::stats::Spread;
use super::super::variant::{Variant, heading, is_demand, plain, same_demand, short, varying};
use super::template::fill;
use super::view::View;
use crate::run::World;
use crate::statistics;

/// What is shown of each setting: title, unit and metric.
type Shown = (&'static str, &'static str, &'static str);

const SHOWN: [Shown; 9] = [
    ("Hit rate", "%", "hit_rate"),
    ("Input", "tok/s", "input_tok_s"),
    ("TTFT p50", "ms", "ttft_ms.p50"),
    ("TTFT p90", "ms", "ttft_ms.p90"),
    ("TTFT p99", "ms", "ttft_ms.p99"),
    ("TPOT p50", "ms", "tpot_ms.p50"),
    ("ITL p99", "ms", "itl_ms.p99"),
    ("SLO met", "%", "slo_attainment"),
    ("Imbalance", "", "imbalance"),
];

/// What is shown of two keys of several.
const SURFACE: [&str; 3] = ["hit_rate", "ttft_ms.p90", "imbalance"];

/// A list that is longer is folded.
const MOST_UNFOLDED: usize = 30;

#[derive(Serialize)]
struct Facts {
    sweeps: Vec<Sweep>,
    /// When one is better, where settings meet the same demand.
    rule: Option<&'static str>,
}

#[derive(Serialize)]
struct Sweep {
    world: &'static str,
    policy: String,
    tables: Vec<Table>,
    /// Whether settings are compared under each demand by itself.
    contested: bool,
}

/// A table of figures; `columns` are values of the second key, or metrics.
#[derive(Serialize)]
struct Table {
    title: String,
    /// What its figures are; may be empty.
    remark: &'static str,
    corner: Vec<String>,
    /// The key whose values the columns are; empty where these are metrics.
    across: String,
    columns: Vec<Heading>,
    rows: Vec<Row>,
    /// Whether it is so long that it is unfolded only when it is asked for.
    folded: bool,
}

#[derive(Serialize)]
struct Heading {
    title: String,
    unit: &'static str,
}

#[derive(Serialize)]
struct Row {
    /// The values of the first keys.
    headings: Vec<String>,
    /// The best of those with the same work.
    best: bool,
    /// The policy's own defaults.
    default: bool,
    /// The first one under another demand than the row above.
    opens: bool,
    cells: Vec<Shade>,
}

/// A figure and how good it is among its like, from 0 to 8.
#[derive(Serialize)]
struct Shade {
    text: String,
    level: usize,
    /// By how much it is better than all others that met the same demand; that it is a tie; or nothing.
    note: String,
    wins: bool,
}

pub(super) fn section(view: &View<'_>) -> Result<Option<Value>, Error> {
    let mut sweeps = Vec::new();
    for world in view.worlds() {
        let mut policies: Vec<&str> = Vec::new();
        for variant in view.of_world(world) {
            if !policies.contains(&variant.policy) {
                policies.push(variant.policy);
            }
        }
        sweeps.extend(policies.into_iter().filter_map(|policy| sweep(view, world, policy)));
    }
    if sweeps.is_empty() {
        return Ok(None);
    }
    let rule = sweeps.iter().any(|sweep| sweep.contested).then_some(RULE);
    fill("sweep.html", include_str!("../templates/sweep.html"), Facts { sweeps, rule }).map(Some)
}

fn sweep(view: &View<'_>, world: World, policy: &str) -> Option<Sweep> {
    let mut keys = varying(&view.variants, world, policy);
    keys.sort_by_key(|key| !is_demand(key));
    let mine: Vec<&Variant<'_>> = view.of_world(world).filter(|v| v.policy == policy).collect();
    let groups = groups(&mine);
    let tables = match keys[..] {
        [] => return None,
        [down, across] if groups.len() == 1 => {
            SHOWN.iter().filter_map(|shown| matrix(&mine, shown, down, across, "")).collect()
        }
        _ => {
            let mut tables = if groups.len() == 1 { surface(&mine, &keys) } else { Vec::new() };
            let mut list = list(view, &groups, &keys);
            list.folded = list.rows.len() > MOST_UNFOLDED;
            tables.push(list);
            tables
        }
    };
    let contested = groups.len() > 1 && groups.iter().any(|group| group.len() > 1);
    Some(Sweep { world: world.label(), policy: policy.to_owned(), tables, contested })
}

/// Variants by the demand that they met.
fn groups<'v, 'a>(mine: &[&'v Variant<'a>]) -> Vec<Vec<&'v Variant<'a>>> {
    let mut groups: Vec<Vec<&Variant<'_>>> = Vec::new();
    for variant in mine {
        match groups.iter_mut().find(|group| same_demand(group[0], variant)) {
            Some(group) => group.push(variant),
            None => groups.push(vec![variant]),
        }
    }
    groups
}

/// Of more than two keys: the two that throughput depends on most, and for each pair of their values the median over the
/// others.
fn surface(mine: &[&Variant<'_>], keys: &[&str]) -> Vec<Table> {
    let mut ranked: Vec<(f64, &str)> = keys.iter().map(|key| (effect(mine, key), *key)).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    let [(_, down), (_, across), _, ..] = ranked[..] else { return Vec::new() };
    let pairs: BTreeSet<(String, String)> =
        mine.iter().map(|v| (plain(v.params.get(down)), plain(v.params.get(across)))).collect();
    if pairs.len() < values(mine, down).len() * values(mine, across).len() {
        // They were not crossed.
        return Vec::new();
    }
    let figures = SHOWN.iter().filter(|shown| SURFACE.contains(&shown.2));
    figures.filter_map(|shown| matrix(mine, shown, down, across, "median over the other keys")).collect()
}

/// How far the mean throughputs of the values of a key are apart.
fn effect(mine: &[&Variant<'_>], key: &str) -> f64 {
    let mean = |value: &String| {
        let like = mine.iter().filter(|v| plain(v.params.get(key)) == *value);
        let figures: Vec<f64> = like.filter_map(|v| v.median("input_tok_s")).collect();
        statistics::mean(&figures)
    };
    let means: Vec<f64> = values(mine, key).iter().filter_map(mean).collect();
    let (low, high) = (means.iter().copied().reduce(f64::min), means.iter().copied().reduce(f64::max));
    low.zip(high).map_or(0.0, |(low, high)| high - low)
}

fn matrix(
    mine: &[&Variant<'_>],
    shown: &Shown,
    down: &str,
    across: &str,
    remark: &'static str,
) -> Option<Table> {
    let metric = Metric::named(shown.2)?;
    let (rows, columns) = (values(mine, down), values(mine, across));
    let figure = |row: &str, column: &str| {
        let here =
            |v: &&&Variant<'_>| plain(v.params.get(down)) == row && plain(v.params.get(across)) == column;
        let figures = mine.iter().filter(here).filter_map(|v| Some(v.spread(metric)?.median));
        statistics::median(&figures.collect::<Vec<_>>())
    };
    let figures: Vec<f64> =
        rows.iter().flat_map(|row| columns.iter().filter_map(|column| figure(row, column))).collect();
    let span = Span::of(figures.iter().copied(), metric);
    if span.is_empty() {
        return None;
    }
    let row = |heading: &String| Row {
        headings: vec![heading.clone()],
        best: false,
        default: false,
        opens: false,
        cells: columns.iter().map(|column| span.shade(figure(heading, column), metric)).collect(),
    };
    Some(Table {
        title: if shown.1.is_empty() { shown.0.to_owned() } else { format!("{}, {}", shown.0, shown.1) },
        remark,
        corner: vec![format!("{} ↓", short(down))],
        across: format!("{} →", short(across)),
        rows: rows.iter().map(row).collect(),
        columns: columns.into_iter().map(|title| Heading { title, unit: "" }).collect(),
        folded: false,
    })
}

fn list(view: &View<'_>, groups: &[Vec<&Variant<'_>>], keys: &[&str]) -> Table {
    let measured = |shown: &'static Shown| {
        let metric = Metric::named(shown.2)?;
        groups.iter().flatten().any(|v| v.spread(metric).is_some()).then_some((shown, metric))
    };
    let metrics: Vec<(&Shown, &Metric)> = SHOWN.iter().filter_map(measured).collect();
    let judged = groups.len() > 1 && groups.iter().flatten().all(|variant| !variant.is_undecided);
    let mut rows = Vec::new();
    for group in groups {
        let columns: Vec<Vec<Shade>> =
            metrics.iter().map(|(_, metric)| column(group, metric, judged)).collect();
        let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
        rows.extend(group.iter().enumerate().map(|(place, variant)| Row {
            headings: keys.iter().map(|key| variant.reading(key)).collect(),
            best: is_best(&view.variants, variant),
            default: view.is_default(variant),
            opens: place == 0 && groups.len() > 1 && group.len() > 1,
            cells: columns.iter_mut().filter_map(Iterator::next).collect(),
        }));
    }
    Table {
        title: String::new(),
        remark: "",
        corner: keys.iter().map(|key| heading(key).to_owned()).collect(),
        across: String::new(),
        columns: metrics
            .iter()
            .map(|(shown, _)| Heading { title: shown.0.to_owned(), unit: shown.1 })
            .collect(),
        folded: false,
        rows,
    }
}

/// The cells of one figure, of settings that met the same demand. `judged`: with who is better.
fn column(group: &[&Variant<'_>], metric: &Metric, judged: bool) -> Vec<Shade> {
    let spreads: Vec<Option<Spread>> = group.iter().map(|variant| variant.spread(metric)).collect();
    let span = Span::of(spreads.iter().flatten().map(|spread| spread.median), metric);
    let mut cells: Vec<Shade> =
        spreads.iter().map(|spread| span.shade(spread.map(|spread| spread.median), metric)).collect();
    if !judged {
        return cells;
    }
    // How even the workers of one fleet are is no merit over another fleet.
    let standing = if metric.name == "imbalance" { Standing::Alone } else { standing(&spreads, metric) };
    match standing {
        Standing::Won { first, lead, .. } => (cells[first].note, cells[first].wins) = (lead, true),
        Standing::Tied(places) => {
            // What seeds may turn is not to look like a difference.
            let level = places.iter().map(|place| cells[*place].level).max().unwrap_or(0);
            let level = if places.len() == cells.len() { 0 } else { level };
            places
                .into_iter()
                .for_each(|place| (cells[place].note, cells[place].level) = ("tie".to_owned(), level));
        }
        Standing::Alone => cells.iter_mut().for_each(|cell| cell.level = 0),
    }
    cells
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
        let Some(figure) = figure else {
            return Shade { text: "–".to_owned(), level: 0, note: String::new(), wins: false };
        };
        let share = (figure - self.worst) / (self.best - self.worst);
        let level = if share.is_finite() { (share * 8.0).round().clamp(0.0, 8.0) as usize } else { 0 };
        Shade { text: metric.cell(figure), level, note: String::new(), wins: false }
    }
}
