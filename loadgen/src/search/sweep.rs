//! Every cell of a scenario with every seed; what is done is kept, and done only once.

use std::path::Path;

use super::journal::{self, Journal};
use super::pool::{self, Job};
use super::{Progress, SearchError};
use crate::report::RunSummary;
use crate::run::Run;
use crate::scenario::Scenario;

/// What a sweep has found: for every cell and seed, in their order, the run without its requests, and its figures.
#[derive(Debug)]
pub struct Swept {
    /// The runs.
    pub runs: Vec<Run>,
    /// The figures of each.
    pub summaries: Vec<RunSummary>,
}

/// Runs what is not done yet of `scenario`, each cell with `seeds` seeds (the scenario's own number when absent), and keeps
/// it in `dir`.
///
/// # Errors
/// A cell cannot be run, or the file of finished runs cannot be used.
pub fn run(
    scenario: &Scenario,
    seeds: Option<u32>,
    dir: &Path,
    fresh: bool,
    quiet: bool,
) -> Result<Swept, SearchError> {
    let journal = Journal::open(dir, scenario, fresh)?;
    let mut jobs = Vec::new();
    for cell in scenario.cells() {
        jobs.extend(scenario.seeds(seeds).map(|seed| Job { cell: cell.clone(), seed }));
    }
    let mut summaries: Vec<Option<RunSummary>> =
        jobs.iter().map(|job| journal.find(&job.cell, job.seed)).collect();
    let missing: Vec<usize> = (0..jobs.len()).filter(|place| summaries[*place].is_none()).collect();
    tell(jobs.len() - missing.len(), jobs.len(), dir, quiet);
    let left: Vec<Job> = missing.iter().map(|place| jobs[*place].clone()).collect();
    let progress = Progress::new(&format!("sweep {}", scenario.name), left.len(), quiet);
    let found = pool::run(&left, &progress, |place, run| {
        let (summary, job) = (RunSummary::of(run, scenario.slo), &left[place]);
        journal.add(&job.cell, job.seed, &summary)?;
        Ok(summary)
    })?;
    for (place, summary) in missing.into_iter().zip(found) {
        summaries[place] = Some(summary);
    }
    let runs = jobs.iter().map(|job| Run::without_records(&job.cell, job.seed)).collect();
    Ok(Swept { runs, summaries: summaries.into_iter().flatten().collect() })
}

fn tell(done: usize, total: usize, dir: &Path, quiet: bool) {
    if quiet {
        return;
    }
    let file = dir.join(journal::NAME);
    match done {
        0 => eprintln!("sweep: {total} runs, kept in {}; an interrupted sweep resumes", file.display()),
        _ => eprintln!("sweep: {done} of {total} done, resuming ({})", file.display()),
    }
}
