//! Every cell of a scenario with every seed; what is done is kept, and done only once.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::SearchError;
use super::journal::{self, Journal, JournalError};
use super::pool::{self, Job};
use crate::progress::Display;
use crate::report::RunSummary;
use crate::run::Run;
use crate::say::note;
use crate::scenario::Scenario;

/// What a sweep has found: for every cell and seed, in their order, the run without its requests, and its figures.
#[derive(Debug)]
pub struct Swept {
    /// The runs.
    pub runs: Vec<Run>,
    /// The figures of each.
    pub summaries: Vec<RunSummary>,
    /// Why runs were not kept for a sweep that resumes, if they were not.
    pub unkept: Option<JournalError>,
}

/// Runs what is not done yet of `scenario`, each cell with `seeds` seeds (the scenario's own number when absent), and keeps
/// it in `dir`. Where nothing can be written there, the sweep goes on without.
///
/// # Errors
/// A cell cannot be run, or the file of finished runs is another one's.
pub fn run(
    scenario: &Scenario,
    seeds: Option<u32>,
    dir: &Path,
    fresh: bool,
    quiet: bool,
) -> Result<Swept, SearchError> {
    let (journal, unkept) = match Journal::open(dir, scenario, fresh) {
        Ok(journal) => (Some(journal), None),
        Err(error) if error.is_unwritable() => (None, Some(error)),
        Err(error) => return Err(error.into()),
    };
    let unkept = Mutex::new(unkept);
    let mut jobs = Vec::new();
    for cell in scenario.cells() {
        jobs.extend(scenario.seeds(seeds).map(|seed| Job { cell: cell.clone(), seed }));
    }
    let mut summaries: Vec<Option<RunSummary>> =
        jobs.iter().map(|job| journal.as_ref()?.find(&job.cell, job.seed)).collect();
    let missing: Vec<usize> = (0..jobs.len()).filter(|place| summaries[*place].is_none()).collect();
    if journal.is_some() && !quiet {
        tell(jobs.len() - missing.len(), jobs.len(), dir);
    }
    let left: Vec<Job> = missing.iter().map(|place| jobs[*place].clone()).collect();
    let progress = Display::new(quiet).task(format!("sweep {}", scenario.name), left.len() as u64, "runs");
    let found = pool::run(&left, &progress, |place, run| {
        let (summary, job) = (RunSummary::of(run, scenario.slo), &left[place]);
        let mut unkept = unkept.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(journal), None) = (&journal, &*unkept) {
            *unkept = journal.add(&job.cell, job.seed, &summary).err();
        }
        Ok(summary)
    })?;
    for (place, summary) in missing.into_iter().zip(found) {
        summaries[place] = Some(summary);
    }
    let runs = jobs.iter().map(|job| Run::without_records(&job.cell, job.seed)).collect();
    let unkept = unkept.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Swept { runs, summaries: summaries.into_iter().flatten().collect(), unkept })
}

fn tell(done: usize, total: usize, dir: &Path) {
    let path = dir.join(journal::NAME);
    let file = path.display();
    match done {
        0 => note(format_args!("sweep: {total} runs, kept in {file}; an interrupted sweep resumes")),
        _ => note(format_args!("sweep: {done} of {total} done, resuming ({file})")),
    }
}
