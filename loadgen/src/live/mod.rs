//! The live world: mock workers and the production router as child processes, real HTTP between them.
//!
//! Every cell gets cold workers and a fresh router: ours, or another one that the scenario names as a target. Children are this very executable with a hidden first
//! argument; they end when their standard input closes, so nothing survives this process, however it ends.

mod child;
mod cluster;
mod drive;
mod faults;
mod guard;
mod machine;
mod null_server;
mod pacer;
mod places;
mod program;
mod ready;
mod request;
pub mod selfcheck;
#[cfg(test)]
mod tests;

pub use child::{ROUTER_ROLE, WORKER_ROLE, end_all_children};
pub use guard::{TARGET_ROLE, guard};
pub(crate) use program::check as check_program;

use crate::run::{Beside, Reach, Run};
use crate::scenario::Cell;
use crate::workload::{self, mishaps::Mishaps};
use child::Child;
use machine::Watch;

/// Why a live run could not be done.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// A child did not start.
    #[error("the {name} did not start: {why}{}", stderr_note(.stderr))]
    Start {
        /// Which child.
        name: String,
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
    let planned = plan.requests.clone();
    let mut cluster = cluster::Cluster::start(cell, seed)?;
    let (url, places) = (cluster.router_url.clone(), std::mem::take(&mut cluster.places));
    let mut death = None;
    let deeds = cluster.deeds(cell);
    let watch = Watch::begin(cluster.parts());
    let trouble = drive::Trouble { deeds, faults: cell.scenario.faults.clone(), mishaps: Mishaps::new(seed) };
    let mut is_alive = || {
        death = death.take().or_else(|| cluster.death());
        death.is_none()
    };
    let driven =
        drive::drive(&url, places, plan, cell.scenario.fleet.speed, trouble, &mut is_alive, progress)?;
    is_alive();
    let parts = cluster.parts();
    let mut machine = watch.end(parts);
    if cluster.router.is_none() {
        // A router that runs by itself cannot be told from other programs.
        machine.others_ran = None;
    }
    death = death.or(driven.undone);
    let requests = driven.records.len().max(1) as f64;
    let mut run = Run::of(cell, seed, driven.records, driven.itl_ns);
    run.reach = Reach::of(&cell.scenario.fleet, &planned, &run.records);
    run.router_cpu_us_per_request = watch.router_ran_ns(parts).map(|ns| ns as f64 / 1e3 / requests);
    let router_peak_bytes = cluster.router.as_ref().and_then(Child::peak_bytes);
    run.beside = Some(Beside { router_ns: driven.router_ns, router_peak_bytes, machine });
    Ok(LiveRun { run, death })
}

fn stderr_note(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; it said:\n{stderr}") }
}
