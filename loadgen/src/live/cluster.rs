//! The cluster of one live cell: one process with all mock workers, one router before them.

use serde::Deserialize;

use super::LiveError;
use super::child::{Child, ROUTER_ROLE, WORKER_ROLE};
use crate::scenario::{Cell, Fleet};

/// A started cluster. Dropping it ends both processes, the router first.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) router: Child,
    pub(super) router_url: String,
    workers: Child,
}

#[derive(Debug, Deserialize)]
struct WorkersListening {
    listening: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct RouterListening {
    listening: String,
}

impl Cluster {
    /// Cold workers and a fresh router for `cell`.
    pub(super) fn start(cell: &Cell, seed: u64) -> Result<Self, LiveError> {
        let (workers, at): (_, WorkersListening) =
            Child::start(WORKER_ROLE, &worker_args(&cell.scenario.fleet))?;
        let (router, router_at): (_, RouterListening) =
            Child::start(ROUTER_ROLE, &router_args(cell, seed, &at.listening))?;
        Ok(Self { router, router_url: router_at.listening, workers })
    }

    /// Which child has died, in words.
    pub(super) fn death(&mut self) -> Option<String> {
        self.router.death().or_else(|| self.workers.death())
    }
}

fn worker_args(fleet: &Fleet) -> Vec<String> {
    let engine = &fleet.engine;
    let mut args = Args::default();
    args.pair("--workers", fleet.workers)
        .pair("--host", "127.0.0.1")
        .pair("--port", 0)
        .pair("--preset", fleet.preset)
        .pair("--speed", fleet.speed)
        .pair("--stream-interval", fleet.stream_interval)
        .pair("--request-overhead", format!("{}ns", fleet.request_overhead_ns))
        .flag("--incremental-streaming-output")
        .flag("--enable-cache-report")
        .flag("--exit-with-stdin");
    args.0.extend(engine.flags());
    args.0
}

fn router_args(cell: &Cell, seed: u64, workers: &[String]) -> Vec<String> {
    let mut args = Args::default();
    args.flag("--worker-urls");
    args.0.extend_from_slice(workers);
    args.pair("--policy", cell.policy.name())
        .pair("--host", "127.0.0.1")
        .pair("--port", 0)
        .pair("--prometheus-host", "127.0.0.1")
        .pair("--prometheus-port", 0)
        .pair("--seed", seed)
        .pair("--log-level", "warn")
        // The router's clock is the wall's; what it does every second must still happen once per second of the run.
        .pair("--load-poll-interval-secs", 1.0 / cell.scenario.fleet.speed)
        .flag("--decision-headers")
        .flag("--exit-with-stdin");
    for (option, value) in cell.policy.options() {
        args.pair(&format!("--{}", option.key.replace('_', "-")), value.as_argument());
    }
    args.0
}

/// A command line in the making.
#[derive(Default)]
struct Args(Vec<String>);

impl Args {
    fn flag(&mut self, flag: &str) -> &mut Self {
        self.0.push(flag.to_owned());
        self
    }

    fn pair(&mut self, flag: &str, value: impl ToString) -> &mut Self {
        self.0.extend([flag.to_owned(), value.to_string()]);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::router_args;
    use crate::run::World;

    #[test]
    fn the_router_polls_once_per_second_of_the_run_at_any_speed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.toml");
        let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/smoke.toml");
        std::fs::copy(shipped, &path).unwrap();
        for (speed, interval) in [("1.0", "1"), ("4.0", "0.25")] {
            let overrides = [("fleet.speed".to_owned(), speed.to_owned())];
            let scenario = crate::scenario::load(&path, &overrides, None, None, None).unwrap();
            let cell = scenario.cells().into_iter().find(|cell| cell.world == World::Live).unwrap();
            let args = router_args(&cell, 1, &[]);
            let wanted = ["--load-poll-interval-secs", interval];
            assert!(args.windows(2).any(|pair| pair == wanted), "{args:?}");
        }
    }
}
