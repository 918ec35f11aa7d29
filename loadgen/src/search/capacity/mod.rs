//! The highest load that meets the service level objectives, for each policy.
//!
//! The load is doubled until the objectives are missed, or lowered until they are met, and then the gap is halved until it is
//! narrow. A load is judged by the median over the seeds of the share of requests that met both objectives; all policies and
//! all loads meet the same seeds. The search ends at the range of the key that changes the load, and where even an idle fleet
//! misses: then no load is low enough, and the answer says why.

mod bisection;
mod dial;
mod point;

use serde::Serialize;

use super::SearchError;
use super::pool::{self, Job};
use crate::progress::Display;
use crate::report::Slo;
use crate::say::note;
use crate::scenario::{Cell, Scenario, Template};
use bisection::Bisection;
pub use dial::Dial;
pub use point::Point;
use point::Seen;

/// A schedule that is shorter than this many times the TTFT objective tells little of a steady load.
const STEADY: f64 = 10.0;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Question {
    /// Share of the requests that have to meet both objectives.
    pub attainment: f64,
    /// How many seeds; the scenario's own number when absent.
    pub seeds: Option<u32>,
    /// Show no progress.
    pub quiet: bool,
}

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The limit is known.
    Found,
    /// Even the highest load that can be asked for meets the objectives.
    MoreThan,
    /// Even the lowest load that can be asked for does not.
    None,
    /// Even an idle fleet does not.
    Unreachable,
}

/// What was found for one policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Capacity {
    /// The policy.
    pub policy: String,
    /// How the search ended.
    pub verdict: Verdict,
    /// The highest load that met the objectives; absent where even the lowest one that was tried did not.
    pub highest: Option<f64>,
    /// The lowest load that did not; absent where even the highest one that was tried did.
    pub exceeded_at: Option<f64>,
    /// Why no load is low enough, in words; absent where one is.
    pub cause: Option<String>,
    /// What was tried, in that order.
    pub points: Vec<Point>,
}

impl Capacity {
    fn of(policy: &str, slo: Slo, dial: &Dial, Search { bisection, points }: Search) -> Self {
        let lowest = points.iter().min_by(|a, b| a.load.total_cmp(&b.load));
        let cause = lowest.filter(|_| bisection.met.is_none()).map(|point| {
            let idle = if point.is_idle() { "an idle fleet meets them" } else { "the lowest load is met" };
            let share = point.attainment * 100.0;
            format!(
                "even {idle} for {share:.2} % only (at {} {}): {}",
                point.load,
                dial.unit,
                point.cause(slo)
            )
        });
        let verdict = match (bisection.met, bisection.missed) {
            (Some(_), Some(_)) => Verdict::Found,
            (Some(_), None) => Verdict::MoreThan,
            (None, _) if lowest.is_some_and(Point::is_idle) => Verdict::Unreachable,
            (None, _) => Verdict::None,
        };
        let (highest, exceeded_at) = (bisection.met, bisection.missed);
        Self { policy: policy.to_owned(), verdict, highest, exceeded_at, cause, points }
    }
}

/// The search for one policy.
struct Search {
    bisection: Bisection,
    points: Vec<Point>,
}

/// Finds the capacity of every policy of the scenario, and what is to be said about the figures.
///
/// # Errors
/// Nothing can be judged or changed here, or a run cannot be done.
pub fn run(template: &Template, question: Question) -> Result<(Dial, Vec<Capacity>), SearchError> {
    let (dial, start) = Dial::of(template)?;
    let scenario = template.scenario()?;
    let Some(slo) = scenario.slo else {
        let asked =
            "there are no objectives to meet: add [slo] to the scenario, or give --slo-ttft and --slo-tpot";
        return Err(SearchError::Asked(asked.to_owned()));
    };
    let cells = scenario.cells();
    let search =
        |_: &Cell| Search { bisection: Bisection::new(start, dial.range.clone()), points: Vec::new() };
    let mut found: Vec<Search> = cells.iter().map(search).collect();
    loop {
        let asked = possible(template, &dial, &mut found);
        if asked.is_empty() {
            break;
        }
        let points = try_loads(&scenario, slo, &asked, question)?;
        for (Asked { place, .. }, point) in asked.into_iter().zip(points) {
            if !question.quiet {
                note(format_args!("{}: {}", cells[place].policy.name(), point.told(&dial)));
            }
            found[place].bisection.tell(point.load, point.met, point.is_idle());
            found[place].points.push(point);
        }
    }
    let capacity = |(cell, search): (&Cell, Search)| Capacity::of(cell.policy.name(), slo, &dial, search);
    let capacities = cells.iter().zip(found).map(capacity).collect();
    Ok((dial, capacities))
}

/// A load that is to be tried for a policy.
struct Asked {
    /// The policy's place among the cells.
    place: usize,
    load: f64,
    /// The policy under that load.
    cell: Cell,
}

/// What every search wants to try next. One whose next load makes no scenario, because its schedule would be too long, ends.
fn possible(template: &Template, dial: &Dial, found: &mut [Search]) -> Vec<Asked> {
    let mut known: Vec<(f64, Option<Vec<Cell>>)> = Vec::new();
    let mut asked = Vec::new();
    for (place, search) in found.iter_mut().enumerate() {
        let Some(load) = search.bisection.next() else { continue };
        if !known.iter().any(|(of, _)| *of == load) {
            let scenario = template.with(&dial.path, load).scenario();
            known.push((load, scenario.ok().map(|scenario| scenario.cells())));
        }
        let cells = known.iter().find(|(of, _)| *of == load).and_then(|(_, cells)| cells.as_ref());
        match cells {
            Some(cells) => asked.push(Asked { place, load, cell: cells[place].clone() }),
            None => search.bisection.refuse(),
        }
    }
    asked
}

/// Runs each policy at its load.
fn try_loads(
    scenario: &Scenario,
    slo: Slo,
    asked: &[Asked],
    question: Question,
) -> Result<Vec<Point>, SearchError> {
    let seeds: Vec<u64> = scenario.seeds(question.seeds).collect();
    let with_seeds = |one: &Asked| {
        seeds.iter().map(|seed| Job { cell: one.cell.clone(), seed: *seed }).collect::<Vec<_>>()
    };
    let jobs: Vec<Job> = asked.iter().flat_map(with_seeds).collect();
    let progress = Display::of_part(question.quiet).task(
        format!("capacity {}", scenario.name),
        jobs.len() as u64,
        "runs",
    );
    let seen = pool::run(&jobs, &progress, |_, run| Ok(Seen::of(run, slo)))?;
    let point = |(one, runs): (&Asked, &[Seen])| Point::of(one.load, runs, question.attainment);
    Ok(asked.iter().zip(seen.chunks(seeds.len())).map(point).collect())
}

/// Where a figure may rest upon too little: a schedule that was over before queues could build up.
#[must_use]
pub fn caveat(scenario: &Scenario, capacities: &[Capacity]) -> Option<String> {
    let least = scenario.slo?.ttft_ns as f64 / 1e9 * STEADY;
    let short = capacities.iter().filter_map(|capacity| {
        let at = capacity.points.iter().find(|point| Some(point.load) == capacity.highest)?;
        (at.makespan_s < least).then_some((&capacity.policy, at.makespan_s))
    });
    let (policy, seconds) = short.min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(format!(
        "at its capacity {policy} was done after {seconds:.1} s, less than 10 times the TTFT objective: a longer workload \
         tells more of a steady load"
    ))
}

#[cfg(test)]
mod tests;
