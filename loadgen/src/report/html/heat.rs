//! Prefix group × worker: which worker got how much of each group.

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
    last_row: String,
    last_column: String,
    chart: Value,
}

/// Requests of each (group column, worker row).
struct Grid {
    columns: usize,
    rows: usize,
    groups: usize,
    workers: usize,
    cells: BTreeMap<(usize, usize), u64>,
}

/// The map of the variant's typical run; `None` when the workload has no groups.
pub(super) fn map(view: &View<'_>, variant: &Variant<'_>) -> Option<Map> {
    let run = view.typical(variant);
    let grid = Grid::of(run)?;
    let name = view.label(variant);
    let busiest = busiest_share(run);
    let mut caption = format!(
        "A group's busiest worker gets {} % of its requests on average.",
        trimmed(busiest * 100.0, 0)
    );
    if grid.columns < grid.groups {
        caption.push_str(&format!(" {} groups share {} columns.", grid.groups, grid.columns));
    }
    if grid.rows < grid.workers {
        caption.push_str(&format!(" {} workers share {} rows.", grid.workers, grid.rows));
    }
    Some(Map {
        chart: markup(
            grid.svg(&format!("{name}: share of each prefix group's requests per worker"), &caption),
        ),
        rows: grid.rows,
        last_row: format!("worker {}", grid.workers - 1),
        last_column: format!("group {}", grid.groups - 1),
        name,
        caption,
    })
}

impl Grid {
    fn of(run: &Run) -> Option<Self> {
        let placed =
            || run.records.iter().filter_map(|r| Some((r.group? as usize, computed_by(r)? as usize)));
        let groups = placed().map(|(group, _)| group + 1).max()?;
        let workers = placed().map(|(_, worker)| worker + 1).max()?.max(run.workers as usize);
        let (columns, rows) = (groups.min(MAX_COLUMNS), workers.min(MAX_ROWS));
        let mut cells = BTreeMap::new();
        for (group, worker) in placed() {
            *cells.entry((group * columns / groups, worker * rows / workers)).or_insert(0) += 1;
        }
        Some(Self { columns, rows, groups, workers, cells })
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

/// Mean over groups of the share their busiest worker got.
fn busiest_share(run: &Run) -> f64 {
    let mut groups: BTreeMap<u32, BTreeMap<u32, u64>> = BTreeMap::new();
    for (group, worker) in run.records.iter().filter_map(|r| Some((r.group?, computed_by(r)?))) {
        *groups.entry(group).or_default().entry(worker).or_insert(0) += 1;
    }
    let share = |workers: &BTreeMap<u32, u64>| {
        let total: u64 = workers.values().sum();
        workers.values().max().copied().unwrap_or(0) as f64 / total.max(1) as f64
    };
    groups.values().map(share).sum::<f64>() / groups.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{record, run};

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
        let run = run("random", (0..4).map(request).collect());
        assert_eq!(busiest_share(&run), 1.0, "whoever answers");
        assert_eq!(Grid::of(&run).unwrap().cells.keys().map(|(_, row)| *row).collect::<Vec<_>>(), [1]);
    }
}
