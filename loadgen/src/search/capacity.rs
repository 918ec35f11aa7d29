//! The highest load that meets the service level objectives, for each policy.
//!
//! The load is doubled until the objectives are missed (or halved until they are met), then the gap is halved until it is
//! narrow. A load is judged by the median over the seeds of the share of requests that met both objectives; all policies and
//! all loads meet the same seeds.

use serde::Serialize;

use super::pool::{self, Job};
use super::{Progress, SearchError};
use crate::report::RunSummary;
use crate::scenario::{Cell, Scenario, Template};
use crate::statistics::median;

/// The gap between the highest load that is met and the lowest one that is not, as a ratio.
const NARROW: f64 = 1.02;
/// The load is doubled, or halved, at most this often.
const MOST_DOUBLINGS: u32 = 12;
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

/// The key that the load is changed by, and what is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dial {
    path: [&'static str; 2],
    /// The unit of a load.
    pub unit: &'static str,
}

/// What was found for one policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Capacity {
    /// The policy.
    pub policy: String,
    /// The highest load that met the objectives; absent where even the lowest one that was tried did not.
    pub highest: Option<f64>,
    /// The lowest load that did not; absent where even the highest one that was tried did.
    pub exceeded_at: Option<f64>,
    /// What was tried, in that order.
    pub points: Vec<Point>,
}

/// One load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// The load.
    pub load: f64,
    /// Median share of the requests that met both objectives.
    pub attainment: f64,
    /// Whether that is enough.
    pub met: bool,
    /// The median 90th percentile of the time to first token, in milliseconds.
    pub ttft_p90_ms: Option<f64>,
    /// The median of the time from the first intended send to the last byte, in seconds.
    pub makespan_s: f64,
    /// The share for each seed.
    pub seeds: Vec<f64>,
}

impl Dial {
    /// What changes the load of `scenario`, and where it stands.
    ///
    /// # Errors
    /// Its arrivals have no rate.
    pub fn of(template: &Template) -> Result<(Self, f64), SearchError> {
        let is_trace = template.word(&["workload", "kind"]) == Some("trace");
        let kind = template.word(&["arrival", "kind"]).unwrap_or(if is_trace { "trace" } else { "" });
        let (dial, start) = match kind {
            "trace" if is_trace => {
                let dial = Self { path: ["workload", "speedup"], unit: "x the recorded speed" };
                (dial, Some(template.number(&dial.path).unwrap_or(1.0)))
            }
            _ => {
                let dial = Self { path: ["arrival", "rate"], unit: "requests/s" };
                (dial, template.number(&dial.path))
            }
        };
        let start = start.filter(|_| kind != "burst" && kind != "closed");
        let refused = || {
            let remedy = "use poisson, constant or gamma, or replay a trace by its own times";
            SearchError::Asked(format!(
                "capacity changes the rate of arrivals, and kind = \"{kind}\" has none; {remedy}"
            ))
        };
        start.map(|start| (dial, start)).ok_or_else(refused)
    }
}

/// Finds the capacity of every policy of the scenario, and what is to be said about the figures.
///
/// # Errors
/// Nothing can be judged or changed here, or a run cannot be done.
pub fn run(template: &Template, question: Question) -> Result<(Dial, Vec<Capacity>), SearchError> {
    let (dial, start) = Dial::of(template)?;
    let scenario = template.scenario()?;
    if scenario.slo.is_none() {
        let asked =
            "there are no objectives to meet: add [slo] to the scenario, or give --slo-ttft and --slo-tpot";
        return Err(SearchError::Asked(asked.to_owned()));
    }
    let cells = scenario.cells();
    let mut found: Vec<(Bisection, Vec<Point>)> =
        cells.iter().map(|_| (Bisection::new(start), Vec::new())).collect();
    loop {
        let asked: Vec<(usize, f64)> = found
            .iter()
            .enumerate()
            .filter_map(|(place, (bisection, _))| Some((place, bisection.next()?)))
            .collect();
        if asked.is_empty() {
            break;
        }
        let points = try_loads(template, dial, &scenario, &asked, question)?;
        for ((place, _), point) in asked.into_iter().zip(points) {
            if !question.quiet {
                eprintln!("{}: {}", cells[place].policy.name(), point.told(dial));
            }
            found[place].0.tell(point.load, point.met);
            found[place].1.push(point);
        }
    }
    let capacity = |(cell, (bisection, points)): (&Cell, (Bisection, Vec<Point>))| Capacity {
        policy: cell.policy.name().to_owned(),
        highest: bisection.met,
        exceeded_at: bisection.missed,
        points,
    };
    Ok((dial, cells.iter().zip(found).map(capacity).collect()))
}

/// Runs each policy in `asked` (its place among the cells) at its load.
fn try_loads(
    template: &Template,
    dial: Dial,
    scenario: &Scenario,
    asked: &[(usize, f64)],
    question: Question,
) -> Result<Vec<Point>, SearchError> {
    let seeds: Vec<u64> = scenario.seeds(question.seeds).collect();
    let mut jobs = Vec::new();
    let mut known: Vec<(f64, Vec<Cell>)> = Vec::new();
    for (place, load) in asked {
        if !known.iter().any(|(of, _)| of == load) {
            known.push((*load, template.with(&dial.path, *load).scenario()?.cells()));
        }
        let cell = known.iter().find(|(of, _)| of == load).map(|(_, cells)| cells[*place].clone());
        jobs.extend(
            cell.into_iter()
                .flat_map(|cell| seeds.iter().map(move |seed| Job { cell: cell.clone(), seed: *seed })),
        );
    }
    let progress = Progress::of_part(&format!("capacity {}", scenario.name), jobs.len(), question.quiet);
    let summaries = pool::run(&jobs, &progress, |_, run| Ok(RunSummary::of(run, scenario.slo)))?;
    let point = |((_, load), of): (&(usize, f64), &[RunSummary])| Point::of(*load, of, question.attainment);
    Ok(asked.iter().zip(summaries.chunks(seeds.len())).map(point).collect())
}

impl Point {
    fn of(load: f64, summaries: &[RunSummary], least: f64) -> Self {
        let seeds: Vec<f64> = summaries.iter().filter_map(|summary| summary.slo_attainment).collect();
        let middle = |figure: fn(&RunSummary) -> Option<f64>| {
            median(&summaries.iter().filter_map(figure).collect::<Vec<_>>())
        };
        let attainment = median(&seeds).unwrap_or(0.0);
        Self {
            load,
            attainment,
            met: attainment >= least,
            ttft_p90_ms: middle(|summary| summary.ttft_ms.p90),
            makespan_s: middle(|summary| Some(summary.makespan_s)).unwrap_or(0.0),
            seeds,
        }
    }

    /// The point in words.
    fn told(&self, dial: Dial) -> String {
        let verdict = if self.met { "met" } else { "missed" };
        format!(
            "{} {}: objectives {verdict}, {:.2} % of the requests",
            self.load,
            dial.unit,
            self.attainment * 100.0
        )
    }
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

/// The search for the place where something ends to hold.
#[derive(Debug, Clone, PartialEq)]
struct Bisection {
    start: f64,
    met: Option<f64>,
    missed: Option<f64>,
    steps: u32,
}

impl Bisection {
    fn new(start: f64) -> Self {
        Self { start, met: None, missed: None, steps: 0 }
    }

    /// What to try next; `None` when it is known well enough.
    fn next(&self) -> Option<f64> {
        match (self.met, self.missed) {
            (None, None) => Some(self.start),
            (Some(met), None) => (self.steps <= MOST_DOUBLINGS).then_some(met * 2.0),
            (None, Some(missed)) => (self.steps <= MOST_DOUBLINGS).then_some(missed / 2.0),
            // A load that is met above one that was missed: chance, and no gap to halve.
            (Some(met), Some(missed)) => (missed / met > NARROW).then(|| short((met * missed).sqrt())),
        }
    }

    fn tell(&mut self, at: f64, met: bool) {
        self.steps += 1;
        let side = if met { &mut self.met } else { &mut self.missed };
        *side = Some(at);
    }
}

/// A load with four digits: nobody needs more, and people have to read it.
fn short(load: f64) -> f64 {
    let scale = 10_f64.powi(3 - load.log10().floor() as i32);
    (load * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(start: f64, limit: f64) -> (Bisection, usize) {
        let mut bisection = Bisection::new(start);
        let mut tries = 0;
        while let Some(at) = bisection.next() {
            bisection.tell(at, at <= limit);
            tries += 1;
        }
        (bisection, tries)
    }

    #[test]
    fn the_limit_is_found_from_either_side_within_two_percent() {
        for start in [1.0, 10.0, 37.0, 900.0] {
            let (found, tries) = search(start, 42.0);
            let (met, missed) = (found.met.unwrap(), found.missed.unwrap());
            assert!(met <= 42.0 && missed > 42.0 && missed / met <= NARROW, "{start}: {found:?}");
            assert!(tries <= 14, "{start}: {tries}");
        }
    }

    #[test]
    fn no_limit_ends_too() {
        let (found, tries) = search(1.0, f64::INFINITY);
        assert_eq!((found.met, found.missed, tries), (Some(4096.0), None, 13));
        let (found, _) = search(1.0, 0.0);
        assert_eq!((found.met, found.missed), (None, Some(1.0 / 4096.0)));
    }
}
