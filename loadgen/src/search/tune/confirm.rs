//! The best setting against the present one, on what the search has not seen.

use serde::{Serialize, Serializer};

use super::Search;
use super::figures::Figures;
use super::sample::Part;
use crate::report::RunSummary;
use crate::run::Run;
use crate::scenario::{Cell, Scenario, Workload};
use crate::search::SearchError;
use crate::search::pool;
use crate::statistics::{Interval, bootstrap, mean};

/// A gain of less than this share is not worth a change of settings.
pub const LEAST_GAIN: f64 = 0.01;
/// Fewest seeds that a verdict rests upon. It is chosen: of fewer, an interval that is drawn again from what was measured is too
/// narrow, and chance passes for a gain more often than once in forty times; more would cost more runs than the search.
const FEWEST: u32 = 20;

/// What the comparison has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Better, and by more than chance.
    Change,
    /// The gain is real but too small to matter.
    Small,
    /// The gain may be chance.
    Noise,
    /// No setting was better in the search.
    Unbeaten,
    /// No setting changed the objective at all.
    Equal,
}

/// A setting and what it came to on what the search has not seen.
#[derive(Debug)]
pub struct Side {
    /// The setting.
    pub cell: Cell,
    /// Its runs without their requests, and their figures: of all requests, also where only a part counts.
    pub runs: Vec<Run>,
    /// See `runs`.
    pub summaries: Vec<RunSummary>,
    /// The mean of the objective.
    pub value: f64,
    /// What else is told.
    pub figures: Figures,
    /// Whether prompts share anything: with one cache that forgets nothing, some of them would be found. Absent where nobody
    /// knows.
    pub shares: Option<bool>,
    observations: Vec<f64>,
}

/// The best setting but the present one.
#[derive(Debug)]
pub struct Challenger {
    /// The setting.
    pub side: Side,
    /// Options that the search had changed and that were put back, as it was no better with them.
    pub put_back: Vec<String>,
    /// The gain as a share of the present figure; positive is better. In the figure's own unit where that is 0.
    pub gain: f64,
    /// The 95 % interval of the gain.
    pub interval: Option<Interval>,
}

/// The best setting against the present one.
#[derive(Debug)]
pub struct Confirmation {
    /// The setting in use.
    pub present: Side,
    /// The best other one; absent where no setting changed anything.
    pub challenger: Option<Challenger>,
    /// The best setting of each policy that is neither.
    pub others: Vec<Side>,
    /// On what they were compared, in words.
    pub unseen: String,
    /// Whether that is a part of the requests of each run.
    pub is_part: bool,
    /// What it has come to.
    pub verdict: Verdict,
}

/// What is compared.
pub(super) struct Candidates {
    pub(super) present: Cell,
    pub(super) challenger: Option<Best>,
    pub(super) others: Vec<Cell>,
}

/// The best setting of the search but the present one.
pub(super) struct Best {
    pub(super) cell: Cell,
    /// The options that were put back in it.
    pub(super) put_back: Vec<String>,
    /// Whether it was better than the present one in the search.
    pub(super) led: bool,
}

/// The seeds: others than those of the search; for a trace, whose later half is new, the same.
fn held_out(scenario: &Scenario, seeds: u32) -> Vec<u64> {
    match scenario.workload {
        Workload::Trace(_) => scenario.seeds(Some(seeds)).collect(),
        _ => {
            let skipped = scenario.seeds(Some(seeds)).count();
            scenario.seeds(Some(seeds + seeds.max(FEWEST))).skip(skipped).collect()
        }
    }
}

/// Compares them, all under the whole work of the scenario.
pub(super) fn run(search: &Search<'_>, candidates: Candidates) -> Result<Confirmation, SearchError> {
    let is_part = matches!(search.scenario.workload, Workload::Trace(_));
    let part = if is_part { Part::LaterWindows } else { Part::Whole };
    let seeds = held_out(search.scenario, search.seeds);
    let Candidates { present, challenger, others } = candidates;
    let cells: Vec<Cell> = [Some(present), challenger.as_ref().map(|best| best.cell.clone())]
        .into_iter()
        .flatten()
        .chain(others)
        .collect();
    let mut sides = sides(search, &cells, &seeds, part)?;
    let present = sides.remove(0);
    let challenger =
        challenger.map(|best| (Challenger::of(search, sides.remove(0), &present, &best), best.led));
    let verdict = challenger.as_ref().map_or(Verdict::Equal, |(found, led)| {
        if *led { verdict(found.gain, found.interval) } else { Verdict::Unbeaten }
    });
    let count = present.observations.len();
    let unseen = if is_part {
        format!("the later half of the trace, in {count} windows over {} seeds", seeds.len())
    } else {
        format!("{count} seeds that the search has not seen")
    };
    let challenger = challenger.map(|(found, _)| found);
    Ok(Confirmation { present, challenger, others: sides, unseen, is_part, verdict })
}

/// Runs the cells with all seeds.
fn sides(search: &Search<'_>, cells: &[Cell], seeds: &[u64], part: Part) -> Result<Vec<Side>, SearchError> {
    let jobs = search.jobs(cells, seeds);
    let progress = search.progress("the best against the present", jobs.len());
    let slo = search.scenario.slo;
    let measured = pool::run(&jobs, &progress, |place, run| {
        let cuts = part.cuts(&run.records);
        let cost = &jobs[place].cell.scenario.fleet.engine.config().cost;
        Ok(Measured {
            values: cuts.iter().map(|cut| search.objective.of(cut, slo)).collect(),
            figures: cuts.iter().map(|cut| Figures::of(cut, cost)).collect(),
            shares: run.reach.map(|reach| reach.infinite > 0.0),
            summary: RunSummary::of(run, slo),
        })
    })?;
    let of_cells = cells.iter().zip(measured.chunks(seeds.len().max(1)));
    Ok(of_cells.map(|(cell, measured)| Side::of(cell, seeds, measured, part)).collect())
}

/// One run.
struct Measured {
    values: Vec<f64>,
    figures: Vec<Figures>,
    shares: Option<bool>,
    summary: RunSummary,
}

fn verdict(gain: f64, interval: Option<Interval>) -> Verdict {
    match interval {
        Some(interval) if interval.low > 0.0 && gain < LEAST_GAIN => Verdict::Small,
        Some(interval) if interval.low > 0.0 => Verdict::Change,
        _ => Verdict::Noise,
    }
}

// === impl Verdict ===

impl Verdict {
    /// The word in files, and for scripts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Change => "change",
            Self::Small => "small",
            Self::Noise => "noise",
            Self::Unbeaten => "unbeaten",
            Self::Equal => "equal",
        }
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

// === impl Side ===

impl Side {
    fn of(cell: &Cell, seeds: &[u64], measured: &[Measured], part: Part) -> Self {
        let values: Vec<Vec<f64>> = measured.iter().map(|run| run.values.clone()).collect();
        let figures: Vec<Figures> = measured.iter().flat_map(|run| run.figures.iter().copied()).collect();
        let observations = part.observations(&values);
        Self {
            cell: cell.clone(),
            runs: seeds.iter().map(|seed| Run::without_records(cell, *seed)).collect(),
            summaries: measured.iter().map(|run| run.summary.clone()).collect(),
            value: mean(&observations).unwrap_or(0.0),
            figures: Figures::mean(&figures),
            shares: measured.iter().filter_map(|run| run.shares).reduce(|a, b| a || b),
            observations,
        }
    }
}

// === impl Challenger ===

impl Challenger {
    fn of(search: &Search<'_>, side: Side, present: &Side, best: &Best) -> Self {
        let gains = search.objective.gains(&side.observations, &present.observations);
        Self {
            side,
            put_back: best.put_back.clone(),
            gain: mean(&gains).unwrap_or(0.0),
            interval: bootstrap::mean_of_differences(&gains, search.scenario.seed),
        }
    }
}

// === impl Confirmation ===

impl Confirmation {
    /// What is to be used: the best setting where a change is recommended, the present one otherwise.
    #[must_use]
    pub fn advised(&self) -> &Side {
        match &self.challenger {
            Some(best) if self.verdict == Verdict::Change => &best.side,
            _ => &self.present,
        }
    }

    /// All that were compared, the present setting first and the best other one next.
    pub fn sides(&self) -> impl Iterator<Item = &Side> {
        let best = self.challenger.as_ref().map(|best| &best.side);
        std::iter::once(&self.present).chain(best).chain(&self.others)
    }
}

#[cfg(test)]
mod tests {
    use rand::RngExt;
    use rand_pcg::Pcg64;

    use super::*;

    #[test]
    fn only_a_sure_and_useful_gain_is_a_reason_to_change() {
        let of = |low: f64, high: f64| Some(Interval { low, high });
        assert_eq!(verdict(0.05, of(0.02, 0.08)), Verdict::Change);
        assert_eq!(verdict(0.05, of(-0.01, 0.11)), Verdict::Noise);
        assert_eq!(verdict(0.004, of(0.003, 0.005)), Verdict::Small);
        assert_eq!(verdict(0.0, of(0.0, 0.0)), Verdict::Noise);
        assert_eq!(verdict(0.5, None), Verdict::Noise, "one observation proves nothing");
    }

    /// Settings that differ by chance alone: the mean of 24 gains is above 0, surely, once in forty times.
    #[test]
    fn chance_is_seldom_taken_for_a_gain() {
        let mut draws = Pcg64::new(1, 2);
        let mut noise = || {
            let sum: f64 = (0..12).map(|_| draws.random::<u32>() as f64 / f64::from(u32::MAX)).sum();
            (sum - 6.0) * 0.1
        };
        let changes = (0..200).filter(|seed| {
            let gains: Vec<f64> = (0..24).map(|_| noise()).collect();
            let interval = bootstrap::mean_of_differences(&gains, *seed);
            verdict(mean(&gains).unwrap(), interval) == Verdict::Change
        });
        let changes = changes.count();
        assert!(changes <= 14, "{changes} of 200");
    }
}
