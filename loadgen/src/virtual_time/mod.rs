//! The virtual world: the same `Router` and the same `Engine`s as live, joined by an event heap and a latency
//! model. Time is a number that jumps from event to event; nothing here reads a clock.
//!
//! Guarantees: two runs of one cell with one seed give the same records, bit for bit. Trades away: the cost of
//! HTTP itself. A hop has one fixed latency, and the hop between client and router has none.

mod clock;
mod dice;
mod dispatch;
mod host;
mod monitor;
mod outage;
mod shell;
mod wire;
mod world;

use crate::run::Run;
use crate::scenario::Cell;
use crate::workload;

/// Why a virtual run could not be done.
#[derive(Debug, thiserror::Error)]
pub enum VirtualError {
    /// An engine refused its configuration.
    #[error("[fleet]: {0}")]
    Engine(#[from] simworker_core::ConfigError),
    /// The router refused its policy.
    #[error("[router]: {0}")]
    Policy(#[from] router_core::PolicyError),
    /// A policy does not fit the workers that it was given to.
    #[error("[router]: {0}")]
    Unfit(#[from] router_core::Unfit),
}

/// Runs `cell` with `seed`, calling `progress` with the number of finished requests now and then.
///
/// # Errors
/// When a core refuses its configuration; never in mid-run.
pub(crate) fn run(cell: &Cell, seed: u64, progress: &mut dyn FnMut(u64)) -> Result<Run, VirtualError> {
    let plan = workload::plan(&cell.scenario, seed);
    let mut world = world::World::new(cell, seed, plan)?;
    world.run(progress);
    Ok(world.finish(cell, seed))
}

#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod growth_tests;
#[cfg(test)]
mod look_tests;
#[cfg(test)]
mod mishap_tests;
#[cfg(test)]
mod pair_tests;
#[cfg(test)]
mod session_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod told_tests;
