//! Successive halving: from stage to stage fewer settings, looked at longer.

use std::sync::Arc;

use serde::Serialize;

use super::objective::Objective;
use super::params_of;
use super::stage::{KEPT, Stage, shortened};
use crate::report::Slo;
use crate::run::Params;
use crate::scenario::Cell;
use crate::search::pool::{self, Job};
use crate::search::{Progress, SearchError};
use crate::statistics::mean;

/// A setting and how it did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tried {
    /// The policy.
    pub policy: String,
    /// Its options that were set.
    pub params: Params,
    /// How many stages it came through.
    pub stages: usize,
    /// The figure of each run that counts.
    pub figures: Vec<f64>,
    /// Their mean.
    pub mean: f64,
    /// How good the mean is; more is better.
    #[serde(skip)]
    merit: f64,
}

/// Runs all stages. The first of `cells` is the present setting and stays to the end.
pub(super) fn run(
    cells: &[Cell],
    stages: &[Stage],
    objective: Objective,
    slo: Option<Slo>,
    progress: &Progress,
) -> Result<Vec<Tried>, SearchError> {
    let mut tried: Vec<Tried> = cells.iter().map(Tried::of).collect();
    let mut left: Vec<usize> = (0..cells.len()).collect();
    for stage in stages {
        let mut jobs = Vec::new();
        // One copy of a shortened trace for all settings of a policy.
        let mut known: Vec<(*const crate::scenario::Scenario, Cell)> = Vec::new();
        for place in &left {
            let cell = &cells[*place];
            let scenario = Arc::as_ptr(&cell.scenario);
            let short = match known.iter().find(|(of, _)| *of == scenario) {
                Some((_, short)) => Arc::clone(&short.scenario),
                None => {
                    let short = shortened(cell, stage.rows);
                    known.push((scenario, short.clone()));
                    short.scenario
                }
            };
            let cell = Cell { scenario: short, ..cell.clone() };
            jobs.extend(stage.seeds.iter().map(|seed| Job { cell: cell.clone(), seed: *seed }));
        }
        let figures = pool::run(&jobs, progress, |_, run| Ok(objective.of(&run.records, slo)))?;
        for (place, figures) in left.iter().zip(figures.chunks(stage.seeds.len())) {
            tried[*place].add(figures, stage.adds, objective);
        }
        left = survivors(&tried, left);
    }
    Ok(tried)
}

/// The best third by what is known, and the present setting, in their order.
fn survivors(tried: &[Tried], mut left: Vec<usize>) -> Vec<usize> {
    let count = left.len().div_ceil(KEPT);
    left.sort_by(|a, b| tried[*b].merit.total_cmp(&tried[*a].merit).then(a.cmp(b)));
    let mut kept: Vec<usize> = left.into_iter().take(count).chain([0]).collect();
    kept.sort_unstable();
    kept.dedup();
    kept
}

/// The place of the best of those that came to the last stage; the earliest among equals, so that the present setting stays
/// where nothing is better.
pub(super) fn best(tried: &[Tried]) -> usize {
    let last = tried.iter().map(|one| one.stages).max().unwrap_or(0);
    let finalists = (0..tried.len()).filter(|place| tried[*place].stages == last);
    finalists.fold(0, |best, place| if tried[place].merit > tried[best].merit { place } else { best })
}

impl Tried {
    fn of(cell: &Cell) -> Self {
        let (policy, params) = (cell.policy.name().to_owned(), params_of(&cell.policy));
        Self { policy, params, stages: 0, figures: Vec::new(), mean: 0.0, merit: f64::NEG_INFINITY }
    }

    fn add(&mut self, figures: &[f64], adds: bool, objective: Objective) {
        if !adds {
            self.figures.clear();
        }
        self.figures.extend_from_slice(figures);
        self.stages += 1;
        self.mean = mean(&self.figures).unwrap_or(0.0);
        self.merit = objective.gain(self.mean, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(means: &[f64], stages: &[usize]) -> Vec<Tried> {
        let one = |(mean, stages): (&f64, &usize)| Tried {
            policy: "p".to_owned(),
            params: Params::new(),
            stages: *stages,
            figures: Vec::new(),
            mean: *mean,
            merit: *mean,
        };
        means.iter().zip(stages).map(one).collect()
    }

    #[test]
    fn the_best_third_and_the_present_setting_survive() {
        let all = tried(&[0.0, 5.0, 1.0, 4.0, 2.0, 3.0, 5.0], &[1; 7]);
        assert_eq!(survivors(&all, (0..7).collect()), [0, 1, 3, 6]);
        assert_eq!(survivors(&all, vec![0, 1, 3, 6]), [0, 1, 6]);
    }

    #[test]
    fn only_finalists_can_be_best_and_equals_change_nothing() {
        assert_eq!(best(&tried(&[1.0, 9.0, 2.0], &[3, 1, 3])), 2);
        assert_eq!(best(&tried(&[2.0, 2.0], &[3, 3])), 0);
    }
}
