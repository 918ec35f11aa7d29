//! Successive halving: from stage to stage fewer settings, looked at longer.

use serde::Serialize;

use super::stage::{KEPT, Stage};
use super::{Search, params_of};
use crate::run::Params;
use crate::scenario::Cell;
use crate::search::SearchError;
use crate::search::pool;
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

/// What the stages have shown.
#[derive(Debug)]
pub(super) struct Found {
    /// All settings, in the order of the cells.
    pub(super) tried: Vec<Tried>,
    /// Whether every run of every setting had the figure that the present one has.
    pub(super) all_alike: bool,
}

/// Runs all stages. The first of `cells` is the present setting and stays to the end.
pub(super) fn run(search: &Search<'_>, cells: &[Cell], stages: &[Stage]) -> Result<Found, SearchError> {
    let mut tried: Vec<Tried> = cells.iter().map(Tried::of).collect();
    let mut left: Vec<usize> = (0..cells.len()).collect();
    let mut all_alike = true;
    for stage in stages {
        let looked_at: Vec<&Cell> = left.iter().map(|place| &cells[*place]).collect();
        let jobs = search.jobs(&stage.cut(&looked_at), stage.seeds());
        let progress = search.progress(&stage.to_string(), jobs.len());
        let figures =
            pool::run(&jobs, &progress, |_, run| Ok(search.objective.of(&run.records, search.scenario.slo)))?;
        let runs: Vec<&[f64]> = figures.chunks(stage.seeds().len()).collect();
        all_alike &= runs.iter().all(|of| of == &runs[0]);
        for (place, figures) in left.iter().zip(runs) {
            tried[*place].add(figures, stage, search);
        }
        left = survivors(&tried, left);
    }
    Ok(Found { tried, all_alike })
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

// === impl Found ===

impl Found {
    /// The place of the best setting but the present one, among those that `counts` takes: one that came further, and of
    /// those the better; the earliest among equals.
    pub(super) fn best(&self, counts: impl Fn(&Tried) -> bool) -> Option<usize> {
        let places = (1..self.tried.len()).filter(|place| counts(&self.tried[*place]));
        places.reduce(|best, place| if self.tried[place].beats(&self.tried[best]) { place } else { best })
    }

    /// Whether the setting at a place came to the end and did better there than the present one.
    pub(super) fn is_better(&self, place: usize) -> bool {
        self.tried[place].beats(&self.tried[0])
    }
}

// === impl Tried ===

impl Tried {
    fn of(cell: &Cell) -> Self {
        let (policy, params) = (cell.policy.name().to_owned(), params_of(&cell.policy));
        Self { policy, params, stages: 0, figures: Vec::new(), mean: 0.0, merit: f64::NEG_INFINITY }
    }

    fn add(&mut self, figures: &[f64], stage: &Stage, search: &Search<'_>) {
        if matches!(stage, Stage::Rows { .. }) {
            self.figures.clear();
        }
        self.figures.extend_from_slice(figures);
        self.stages += 1;
        self.mean = mean(&self.figures).unwrap_or(0.0);
        self.merit = search.objective.gain(self.mean, 0.0);
    }

    fn beats(&self, other: &Self) -> bool {
        self.stages > other.stages || (self.stages == other.stages && self.merit > other.merit)
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
    fn finalists_come_first_and_equals_change_nothing() {
        let found = |means: &[f64], stages: &[usize]| Found { tried: tried(means, stages), all_alike: false };
        let early = found(&[1.0, 9.0, 2.0], &[3, 1, 3]);
        assert_eq!((early.best(|_| true), early.is_better(2), early.is_better(1)), (Some(2), true, false));
        let equal = found(&[2.0, 2.0, 2.0], &[3, 3, 3]);
        assert_eq!((equal.best(|_| true), equal.is_better(1)), (Some(1), false));
        assert_eq!(equal.best(|_| false), None);
    }
}
