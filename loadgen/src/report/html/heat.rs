//! Prefix group × worker: which worker got how much of each group. Only workers that compute prompts have rows, for no other
//! caches prefixes; where all tell their ranks, every rank has one.

use std::collections::BTreeMap;

use minijinja::Value;
use protocol::record::RequestRecord;
use serde::Serialize;

use super::super::format::trimmed;
use super::super::variant::Variant;
use super::template::{escape, markup};
use super::view::View;
use crate::run::Run;

/// Most columns and rows; beyond that neighbours share one. Narrow columns stay readable, merged ones blur what the
/// map is for, so the limit is what a screen can still show.
const MAX_COLUMNS: usize = 256;
const MAX_ROWS: usize = 64;

/// Steps of shade above nothing.
const LEVELS: usize = 8;

/// A heat map of one variant.
#[derive(Serialize)]
pub(super) struct Map {
    name: String,
    caption: String,
    rows: usize,
    first_row: String,
    last_row: String,
    last_column: String,
    chart: Value,
}

/// Requests of each (group column, worker row).
struct Grid {
    columns: usize,
    rows: usize,
    groups: usize,
    caches: Caches,
    cells: BTreeMap<(usize, usize), u64>,
}

/// The map of the variant's typical run; `None` when the workload has no groups.
pub(super) fn map(view: &View<'_>, variant: &Variant<'_>) -> Option<Map> {
    let run = view.typical(variant);
    let grid = Grid::of(run)?;
    let name = view.name(variant);
    let busiest = busiest_share(run);
    let mut caption = format!(
        "A group's busiest {} gets {} % of its requests on average.",
        grid.caches.noun(),
        trimmed(busiest * 100.0, 0)
    );
    if grid.columns < grid.groups {
        caption.push_str(&format!(" {} groups share {} columns.", grid.groups, grid.columns));
    }
    let caches = grid.caches.count();
    if grid.rows < caches {
        caption.push_str(&format!(" {caches} {}s share {} rows.", grid.caches.noun(), grid.rows));
    }
    Some(Map {
        chart: markup(
            grid.svg(&format!("{name}: share of each prefix group's requests per worker"), &caption),
        ),
        rows: grid.rows,
        first_row: grid.caches.name(0),
        last_row: grid.caches.name(caches - 1),
        last_column: format!("group {}", grid.groups - 1),
        name,
        caption,
    })
}

/// The caches of a fleet, in the order of their rows.
struct Caches {
    workers: Vec<u32>,
    /// Ranks of each worker that have a row; 1 where the worker has one as a whole.
    ranks: u32,
}

impl Caches {
    fn of(run: &Run) -> Self {
        let computing = run.pools.iter().filter(|pool| pool.computes());
        let told = run.records.iter().filter(|r| r.succeeded()).all(|r| r.rank.is_some());
        Self {
            workers: computing.flat_map(|pool| pool.places.clone()).collect(),
            ranks: if told { run.ranks } else { 1 },
        }
    }

    fn count(&self) -> usize {
        self.workers.len() * self.ranks as usize
    }

    /// The row of the cache that a prompt was computed with.
    fn row(&self, record: &RequestRecord) -> Option<usize> {
        let worker = computed_by(record)?;
        let place = self.workers.iter().position(|known| *known == worker)?;
        let rank = if self.ranks > 1 { record.rank? } else { 0 };
        Some(place * self.ranks as usize + rank as usize)
    }

    fn noun(&self) -> &'static str {
        if self.ranks > 1 { "rank" } else { "worker" }
    }

    fn name(&self, row: usize) -> String {
        let worker = self.workers.get(row / self.ranks as usize).copied().unwrap_or(0);
        match self.ranks {
            1 => format!("worker {worker}"),
            ranks => format!("worker {worker} rank {}", row % ranks as usize),
        }
    }
}

impl Grid {
    fn of(run: &Run) -> Option<Self> {
        let caches = Caches::of(run);
        let count = caches.count();
        let placed = || run.records.iter().filter_map(|r| Some((r.group? as usize, caches.row(r)?)));
        let groups = placed().map(|(group, _)| group + 1).max()?;
        let (columns, rows) = (groups.min(MAX_COLUMNS), count.min(MAX_ROWS));
        let mut cells = BTreeMap::new();
        for (group, row) in placed() {
            *cells.entry((group * columns / groups, row * rows / count)).or_insert(0) += 1;
        }
        Some(Self { columns, rows, groups, caches, cells })
    }

    fn svg(&self, title: &str, description: &str) -> String {
        let mut of_column = vec![0u64; self.columns];
        self.cells.iter().for_each(|((column, _), n)| of_column[*column] += n);
        let mut paths = vec![String::new(); LEVELS];
        for ((column, row), n) in &self.cells {
            let share = *n as f64 / of_column[*column] as f64;
            let level = ((share * LEVELS as f64).ceil() as usize).clamp(1, LEVELS) - 1;
            paths[level].push_str(&format!("M{column} {row}h1v1h-1z"));
        }
        let drawn = paths.iter().enumerate().filter(|(_, path)| !path.is_empty());
        let shades: String =
            drawn.map(|(level, path)| format!("<path class=\"h{}\" d=\"{path}\"/>", level + 1)).collect();
        format!(
            "<svg class=\"heat\" viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" role=\"img\">\
             <title>{}</title><desc>{}</desc>{shades}</svg>",
            self.columns,
            self.rows,
            escape(title),
            escape(description)
        )
    }
}

/// The worker that has computed the prompt, and caches it.
fn computed_by(record: &RequestRecord) -> Option<u32> {
    record.prefill_worker.or(record.worker)
}

/// Mean over groups of the share their busiest cache got.
fn busiest_share(run: &Run) -> f64 {
    let caches = Caches::of(run);
    let mut groups: BTreeMap<u32, BTreeMap<usize, u64>> = BTreeMap::new();
    for (group, row) in run.records.iter().filter_map(|r| Some((r.group?, caches.row(r)?))) {
        *groups.entry(group).or_default().entry(row).or_insert(0) += 1;
    }
    let share = |workers: &BTreeMap<usize, u64>| {
        let total: u64 = workers.values().sum();
        workers.values().max().copied().unwrap_or(0) as f64 / total.max(1) as f64
    };
    groups.values().map(share).sum::<f64>() / groups.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{apart, record, run};

    fn placed(pairs: &[(u32, u32)]) -> Run {
        let records = pairs.iter().enumerate();
        run("random", records.map(|(i, (g, w))| record(i as u64).group(*g).worker(*w).build()).collect())
    }

    #[test]
    fn cells_are_shaded_by_share_of_their_group() {
        let run = placed(&[(0, 0), (0, 0), (0, 0), (0, 1), (1, 1)]);
        assert_eq!(busiest_share(&run), 0.875);
        let svg = Grid::of(&run).unwrap().svg("t", "d");
        assert!(svg.contains("<path class=\"h2\" d=\"M0 1h1v1h-1z\"/>"), "a quarter: {svg}");
        assert!(svg.contains("<path class=\"h6\" d=\"M0 0h1v1h-1z\"/>"), "three quarters: {svg}");
        assert!(svg.contains("<path class=\"h8\" d=\"M1 1h1v1h-1z\"/>"), "all: {svg}");
    }

    #[test]
    fn many_groups_share_columns_and_none_make_no_map() {
        let many: Vec<(u32, u32)> = (0..1000).map(|g| (g, g % 2)).collect();
        let grid = Grid::of(&placed(&many)).unwrap();
        assert_eq!((grid.columns, grid.groups, grid.cells.values().sum::<u64>()), (MAX_COLUMNS, 1000, 1000));
        assert!(Grid::of(&run("random", vec![record(0).worker(0).build()])).is_none());
    }

    #[test]
    fn a_group_is_where_its_prompts_are_computed() {
        let request = |i: u64| record(i).group(0).worker(2 + i as u32 % 2).prefill_worker(1).build();
        let mut run = run("random", (0..4).map(request).collect());
        run.pools = apart(2, 2);
        assert_eq!(busiest_share(&run), 1.0, "whoever answers");
        let grid = Grid::of(&run).unwrap();
        assert_eq!(grid.cells.keys().map(|(_, row)| *row).collect::<Vec<_>>(), [1]);
        assert_eq!(grid.rows, 2, "decode workers have none");
    }

    #[test]
    fn every_rank_that_is_told_has_a_row() {
        let request = |i: u64| record(i).group(0).worker(1).rank(i as u32 % 2).build();
        let mut run = run("random", (0..4).map(request).collect());
        run.ranks = 2;
        let grid = Grid::of(&run).unwrap();
        assert_eq!((grid.rows, grid.caches.name(3)), (4, "worker 1 rank 1".to_owned()));
        assert_eq!(busiest_share(&run), 0.5, "a worker has it, two caches have it");
        run.records[0].rank = None;
        assert_eq!(Grid::of(&run).unwrap().rows, 2, "not every rank is known");
    }
}
