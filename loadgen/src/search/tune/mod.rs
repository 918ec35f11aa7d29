//! The best settings of a policy for a scenario or a trace.
//!
//! Successive halving (K. Jamieson and A. Talwalkar, 2016): many settings are tried on little, the better third of them on
//! more. Of the best, options that its gain does not come from are put back; the rest is confirmed against the present settings
//! on what the search has not seen. Every setting meets the same requests, so that only differences count. What the search has
//! looked at is never what the verdict rests upon: the best of many figures is too good by chance.
//!
//! Of a generated workload "more" is more seeds, and what was not seen is other seeds. Of a trace it is more of its first half,
//! and what was not seen is its later half, cut into windows.

mod advice;
mod confirm;
mod figures;
mod file;
mod halving;
mod objective;
mod reduce;
mod sample;
mod space;
mod stage;

pub use advice::{conclusion, flags, reason, told};
pub use confirm::{Challenger, Confirmation, LEAST_GAIN, Side, Verdict};
pub use figures::Figures;
pub use file::file;
pub use halving::Tried;
pub use objective::Objective;
pub use space::Space;

use router_core::{OptionValue, PolicyConfig};
use serde_json::Value;

use super::SearchError;
use super::pool::{self, Job};
use crate::progress::{Display, Task};
use crate::run::Params;
use crate::scenario::{Cell, Scenario};
use confirm::{Best, Candidates};

/// What is asked.
#[derive(Debug, Clone)]
pub struct Question {
    /// The figure that shall be better.
    pub objective: Objective,
    /// The settings that may change.
    pub space: Space,
    /// How many settings are tried beside the present ones.
    pub budget: usize,
    /// Seeds of the last stage; of a generated workload as many others, and at least 20, confirm.
    pub seeds: u32,
    /// Show no progress.
    pub quiet: bool,
}

/// What was found.
#[derive(Debug)]
pub struct Tuned {
    /// All settings that were tried, in the order in which they were drawn; the first are the present ones.
    pub tried: Vec<Tried>,
    /// How many are present ones: one for each policy.
    pub present: usize,
    /// How far each stage went, in words.
    pub stages: Vec<String>,
    /// The best setting against the present one.
    pub confirmation: Confirmation,
}

impl Tuned {
    /// How many settings were tried beside the present ones.
    #[must_use]
    pub fn drawn(&self) -> usize {
        self.tried.len() - self.present
    }
}

/// What all parts of a search know.
struct Search<'q> {
    scenario: &'q Scenario,
    objective: Objective,
    seeds: u32,
    quiet: bool,
}

impl Search<'_> {
    /// The progress of one part, whose runs are known.
    fn progress(&self, part: &str, runs: usize) -> Task {
        Display::new(self.quiet).task(format!("tune {}, {part}", self.scenario.name), runs as u64, "runs")
    }

    /// Every cell with every seed.
    fn jobs(&self, cells: &[Cell], seeds: &[u64]) -> Vec<Job> {
        let of = |cell: &Cell| seeds.iter().map(|seed| Job { cell: cell.clone(), seed: *seed }).collect();
        cells.iter().flat_map(|cell| -> Vec<Job> { of(cell) }).collect()
    }
}

/// Looks for better settings of the policies of `scenario`, the first of which is the one in use.
///
/// # Errors
/// The objective cannot be measured here, there is nothing to choose from, or a run cannot be done.
pub fn run(scenario: &Scenario, question: &Question) -> Result<Tuned, SearchError> {
    let Question { objective, seeds, quiet, .. } = *question;
    if objective.needs_slo() && scenario.slo.is_none() {
        let asked = "goodput counts what meets objectives, and there are none: add [slo] to the scenario, or give \
                     --slo-ttft and --slo-tpot";
        return Err(SearchError::Asked(asked.to_owned()));
    }
    let bases: Vec<Cell> = scenario.cells();
    let settings = question.space.settings(&bases, question.budget, scenario.seed)?;
    let cells: Vec<Cell> =
        settings.iter().map(|(base, policy)| cell(&bases[*base], policy.clone())).collect();
    let search = Search { scenario, objective, seeds, quiet };
    let stages = stage::stages(scenario, seeds);
    let found = halving::run(&search, &cells, &stages)?;
    let challenger = match found.best(|_| true) {
        Some(place) if !found.all_alike => {
            let base = &bases[settings[place].0];
            Some(best(&search, &cells[0], base, &cells[place], found.is_better(place), &stages)?)
        }
        _ => None,
    };
    let known = [Some(&cells[0]), challenger.as_ref().map(|best| &best.cell)];
    let is_known = |name: &str| known.iter().flatten().any(|cell| cell.policy.name() == name);
    let unknown = bases.iter().map(|base| base.policy.name()).filter(|name| !is_known(name));
    let others = unknown.filter_map(|name| found.best(|tried| tried.policy == name));
    let others = others.map(|place| cells[place].clone()).collect();
    let candidates = Candidates { present: cells[0].clone(), challenger, others };
    Ok(Tuned {
        confirmation: confirm::run(&search, candidates)?,
        tried: found.tried,
        present: bases.len(),
        stages: stages.iter().map(ToString::to_string).collect(),
    })
}

/// The best setting of the search, without what it does not need if it was better.
fn best(
    search: &Search<'_>,
    present: &Cell,
    base: &Cell,
    found: &Cell,
    led: bool,
    stages: &[stage::Stage],
) -> Result<Best, SearchError> {
    if !led {
        return Ok(Best { cell: found.clone(), put_back: Vec::new(), led });
    }
    let reduced = reduce::run(search, present, base, found, &stage::whole(stages))?;
    Ok(Best { cell: reduced.cell, put_back: reduced.put_back, led })
}

/// The cell of a policy with other options.
fn cell(base: &Cell, policy: PolicyConfig) -> Cell {
    let mut params = base.params.clone();
    params.extend(params_of(&policy));
    Cell { policy, params, ..base.clone() }
}

/// The options of a policy that were set.
#[must_use]
pub fn params_of(policy: &PolicyConfig) -> Params {
    let json = |value: &OptionValue| match value {
        OptionValue::Bool(value) => Value::from(*value),
        OptionValue::Integer(value) => Value::from(*value),
        OptionValue::Float(value) => Value::from(*value),
        OptionValue::Text(value) => Value::from(value.as_ref()),
    };
    policy.overrides().map(|(key, value)| (key.to_owned(), json(value))).collect()
}
