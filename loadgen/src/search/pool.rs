//! Virtual runs on all cores, of which only figures are kept.

use super::SearchError;
use crate::cores::on_all_cores;
use crate::progress::Task;
use crate::run::Run;
use crate::scenario::Cell;
use crate::virtual_time;

/// One cell with one seed.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) cell: Cell,
    pub(super) seed: u64,
}

impl Job {
    /// The run in words.
    pub(super) fn label(&self) -> String {
        let short = |key: &str| key.rsplit('.').next().unwrap_or(key).to_owned();
        let params = self.cell.params.iter().map(|(key, value)| format!(" {}={value}", short(key)));
        format!("{}{} seed {}", self.cell.policy.name(), params.collect::<String>(), self.seed)
    }
}

/// Runs all `jobs` and keeps of each what `sum_up` makes of its place and its run, in the order of `jobs`. Ends at the first
/// error.
pub(super) fn run<T: Send>(
    jobs: &[Job],
    progress: &Task,
    sum_up: impl Fn(usize, &Run) -> Result<T, SearchError> + Sync,
) -> Result<Vec<T>, SearchError> {
    on_all_cores(jobs, |place, job| {
        let run = virtual_time::run(&job.cell, job.seed, &mut |_| {})
            .map_err(|source| SearchError::Run { cell: job.label(), source })?;
        let result = sum_up(place, &run);
        progress.step();
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Display;
    use crate::scenario::testing::{load_text, small};

    #[test]
    fn results_keep_the_order_of_the_jobs_whichever_ends_first() {
        let tables = "[arrival]\nkind = \"burst\"\nover = \"1s\"\n[fleet]\nworkers = 1\n[router]\npolicies = [\"random\"]\n\
                      [sweep]\n\"workload.groups\" = [400, 3, 2, 1]\n";
        let scenario = load_text(&small("", tables), &[]).unwrap();
        let jobs: Vec<Job> = scenario.cells().into_iter().map(|cell| Job { cell, seed: 1 }).collect();
        let progress = Display::Quiet.task("test", 4, "runs");
        let found = run(&jobs, &progress, |place, run| Ok((place, run.records.len()))).unwrap();
        assert_eq!(found, [(0, 800), (1, 6), (2, 4), (3, 2)]);
    }
}
