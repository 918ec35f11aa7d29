//! An experiment: every cell of a scenario with every seed, and what is known about where it ran.

mod environment;
mod facts;

pub use environment::{Environment, Started};
pub use facts::facts;

use crate::cores::on_all_cores;
use crate::live::{self, LiveError};
use crate::progress::{Display, Task};
use crate::report;
use crate::run::{Run, World, has_failed, was_left};
use crate::scenario::{Cell, Scenario};
use crate::virtual_time::{self, VirtualError};

/// Why an experiment stopped before its end.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// A virtual run could not be done.
    #[error("{cell}: {source}")]
    Virtual {
        /// Which cell, in words.
        cell: String,
        /// What happened.
        source: VirtualError,
    },
    /// A live run could not be done.
    #[error("{cell}: {source}")]
    Live {
        /// Which cell, in words.
        cell: String,
        /// What happened.
        source: LiveError,
    },
}

/// All runs, in the order of cells and seeds.
#[derive(Debug)]
pub struct Results {
    /// One entry per cell and seed.
    pub runs: Vec<Run>,
    /// Children that died during live runs, in words.
    pub deaths: Vec<String>,
}

/// One cell with one seed.
struct Job {
    cell: Cell,
    seed: u64,
    label: String,
}

/// Runs all cells of `scenario`, each with `seeds` seeds (the scenario's own number when absent). Virtual runs use
/// all cores, live runs come one after the other. `quiet` shows no progress.
///
/// # Errors
/// With the first cell that cannot be run.
pub fn run(scenario: &Scenario, seeds: Option<u32>, quiet: bool) -> Result<Results, ExperimentError> {
    let jobs = jobs(scenario, seeds);
    for job in &jobs {
        let checked = job.cell.target.as_deref().map_or(Ok(()), live::check_program);
        checked.map_err(|source| ExperimentError::Live { cell: job.label.clone(), source })?;
    }
    let display = Display::new(quiet);
    let (in_virtual, in_live): (Vec<_>, Vec<_>) =
        jobs.iter().enumerate().partition(|(_, j)| j.cell.world == World::Virtual);
    let mut runs: Vec<Option<Run>> = jobs.iter().map(|_| None).collect();
    for (place, run) in run_virtual(&in_virtual, &display)? {
        runs[place] = Some(run);
    }
    let mut deaths = Vec::new();
    for (place, job) in interleaved(in_live) {
        let task = display.task(&job.label, planned_requests(job), "requests");
        let done = live::run(&job.cell, job.seed, &mut |finished| task.set(finished))
            .map_err(|source| ExperimentError::Live { cell: job.label.clone(), source })?;
        finish(task, &done.run);
        deaths.extend(done.death.map(|death| format!("{}: {death}", job.label)));
        runs[place] = Some(done.run);
    }
    Ok(Results { runs: runs.into_iter().flatten().collect(), deaths })
}

/// Live runs in the order A B B A, seed by seed: a machine that slows down, or warms up, in the course of the experiment
/// does so for all cells alike.
fn interleaved(mut jobs: Vec<(usize, &Job)>) -> Vec<(usize, &Job)> {
    let first = jobs.iter().map(|(_, job)| job.seed).min().unwrap_or(0);
    jobs.sort_by_key(|(place, job)| {
        let is_backwards = (job.seed - first) % 2 == 1;
        (job.seed, if is_backwards { usize::MAX - place } else { *place })
    });
    jobs
}

fn jobs(scenario: &Scenario, seeds: Option<u32>) -> Vec<Job> {
    let mut jobs = Vec::new();
    for cell in scenario.cells() {
        for seed in scenario.seeds(seeds) {
            let label = label(&cell, seed);
            jobs.push(Job { cell: cell.clone(), seed, label });
        }
    }
    jobs
}

fn label(cell: &Cell, seed: u64) -> String {
    let params: String = cell.params.iter().map(|(key, value)| format!(" {}={value}", short(key))).collect();
    format!("{} {}{params} seed {seed}", cell.world.label(), cell.router())
}

/// The last part of a key path.
fn short(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

fn planned_requests(job: &Job) -> u64 {
    job.cell.scenario.workload.requests()
}

/// Gives each run with its place among all jobs.
fn run_virtual(jobs: &[(usize, &Job)], display: &Display) -> Result<Vec<(usize, Run)>, ExperimentError> {
    on_all_cores(jobs, |_, (place, job)| {
        let task = display.task(&job.label, planned_requests(job), "requests");
        let run = virtual_time::run(&job.cell, job.seed, &mut |finished| task.set(finished))
            .map_err(|source| ExperimentError::Virtual { cell: job.label.clone(), source })?;
        finish(task, &run);
        Ok((*place, run))
    })
}

fn finish(task: Task, run: &Run) {
    let failed = run.records.iter().filter(|r| has_failed(r)).count();
    let left = run.records.iter().filter(|r| was_left(r)).count();
    let hit_rate = 100.0 * report::hit_rate(&run.records);
    let failures = if failed == 0 { String::new() } else { format!(", {failed} failed") };
    let left = if left == 0 { String::new() } else { format!(", {left} left by their clients") };
    task.done(&format!("{} requests, hit rate {hit_rate:.1} %{failures}{left}", run.records.len()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_cells_take_turns_forwards_and_backwards() {
        let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/smoke.toml");
        let policies = ["random", "round_robin", "cache_aware"].map(str::to_owned);
        let mode = Some(crate::scenario::Mode::Live);
        let scenario = crate::scenario::load(shipped.as_ref(), &[], Some(&policies), None, mode).unwrap();
        let jobs = jobs(&scenario, Some(3));
        let order = interleaved(jobs.iter().enumerate().collect());
        let order: Vec<(&str, u64)> =
            order.iter().map(|(_, job)| (job.cell.policy.name(), job.seed - scenario.seed)).collect();
        let [a, b, c] = policies.each_ref().map(String::as_str);
        assert_eq!(order, [(a, 0), (b, 0), (c, 0), (c, 1), (b, 1), (a, 1), (a, 2), (b, 2), (c, 2)]);
    }
}
