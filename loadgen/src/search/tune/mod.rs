//! The best settings of a policy for a scenario or a trace.
//!
//! Successive halving (K. Jamieson and A. Talwalkar, 2016): many settings are tried on little, the better third of them on
//! more, and the best of those is confirmed against the present settings on what the search has not seen. Every setting meets
//! the same requests, so that only differences count. What the search has looked at is never what the verdict rests upon: the
//! best of many figures is too good by chance.
//!
//! Of a generated workload "more" is more seeds, and what was not seen is other seeds. Of a trace it is more of its first half,
//! and what was not seen is its later half, cut into windows.

mod advice;
mod confirm;
mod halving;
mod objective;
mod space;
mod stage;

pub use advice::{MARK, file, flags, told};
pub use confirm::{Confirmation, LEAST_GAIN, Verdict};
pub use halving::Tried;
pub use objective::Objective;
pub use space::{Space, default_space};

use router_core::{OptionValue, PolicyConfig};
use serde_json::Value;

use super::{Progress, SearchError};
use crate::run::Params;
use crate::scenario::{Cell, Scenario};

/// What is asked.
#[derive(Debug, Clone)]
pub struct Question {
    /// The figure that shall be better.
    pub objective: Objective,
    /// The settings that may change.
    pub space: Space,
    /// How many settings are tried.
    pub budget: usize,
    /// Seeds of the last stage; twice as many others, and at least 20, confirm.
    pub seeds: u32,
    /// Show no progress.
    pub quiet: bool,
}

/// What was found.
#[derive(Debug)]
pub struct Tuned {
    /// All settings that were tried, in the order in which they were drawn; the first are the present ones.
    pub tried: Vec<Tried>,
    /// How far each stage went, in words.
    pub stages: Vec<String>,
    /// The best setting against the present one.
    pub confirmation: Confirmation,
}

/// Looks for better settings of the policies of `scenario`, the first of which is the one in use.
///
/// # Errors
/// The objective cannot be measured here, there is nothing to choose from, or a run cannot be done.
pub fn run(scenario: &Scenario, question: &Question) -> Result<Tuned, SearchError> {
    let objective = question.objective;
    if objective.needs_slo() && scenario.slo.is_none() {
        let asked = "goodput counts what meets objectives, and there are none: add [slo] to the scenario, or give \
                     --slo-ttft and --slo-tpot";
        return Err(SearchError::Asked(asked.to_owned()));
    }
    let bases: Vec<Cell> = scenario.cells();
    let settings = question.space.settings(&bases, question.budget, scenario.seed)?;
    let cells: Vec<Cell> = settings.into_iter().map(|(base, policy)| cell(&bases[base], policy)).collect();
    let stages = stage::stages(scenario, question.seeds);
    let runs = stage::runs(&stages, cells.len()) + confirm::runs(scenario, question.seeds);
    let progress = Progress::new(&format!("tune {}", scenario.name), runs, question.quiet);
    let tried = halving::run(&cells, &stages, objective, scenario.slo, &progress)?;
    let best = halving::best(&tried);
    let confirmation = confirm::run(scenario, &cells[0], &cells[best], objective, question.seeds, &progress)?;
    Ok(Tuned { tried, stages: stages.iter().map(ToString::to_string).collect(), confirmation })
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
