//! The best setting against the present one, on what the search has not seen.

use protocol::record::RequestRecord;
use router_core::PolicyConfig;
use serde::Serialize;

use super::objective::Objective;
use crate::report::RunSummary;
use crate::run::Run;
use crate::scenario::{Cell, Scenario, Workload};
use crate::search::pool::{self, Job};
use crate::search::{Progress, SearchError};
use crate::statistics::{Interval, bootstrap, mean};

/// A gain of less than this share is not worth a change of settings.
pub const LEAST_GAIN: f64 = 0.01;
/// Fewest seeds that a verdict rests upon: of fewer, an interval that is drawn again from what was measured is too narrow.
pub(super) const FEWEST: u32 = 20;
/// Windows of the later half of a trace.
const WINDOWS: usize = 24;

/// What the comparison has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Better, and by more than chance.
    Change,
    /// No setting was better in the search.
    Unbeaten,
    /// The gain may be chance.
    Noise,
    /// The gain is real but too small to matter.
    Small,
}

/// The best setting against the present one.
#[derive(Debug)]
pub struct Confirmation {
    /// The best setting of the search.
    pub policy: PolicyConfig,
    /// The cells that were compared: the present one, and the best one if it is another.
    pub cells: Vec<Cell>,
    /// The runs of both without their requests, and their figures.
    pub runs: Vec<Run>,
    /// See `runs`.
    pub summaries: Vec<RunSummary>,
    /// On what it was compared, in words.
    pub unseen: String,
    /// The mean figure of the present setting.
    pub base: f64,
    /// The mean figure of the best one.
    pub best: f64,
    /// The gain as a share of the present figure; positive is better. In the figure's own unit where that is 0.
    pub gain: f64,
    /// The 95 % interval of the gain.
    pub interval: Option<Interval>,
    /// What it has come to.
    pub verdict: Verdict,
}

/// How many runs it takes.
pub(super) fn runs(scenario: &Scenario, seeds: u32) -> usize {
    2 * held_out(scenario, seeds).len()
}

/// The seeds: others than those of the search; for a trace, whose later half is new, the same.
fn held_out(scenario: &Scenario, seeds: u32) -> Vec<u64> {
    match scenario.workload {
        Workload::Trace(_) => scenario.seeds(Some(seeds)).collect(),
        _ => {
            let skipped = scenario.seeds(Some(seeds)).count();
            scenario.seeds(Some(seeds + (2 * seeds).max(FEWEST))).skip(skipped).collect()
        }
    }
}

/// Compares `best` with `base`, both under the whole work of `scenario`.
pub(super) fn run(
    scenario: &Scenario,
    base: &Cell,
    best: &Cell,
    objective: Objective,
    seeds: u32,
    progress: &Progress,
) -> Result<Confirmation, SearchError> {
    let is_trace = matches!(scenario.workload, Workload::Trace(_));
    let beaten = !std::ptr::eq(base, best);
    let seeds = held_out(scenario, seeds);
    let cells: Vec<Cell> = if beaten { vec![base.clone(), best.clone()] } else { vec![base.clone()] };
    let jobs: Vec<Job> = cells
        .iter()
        .flat_map(|cell| seeds.iter().map(|seed| Job { cell: cell.clone(), seed: *seed }))
        .collect();
    let found = pool::run(&jobs, progress, |_, run| {
        let figures = figures(&run.records, is_trace, |records| objective.of(records, scenario.slo));
        Ok((figures, RunSummary::of(run, scenario.slo)))
    })?;
    let (figures, summaries): (Vec<Vec<f64>>, Vec<RunSummary>) = found.into_iter().unzip();
    let sides: Vec<Vec<f64>> = figures.chunks(seeds.len()).map(|of| samples(of, is_trace)).collect();
    let runs = jobs.iter().map(|job| Run::without_records(&job.cell, job.seed)).collect();
    let (first, last) = (&sides[0], &sides[sides.len() - 1]);
    let (base_mean, best_mean) = (mean(first).unwrap_or(0.0), mean(last).unwrap_or(0.0));
    let scale = if base_mean == 0.0 { 1.0 } else { base_mean.abs() };
    let gains: Vec<f64> =
        first.iter().zip(last).map(|(base, best)| objective.gain(*best, *base) / scale).collect();
    let gain = mean(&gains).unwrap_or(0.0);
    let interval = bootstrap::mean_of_differences(&gains, scenario.seed);
    let unseen = match is_trace {
        true => format!("the later half of the trace, in {} windows", first.len()),
        false => format!("{} seeds that the search has not seen", first.len()),
    };
    Ok(Confirmation {
        policy: best.policy.clone(),
        cells,
        runs,
        summaries,
        unseen,
        base: base_mean,
        best: best_mean,
        gain,
        interval,
        verdict: verdict(beaten, gain, interval),
    })
}

fn verdict(beaten: bool, gain: f64, interval: Option<Interval>) -> Verdict {
    match interval {
        _ if !beaten => Verdict::Unbeaten,
        Some(interval) if interval.low > 0.0 && gain < LEAST_GAIN => Verdict::Small,
        Some(interval) if interval.low > 0.0 => Verdict::Change,
        _ => Verdict::Noise,
    }
}

/// The figures of one run: one, or of a trace one for each window of its later half.
fn figures(records: &[RequestRecord], windows: bool, of: impl Fn(&[RequestRecord]) -> f64) -> Vec<f64> {
    if !windows {
        return vec![of(records)];
    }
    let later = &records[records.len() / 2..];
    later.chunks(later.len().div_ceil(WINDOWS).max(1)).map(of).collect()
}

/// What counts as one observation: a seed; or of a trace a window, over all seeds, for they all replay the same requests.
fn samples(figures: &[Vec<f64>], windows: bool) -> Vec<f64> {
    if !windows {
        return figures.iter().flatten().copied().collect();
    }
    let count = figures.first().map_or(0, Vec::len);
    let over_seeds = |at: usize| {
        let all: Vec<f64> = figures.iter().filter_map(|run| run.get(at).copied()).collect();
        mean(&all)
    };
    (0..count).filter_map(over_seeds).collect()
}

#[cfg(test)]
mod tests {
    use rand::RngExt;
    use rand_pcg::Pcg64;

    use super::*;

    #[test]
    fn only_a_sure_and_useful_gain_is_a_reason_to_change() {
        let of = |low: f64, high: f64| Some(Interval { low, high });
        assert_eq!(verdict(true, 0.05, of(0.02, 0.08)), Verdict::Change);
        assert_eq!(verdict(true, 0.05, of(-0.01, 0.11)), Verdict::Noise);
        assert_eq!(verdict(true, 0.004, of(0.003, 0.005)), Verdict::Small);
        assert_eq!(verdict(true, 0.0, of(0.0, 0.0)), Verdict::Noise);
        assert_eq!(verdict(true, 0.5, None), Verdict::Noise, "one observation proves nothing");
        assert_eq!(verdict(false, 0.0, of(0.0, 0.0)), Verdict::Unbeaten);
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
            verdict(true, mean(&gains).unwrap(), interval) == Verdict::Change
        });
        let changes = changes.count();
        assert!(changes <= 14, "{changes} of 200");
    }

    #[test]
    fn a_window_is_one_observation_whatever_the_seeds() {
        let runs = [vec![1.0, 2.0], vec![3.0, 6.0]];
        assert_eq!(samples(&runs, true), [2.0, 4.0]);
        assert_eq!(samples(&runs, false), [1.0, 2.0, 3.0, 6.0]);
        let records: Vec<RequestRecord> = (0..96).map(|seq| RequestRecord::sent(seq, None, 0, 0)).collect();
        let firsts = figures(&records, true, |window| window[0].seq as f64);
        assert_eq!((firsts.len(), firsts[0], firsts[23]), (24, 48.0, 94.0));
    }
}
