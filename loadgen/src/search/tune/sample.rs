//! What counts as one observation of a setting.

use protocol::record::RequestRecord;

use super::stage::Stage;
use super::{Search, pool};
use crate::scenario::Cell;
use crate::search::SearchError;
use crate::statistics::mean;

/// Windows of a part of a trace.
const WINDOWS: usize = 24;

/// The part of a run that is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it: every seed is one observation.
    Whole,
    /// All of it in windows, each of which is one observation over all seeds, for these replay the same requests.
    Windows,
    /// The same of its later half.
    LaterWindows,
}

// === impl Part ===

impl Part {
    /// What a stage of the search shows.
    fn of(stage: &Stage) -> Self {
        match stage {
            Stage::Seeds(_) => Self::Whole,
            Stage::Rows { .. } => Self::Windows,
        }
    }

    /// The requests of each observation of one run.
    pub(super) fn cuts(self, records: &[RequestRecord]) -> Vec<&[RequestRecord]> {
        let windows = |part: &[RequestRecord]| part.len().div_ceil(WINDOWS).max(1);
        match self {
            Self::Whole => vec![records],
            Self::Windows => records.chunks(windows(records)).collect(),
            Self::LaterWindows => {
                let later = &records[records.len() / 2..];
                later.chunks(windows(later)).collect()
            }
        }
    }

    /// The observations, of the figures of every run.
    pub(super) fn observations(self, runs: &[Vec<f64>]) -> Vec<f64> {
        if self == Self::Whole {
            return runs.iter().flatten().copied().collect();
        }
        let count = runs.first().map_or(0, Vec::len);
        let over_seeds = |at: usize| {
            let all: Vec<f64> = runs.iter().filter_map(|run| run.get(at).copied()).collect();
            mean(&all)
        };
        (0..count).filter_map(over_seeds).collect()
    }
}

/// The observations of each cell, on what the search may see.
pub(super) fn of_search(
    search: &Search<'_>,
    cells: &[&Cell],
    stage: &Stage,
    what: &str,
) -> Result<Vec<Vec<f64>>, SearchError> {
    let part = Part::of(stage);
    let jobs = search.jobs(&stage.cut(cells), stage.seeds());
    let progress = search.progress(what, jobs.len());
    let figure = |records: &[RequestRecord]| search.objective.of(records, search.scenario.slo);
    let runs = pool::run(&jobs, &progress, |_, run| {
        Ok(part.cuts(&run.records).into_iter().map(figure).collect::<Vec<f64>>())
    })?;
    Ok(runs.chunks(stage.seeds().len().max(1)).map(|of| part.observations(of)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_one_observation_whatever_the_seeds() {
        let runs = [vec![1.0, 2.0], vec![3.0, 6.0]];
        assert_eq!(Part::Windows.observations(&runs), [2.0, 4.0]);
        assert_eq!(Part::Whole.observations(&runs), [1.0, 2.0, 3.0, 6.0]);
        let records: Vec<RequestRecord> = (0..96).map(|seq| RequestRecord::sent(seq, None, 0, 0)).collect();
        let firsts = |part: Part| part.cuts(&records).iter().map(|cut| cut[0].seq).collect::<Vec<u64>>();
        let later = firsts(Part::LaterWindows);
        assert_eq!((later.len(), later[0], later[23]), (24, 48, 94));
        assert_eq!((firsts(Part::Windows)[23], firsts(Part::Whole)), (92, vec![0]));
    }
}
