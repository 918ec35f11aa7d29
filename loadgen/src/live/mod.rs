//! The live world: mock workers and the production router as child processes, real HTTP between them.
//!
//! Every cell gets cold workers and a fresh router. Children are this very executable with a hidden first
//! argument; they end when their standard input closes, so nothing survives this process, however it ends.

mod child;
mod cluster;
mod drive;
mod faults;
mod pacer;
mod places;
mod request;
#[cfg(test)]
mod tests;

pub use child::{ROUTER_ROLE, WORKER_ROLE, end_all_children};

use crate::run::Run;
use crate::scenario::Cell;
use crate::workload::{self, mishaps::Mishaps};

/// Why a live run could not be done.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// A child did not start.
    #[error("the {role} did not start: {why}{}", stderr_note(.stderr))]
    Start {
        /// Which child.
        role: &'static str,
        /// What happened.
        why: String,
        /// The last lines it wrote to standard error.
        stderr: String,
    },
    /// The client side could not be set up.
    #[error("the load driver could not start: {0}")]
    Driver(#[source] std::io::Error),
}

/// A finished live run, and what is wrong with the cluster that served it.
#[derive(Debug)]
pub struct LiveRun {
    /// The results, failed requests included.
    pub run: Run,
    /// A child that died before the last request ended, or a fault that could not be brought about, in words.
    pub death: Option<String>,
}

/// Runs `cell` with `seed`, calling `progress` with the number of finished requests.
///
/// # Errors
/// When a child does not start. A child that dies later gives failed requests and
/// [`LiveRun::death`].
pub fn run(cell: &Cell, seed: u64, progress: &mut dyn FnMut(u64)) -> Result<LiveRun, LiveError> {
    let plan = workload::plan(&cell.scenario, seed);
    let mut cluster = cluster::Cluster::start(cell, seed)?;
    let cpu_before_us = cluster.router.cpu_us();
    let (url, places) = (cluster.router_url.clone(), std::mem::take(&mut cluster.places));
    let mut death = None;
    let deeds = cluster.deeds(cell);
    let trouble = drive::Trouble { deeds, faults: cell.scenario.faults.clone(), mishaps: Mishaps::new(seed) };
    let mut is_alive = || {
        death = death.take().or_else(|| cluster.death());
        death.is_none()
    };
    let driven =
        drive::drive(&url, places, plan, cell.scenario.fleet.speed, trouble, &mut is_alive, progress)?;
    is_alive();
    death = death.or(driven.undone);
    let cpu_us = cluster.router.cpu_us().zip(cpu_before_us).map(|(after, before)| after - before);
    let requests = driven.records.len().max(1) as f64;
    let mut run = Run::of(cell, seed, driven.records, driven.itl_ns);
    run.router_cpu_us_per_request = cpu_us.map(|us| us / requests);
    Ok(LiveRun { run, death })
}

fn stderr_note(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; it said:\n{stderr}") }
}
