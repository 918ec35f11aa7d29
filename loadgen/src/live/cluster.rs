//! The cluster of one live cell: a process with the mock workers, one with the router before them. Where workers that do
//! everything stand beside prefill and decode workers, they have a process of their own.

use std::ops::Range;

use serde::Deserialize;

use super::LiveError;
use super::child::{Child, ROUTER_ROLE, WORKER_ROLE};
use super::faults::{self, Control, Deed};
use super::machine::{Parts, Scheduled};
use super::places::Places;
use super::ready;
use crate::scenario::{Addresses, Cell, Fleet, Scenario, Source, Target};

/// A started cluster. Dropping it ends all processes, the router first.
#[derive(Debug)]
pub(super) struct Cluster {
    /// Ours, or the target; none where that runs by itself.
    pub(super) router: Option<Child>,
    pub(super) router_url: String,
    pub(super) places: Places,
    hosts: Vec<Child>,
    controls: Vec<Control>,
    urls: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct WorkersListening {
    listening: Vec<String>,
    #[serde(default)]
    bootstrap_ports: Vec<Option<u16>>,
    #[serde(default)]
    control: Option<String>,
}

#[derive(Debug, Deserialize)]
struct RouterListening {
    listening: String,
}

/// Where the workers of each role listen, each in the order of their places.
#[derive(Debug, Default)]
struct Listening {
    /// With the ports of their bootstrap servers.
    prefill: Vec<(String, Option<u16>)>,
    decode: Vec<String>,
    regular: Vec<String>,
    /// Where faults can be told them.
    controls: Vec<Control>,
}

impl Cluster {
    /// Cold workers and a fresh router for `cell`.
    pub(super) fn start(cell: &Cell, seed: u64) -> Result<Self, LiveError> {
        let fleet = &cell.scenario.fleet;
        let mut hosts = Vec::new();
        let faults = |places| faults::flags(&cell.scenario.faults, fleet, places, seed);
        let at = Listening::of(fleet, first_port(cell), &faults, &mut |args| {
            let (host, at) = Child::start(WORKER_ROLE, &args)?;
            hosts.push(host);
            Ok(at)
        })?;
        let urls = at.in_place_order();
        let known = at.known_at_first(fleet);
        let (router, router_url) = match &cell.target {
            Some(target) => start_target(target, known.addresses(seed))?,
            None => {
                let (router, at): (_, RouterListening) =
                    Child::start(ROUTER_ROLE, &router_args(cell, seed, &known))?;
                (Some(router), at.listening)
            }
        };
        let places = Places::new(urls.clone());
        Ok(Self { router, router_url, places, hosts, controls: known.controls, urls })
    }

    /// What is to be done to it in the course of the run of `cell`.
    pub(super) fn deeds(&self, cell: &Cell) -> Vec<Deed> {
        let Scenario { faults, fleet, .. } = &*cell.scenario;
        faults::deeds(faults, fleet, &self.controls, &self.urls, &self.router_url)
    }

    /// Which child has died, in words.
    pub(super) fn death(&mut self) -> Option<String> {
        self.router.as_mut().and_then(Child::death).or_else(|| self.hosts.iter_mut().find_map(Child::death))
    }

    /// What workers and router have had of the CPUs so far.
    pub(super) fn parts(&self) -> Parts {
        let workers = self.hosts.iter().filter_map(Child::scheduled).reduce(Scheduled::plus);
        Parts { workers, router: self.router.as_ref().and_then(Child::scheduled) }
    }
}

/// The port of the first worker; 0 for any. Only a router that runs already must know it beforehand.
fn first_port(cell: &Cell) -> u16 {
    match cell.target.as_ref().map(|target| &target.source) {
        Some(Source::Running { worker_port, .. }) => *worker_port,
        _ => 0,
    }
}

/// A target that is ready, and where it listens.
fn start_target(target: &Target, mut at: Addresses) -> Result<(Option<Child>, String), LiveError> {
    let failed = |why: String| LiveError::Start { name: target.name.clone(), why, stderr: String::new() };
    match &target.source {
        Source::Running { url, .. } => {
            ready::wait(target, url, &|| None).map_err(failed)?;
            Ok((None, url.clone()))
        }
        Source::Command(command) => {
            [at.port, at.metrics_port] = ready::free_ports().map_err(|error| failed(error.to_string()))?;
            let url = format!("http://127.0.0.1:{}", at.port);
            let child = Child::start_target(&target.name, &command.filled(&at), command.env.iter())?;
            let ended = || child.ended().map(|status| format!("it ended before it was ready ({status})"));
            ready::wait(target, &url, &ended).map_err(|why| child.failed(why))?;
            Ok((Some(child), url))
        }
    }
}

impl Listening {
    /// Starts the workers of a fleet, each process by its arguments, with the flags of the faults of its workers.
    fn of(
        fleet: &Fleet,
        first_port: u16,
        faults: &dyn Fn(Range<u32>) -> Vec<String>,
        start: &mut dyn FnMut(Vec<String>) -> Result<WorkersListening, LiveError>,
    ) -> Result<Self, LiveError> {
        let mut at = Self::default();
        let split = fleet.roles.prefill + fleet.roles.decode;
        if split > 0 {
            let args = split_args(fleet, split, first_port).into_iter().chain(faults(0..split)).collect();
            let WorkersListening { mut listening, bootstrap_ports, control } = start(args)?;
            at.controls.extend(control.map(|url| Control { places: 0..split, url }));
            at.decode = listening.split_off(listening.len().min(fleet.roles.prefill as usize));
            let ports = bootstrap_ports.into_iter().chain(std::iter::repeat(None));
            at.prefill = listening.into_iter().zip(ports).collect();
        }
        if fleet.workers > split {
            let places = split..fleet.workers;
            let port = if first_port == 0 { 0 } else { u32::from(first_port) + split };
            let args = worker_args(fleet, fleet.workers - split, port).0;
            let told = start(args.into_iter().chain(faults(places.clone())).collect())?;
            at.regular = told.listening;
            at.controls.extend(told.control.map(|url| Control { places, url }));
        }
        Ok(at)
    }

    /// Those that the router is told at its start.
    fn known_at_first(mut self, fleet: &Fleet) -> Self {
        if fleet.joining.is_some() {
            // Only fleets of workers that do everything have some that come later.
            self.regular.truncate(fleet.known_at_first() as usize);
        }
        self
    }

    /// What a target's command is told; its ports are not known yet.
    fn addresses(&self, seed: u64) -> Addresses {
        let (prefill, decode, regular) = (self.prefill.clone(), self.decode.clone(), self.regular.clone());
        Addresses { prefill, decode, regular, seed, ..Addresses::default() }
    }

    fn prefill_urls(&self) -> impl Iterator<Item = &String> {
        self.prefill.iter().map(|(url, _)| url)
    }

    /// Workers in the order of their places in the fleet.
    fn in_place_order(&self) -> Vec<String> {
        self.prefill_urls().chain(&self.decode).chain(&self.regular).cloned().collect()
    }
}

/// The arguments of a process of `count` workers that do everything, from `port` on, or on any ports for 0.
fn worker_args(fleet: &Fleet, count: u32, port: u32) -> Args {
    let mut args = Args::default();
    args.pair("--workers", count)
        .pair("--host", "127.0.0.1")
        .pair("--port", port)
        .pair("--preset", fleet.preset)
        .pair("--speed", fleet.speed)
        .pair("--stream-interval", fleet.stream_interval)
        .pair("--request-overhead", format!("{}ns", fleet.request_overhead_ns))
        .flag("--incremental-streaming-output")
        .flag("--enable-cache-report")
        // They tell their own times, from which the router's are known.
        .flag("--enable-metrics")
        .flag("--exit-with-stdin");
    args.0.extend(fleet.engine.flags());
    if fleet.ranks.size > 1 {
        args.pair("--dp-size", fleet.ranks.size).pair("--load-balance-method", fleet.ranks.balance_word());
        if fleet.ranks.attention {
            args.flag("--enable-dp-attention");
        }
    }
    args
}

/// The arguments of a process of `count` workers, of which the first prefill and the others decode.
fn split_args(fleet: &Fleet, count: u32, port: u16) -> Vec<String> {
    let handoff = &fleet.engine.config().handoff;
    let mut args = worker_args(fleet, count, port.into());
    args.pair("--prefill-workers", fleet.roles.prefill)
        .pair("--disaggregation-bootstrap-port", 0)
        .pair("--kv-link", fleet.roles.link)
        .pair("--num-reserved-decode-tokens", handoff.num_reserved_decode_tokens);
    if handoff.decode_radix_cache {
        args.flag("--disaggregation-decode-enable-radix-cache");
    }
    args.0
}

fn router_args(cell: &Cell, seed: u64, at: &Listening) -> Vec<String> {
    let routing = &cell.scenario.routing;
    let mut args = Args::default();
    args.workers(at);
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
    if cell.scenario.fleet.roles.disaggregated() {
        args.pair("--decode-policy", routing.decode_policy.name())
            .pair("--decode-dispatch-limit", routing.decode_dispatch_limit.unwrap_or(0))
            .pair("--pd-least-uncached-tokens", routing.least_uncached_tokens);
        if routing.decode_policy.name() != cell.policy.name() {
            for (option, value) in routing.decode_policy.overrides() {
                args.pair(&format!("--{}", option.replace('_', "-")), value.as_argument());
            }
        }
    }
    if routing.dp_aware {
        args.flag("--dp-aware");
    }
    if let Some(limit_ns) = routing.first_byte_ns {
        args.pair("--first-byte-timeout-secs", limit_ns as f64 / 1e9 / cell.scenario.fleet.speed);
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

    /// Who the workers are.
    fn workers(&mut self, at: &Listening) {
        if !at.regular.is_empty() {
            self.flag("--worker-urls");
            self.0.extend_from_slice(&at.regular);
        }
        if at.prefill.is_empty() {
            return;
        }
        self.flag("--pd-disaggregation");
        for (url, port) in &at.prefill {
            let port = port.map_or_else(|| "none".to_owned(), |port| port.to_string());
            self.pair("--prefill", url);
            self.0.push(port);
        }
        for url in &at.decode {
            self.pair("--decode", url);
        }
    }

    fn pair(&mut self, flag: &str, value: impl ToString) -> &mut Self {
        self.0.extend([flag.to_owned(), value.to_string()]);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::World;

    fn live_cell(overrides: &[(&str, &str)]) -> Cell {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.toml");
        let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/smoke.toml");
        std::fs::copy(shipped, &path).unwrap();
        let overrides: Vec<_> =
            overrides.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let scenario = crate::scenario::load(&path, &overrides, None, None, None).unwrap();
        scenario.cells().into_iter().find(|cell| cell.world == World::Live).unwrap()
    }

    fn has(args: &[String], wanted: &[&str]) -> bool {
        args.windows(wanted.len()).any(|window| window == wanted)
    }

    #[test]
    fn the_router_polls_once_per_second_of_the_run_at_any_speed() {
        for (speed, interval) in [("1.0", "1"), ("4.0", "0.25")] {
            let args = router_args(&live_cell(&[("fleet.speed", speed)]), 1, &Listening::default());
            assert!(has(&args, &["--load-poll-interval-secs", interval]), "{args:?}");
        }
    }

    #[test]
    fn every_role_is_started_and_named_to_the_router() {
        let cell = live_cell(&[
            ("fleet.workers", "5"),
            ("fleet.prefill", "2"),
            ("fleet.regular", "1"),
            ("fleet.dp_size", "4"),
            ("fleet.kv_link", "25gbe"),
            ("router.dp_aware", "true"),
        ]);
        let mut started = Vec::new();
        let at = Listening::of(&cell.scenario.fleet, 0, &|_| Vec::new(), &mut |args| {
            let split = args.contains(&"--prefill-workers".to_owned());
            let urls: &[&str] = if split { &["a", "b", "c", "d"] } else { &["e"] };
            started.push(args);
            Ok(WorkersListening {
                listening: urls.iter().map(|url| (*url).to_owned()).collect(),
                bootstrap_ports: if split { vec![Some(7), Some(8), None, None] } else { vec![] },
                control: None,
            })
        })
        .unwrap();
        assert!(has(&started[0], &["--workers", "4"]) && has(&started[0], &["--prefill-workers", "2"]));
        assert!(has(&started[0], &["--kv-link", "25gbe"]) && has(&started[0], &["--dp-size", "4"]));
        assert!(has(&started[1], &["--workers", "1"]) && !has(&started[1], &["--kv-link"]));
        assert_eq!(at.in_place_order(), ["a", "b", "c", "d", "e"]);
        let args = router_args(&cell, 1, &at);
        let named =
            ["--worker-urls", "e", "--pd-disaggregation", "--prefill", "a", "7", "--prefill", "b", "8"];
        assert!(has(&args, &named), "{args:?}");
        assert!(has(&args, &["--decode", "c", "--decode", "d"]), "{args:?}");
        assert!(has(&args, &["--dp-aware"]) && has(&args, &["--decode-policy", "power_of_two"]), "{args:?}");
    }
}
