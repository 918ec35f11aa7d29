//! How much each stage of a search looks at.

use std::fmt;
use std::sync::Arc;

use crate::scenario::{Cell, Scenario, Workload};

/// Of the settings of one stage, one in this many comes into the next.
pub(super) const KEPT: usize = 3;

/// What every setting of a stage is run with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stage {
    /// The seeds that the stages before it have not seen.
    pub(super) seeds: Vec<u64>,
    /// Rows of the trace; absent for generated workloads.
    pub(super) rows: Option<usize>,
    /// Whether the figures of earlier stages count too.
    pub(super) adds: bool,
}

/// Three stages, each with about twice as much as the one before.
pub(super) fn stages(scenario: &Scenario, seeds: u32) -> Vec<Stage> {
    let counts = [seeds.div_ceil(4), seeds.div_ceil(2), seeds];
    let all: Vec<u64> = scenario.seeds(Some(seeds)).collect();
    if let Workload::Trace(replay) = &scenario.workload {
        let half = (replay.trace.rows.len() / 2).max(1);
        let rows = [half.div_ceil(4), half.div_ceil(2), half];
        return rows.map(|rows| Stage { seeds: all.clone(), rows: Some(rows), adds: false }).into();
    }
    let mut from = 0;
    let mut stages = Vec::new();
    for to in counts.map(|count| count as usize) {
        if to > from {
            stages.push(Stage { seeds: all[from..to].to_vec(), rows: None, adds: true });
            from = to;
        }
    }
    stages
}

/// How many runs the stages come to, of so many settings.
pub(super) fn runs(stages: &[Stage], settings: usize) -> usize {
    let mut settings = settings;
    let mut runs = 0;
    for stage in stages {
        runs += settings * stage.seeds.len();
        settings = kept(settings);
    }
    runs
}

/// How many of so many settings come into the next stage: the best third, and the present one.
pub(super) fn kept(settings: usize) -> usize {
    (settings.div_ceil(KEPT) + 1).min(settings)
}

/// The cell with no more than the first rows of its trace.
pub(super) fn shortened(cell: &Cell, rows: Option<usize>) -> Cell {
    let Some(rows) = rows else { return cell.clone() };
    let mut scenario = Scenario::clone(&cell.scenario);
    if let Workload::Trace(replay) = &mut scenario.workload {
        let mut trace = (*replay.trace).clone();
        trace.rows.truncate(rows);
        replay.trace = Arc::new(trace);
    }
    Cell { scenario: Arc::new(scenario), ..cell.clone() }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rows {
            Some(rows) => write!(f, "the first {rows} rows"),
            None => write!(f, "{} more seeds", self.seeds.len()),
        }
    }
}
