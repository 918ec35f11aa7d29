//! Virtual runs on all cores. Runs share nothing, so every core takes the next one from one list.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{Progress, SearchError};
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
    progress: &Progress,
    sum_up: impl Fn(usize, &Run) -> Result<T, SearchError> + Sync,
) -> Result<Vec<T>, SearchError> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results = Mutex::new(Vec::with_capacity(jobs.len()));
    let one = |place: usize, job: &Job| {
        let run = virtual_time::run(&job.cell, job.seed, &mut |_| {})
            .map_err(|source| SearchError::Run { cell: job.label(), source })?;
        sum_up(place, &run)
    };
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(place) else { return };
            let result = one(place, job);
            stop.fetch_or(result.is_err(), Ordering::Relaxed);
            results.lock().unwrap_or_else(PoisonError::into_inner).push((place, result));
            progress.step();
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}
