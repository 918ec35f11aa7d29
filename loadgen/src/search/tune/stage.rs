//! How much each stage of a search looks at.

use std::fmt;
use std::sync::Arc;

use crate::scenario::{Cell, Scenario, Workload};

/// Of the settings of one stage, one in this many comes into the next.
pub(super) const KEPT: usize = 3;

/// What every setting of a stage is run with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    /// Of a generated workload: seeds that the stages before it have not seen; their figures count too.
    Seeds(Vec<u64>),
    /// Of a trace: its first rows, among which are those of the stages before it.
    Rows {
        /// How many.
        rows: usize,
        /// The seeds, the same in every stage.
        seeds: Vec<u64>,
    },
}

/// Three stages, each with about twice as much as the one before.
pub(super) fn stages(scenario: &Scenario, seeds: u32) -> Vec<Stage> {
    let all: Vec<u64> = scenario.seeds(Some(seeds)).collect();
    if let Workload::Trace(replay) = &scenario.workload {
        let half = (replay.trace.rows.len() / 2).max(1);
        let rows = [half.div_ceil(4), half.div_ceil(2), half];
        return rows.map(|rows| Stage::Rows { rows, seeds: all.clone() }).into();
    }
    let counts = [all.len().div_ceil(4), all.len().div_ceil(2), all.len()];
    let mut from = 0;
    let mut stages = Vec::new();
    for to in counts {
        if to > from {
            stages.push(Stage::Seeds(all[from..to].to_vec()));
            from = to;
        }
    }
    stages
}

/// All that the stages look at, as one.
pub(super) fn whole(stages: &[Stage]) -> Stage {
    let all = stages.iter().fold(None, |before, stage| match (before, stage) {
        (Some(Stage::Seeds(mut seeds)), Stage::Seeds(more)) => {
            seeds.extend(more);
            Some(Stage::Seeds(seeds))
        }
        (_, stage) => Some(stage.clone()),
    });
    all.unwrap_or(Stage::Seeds(Vec::new()))
}

/// The cell with no more than the first rows of its trace.
fn shortened(cell: &Cell, rows: usize) -> Cell {
    let mut scenario = Scenario::clone(&cell.scenario);
    if let Workload::Trace(replay) = &mut scenario.workload {
        let mut trace = (*replay.trace).clone();
        trace.rows.truncate(rows);
        replay.trace = Arc::new(trace);
    }
    Cell { scenario: Arc::new(scenario), ..cell.clone() }
}

// === impl Stage ===

impl Stage {
    /// The seeds that every setting is run with.
    pub(super) fn seeds(&self) -> &[u64] {
        match self {
            Self::Seeds(seeds) | Self::Rows { seeds, .. } => seeds,
        }
    }

    /// The cells with as much of their work as the stage looks at. Those of one scenario share what is left of it.
    pub(super) fn cut(&self, cells: &[&Cell]) -> Vec<Cell> {
        let Self::Rows { rows, .. } = self else {
            return cells.iter().map(|cell| (*cell).clone()).collect();
        };
        let mut known: Vec<(*const Scenario, Arc<Scenario>)> = Vec::new();
        let mut cut = Vec::with_capacity(cells.len());
        for cell in cells {
            let of = Arc::as_ptr(&cell.scenario);
            let scenario = match known.iter().find(|(known, _)| *known == of) {
                Some((_, short)) => Arc::clone(short),
                None => {
                    let short = shortened(cell, *rows).scenario;
                    known.push((of, Arc::clone(&short)));
                    short
                }
            };
            cut.push(Cell { scenario, ..(*cell).clone() });
        }
        cut
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seeds(seeds) => write!(f, "{} more seeds", seeds.len()),
            Self::Rows { rows, seeds } => write!(f, "the first {rows} rows, {} seeds", seeds.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::testing::{load_text, small};

    const TABLES: &str = "[fleet]\nworkers = 1\n[router]\npolicies = [\"random\", \"round_robin\"]\n";

    #[test]
    fn of_a_trace_the_search_sees_the_first_half_only() {
        let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/mooncake_small.jsonl");
        let text = format!(
            "schema = 1\nname = \"t\"\n[workload]\nkind = \"trace\"\npath = {trace:?}\nlimit = 101\n{TABLES}"
        );
        let scenario = load_text(&text, &[]).unwrap();
        let stages = stages(&scenario, 1);
        let rows = [13, 25, 50].map(|rows| Stage::Rows { rows, seeds: vec![scenario.seed] });
        assert_eq!(stages, rows, "of 101");
        assert_eq!(whole(&stages), stages[2], "a longer part holds the shorter one");
        let cells = scenario.cells();
        let cut = whole(&stages).cut(&[&cells[0], &cells[0], &cells[1]]);
        let Workload::Trace(replay) = &cut[0].scenario.workload else { panic!() };
        let Workload::Trace(whole) = &cells[0].scenario.workload else { panic!() };
        assert_eq!(replay.trace.rows[..], whole.trace.rows[..50]);
        assert!(Arc::ptr_eq(&cut[0].scenario, &cut[1].scenario), "one copy for both");
    }

    #[test]
    fn of_a_workload_every_stage_sees_new_seeds() {
        let arrival = "[arrival]\nkind = \"burst\"\nover = \"1s\"\n";
        let scenario = load_text(&small("seed = 7\n", &format!("{arrival}{TABLES}")), &[]).unwrap();
        let stages = stages(&scenario, 12);
        let seeds: Vec<&[u64]> = stages.iter().map(Stage::seeds).collect();
        assert_eq!(seeds, [&[7, 8, 9][..], &[10, 11, 12], &[13, 14, 15, 16, 17, 18]]);
        assert_eq!(whole(&stages), Stage::Seeds((7..19).collect()));
    }
}
