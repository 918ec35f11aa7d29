//! One virtual cluster: a router, its index, the workers, and the driver that offers the planned requests.
//!
//! What the parts do is in the modules beside this one: `dispatch` and `shell` are the router's way with a request, `wire` what
//! reaches the workers and what they say, `outage` how one dies and comes back, `monitor` what happens beside requests.

use std::collections::{BTreeMap, VecDeque};

use hdrhistogram::Histogram;
use protocol::record::RequestRecord;
use router_core::index::PrefixIndex;
use router_core::{
    BreakerConfig, LoadReport, PairPreference, Part, Policies, RetryBudget, RetryConfig, Role, Router,
    RouterConfig, Scopes, WarmUp, WorkerSpec,
};
use simworker_core::{Event as EngineEvent, HandoffFault, Prompt, RequestId};

use super::VirtualError;
use super::clock::Clock;
use super::dice::Dice;
use super::host::{Addresses, Host, role_at_router};
use super::shell::{Job, LegEnd};
use super::wire::Handover;
use crate::run::{Reach, Recorder, Run};
use crate::scenario::{Cell, Faults, Fleet, Scenario};
use crate::workload::chain::Chain;
use crate::workload::{Pacing, Plan, PlannedRequest};

/// Finished requests between two calls of the progress function.
const PROGRESS_EVERY: u64 = 256;

/// What can happen, in the words of the one it happens to.
#[derive(Debug)]
pub(super) enum Event {
    /// A client sends request `0`.
    Arrive(usize),
    /// The wait before the next attempt at a request is over.
    Retry { seq: usize, attempt: u32 },
    /// A client leaves.
    ClientGone(usize),
    /// The first of those that wait for the end of a decode stream tries again, without news.
    FrontTries,
    /// The time is up of an attempt that waits for the end of a decode stream.
    Overdue { seq: usize, attempt: u32 },
    /// A leg reaches its worker's scheduler.
    Submit(Leg, Prompt),
    /// A leg's connection is closed by the router.
    Abort { host: usize, id: RequestId },
    /// A worker's deadline.
    Engine(usize),
    /// A prefill worker hears that the KV of a room has its slots.
    KvWanted { host: usize, room: u64 },
    /// The last byte of the KV of a room reaches the decode worker.
    KvArrived { host: usize, room: u64, cached_tokens: u32 },
    /// A worker notices that a hand-off has failed.
    HandoffFailed { host: usize, room: u64, fault: HandoffFault },
    /// The first token of a request reaches router and client.
    FirstToken(RequestId),
    /// The end of a leg reaches the router, and if it answers the client too.
    Ended { id: RequestId, host: usize, end: LegEnd },
    /// The load monitor asks every worker.
    Poll,
    /// The shell tells the core how far every stream has come.
    Progress,
    /// The question reaches a worker.
    Sample { host: usize, asked_ns: u64 },
    /// The answer reaches the router; one report for every worker that the host is to the router.
    Report { host: usize, asked_ns: u64, reports: Vec<LoadReport> },
    /// The router's own deadline.
    RouterTick,
    /// The time is up in which an attempt should have had its first byte.
    Silent(RequestId),
    /// A worker is to take nothing new.
    Drained(usize),
    /// A worker dies.
    Lost { host: usize, back_after_ns: Option<u64> },
    /// A worker is back.
    Back(usize),
    /// A worker comes that the router has not known.
    Joins(usize),
    /// The router's probes find out how a worker is.
    Noticed { host: usize, up: bool },
}

/// One leg on its way to its worker.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leg {
    pub(super) id: RequestId,
    pub(super) host: usize,
    /// The rank that the router has chosen.
    pub(super) rank: Option<u32>,
    pub(super) room: Option<u64>,
}

/// The cluster and everything under way in it.
pub(super) struct World {
    pub(super) clock: Clock<Event>,
    pub(super) router: Router,
    pub(super) index: Option<PrefixIndex>,
    pub(super) scopes: Scopes,
    pub(super) addresses: Addresses,
    pub(super) fleet: Fleet,
    pub(super) hosts: Vec<Host>,
    /// The hand-offs that are to come, by room.
    pub(super) handovers: BTreeMap<u64, Handover>,
    pub(super) dice: Dice,
    pub(super) retry: RetryConfig,
    pub(super) budget: RetryBudget,
    pub(super) router_wake_ns: Option<u64>,
    pub(super) requests: Vec<PlannedRequest>,
    pub(super) pacing: Pacing,
    next_arrival: usize,
    /// Which requests wait for which.
    pub(super) chain: Chain,
    /// The names of the replies that others hold, by `seq`; empty where nobody holds any.
    pub(super) reply_blocks: Vec<u64>,
    /// The requests that have arrived and not ended.
    pub(super) jobs: Vec<Option<Box<Job>>>,
    /// Those of them that wait for the end of a decode stream.
    pub(super) parked: VecDeque<usize>,
    /// The first of these is about to try again by itself.
    pub(super) front_tries: bool,
    pub(super) records: Vec<RequestRecord>,
    pub(super) finished: u64,
    /// Legs that a worker has ended without having them; there must be none.
    pub(super) ended_twice: u64,
    pub(super) itl_ns: Histogram<u64>,
    recorder: Recorder,
    pub(super) hop_ns: u64,
    /// How long the router waits for a first byte.
    pub(super) first_byte_ns: Option<u64>,
    pub(super) overhead_ns: u64,
    /// Scratch for engine events.
    pub(super) events: Vec<EngineEvent>,
    /// Scratch for what a prompt is made of.
    pub(super) parts: Vec<Part>,
    /// The engines tell pages apart by names, so they are given runs and never tokens.
    pub(super) sends_runs: bool,
}

impl World {
    /// A cold cluster and the first arrivals.
    pub(super) fn new(cell: &Cell, seed: u64, plan: Plan) -> Result<Self, VirtualError> {
        let fleet = cell.scenario.fleet.clone();
        let addresses = Addresses::new(&fleet, cell.scenario.routing.dp_aware);
        let faults = &cell.scenario.faults;
        let chain = Chain::new(&plan.requests);
        let prompts_are_runs = !chain.keeps_any();
        let host = |(place, role)| Host::new(&fleet, role, faults.slowness(place), prompts_are_runs);
        let mut hosts: Vec<Host> = (0..).zip(fleet.worker_roles()).map(host).collect::<Result<_, _>>()?;
        let known = fleet.known_at_first() as usize;
        hosts.iter_mut().skip(known).for_each(|host| host.up = false);
        let mut router = Router::new(router_config(cell, seed)?)?;
        for (host, rank) in addresses.all().take_while(|(host, _)| *host < known) {
            let role = role_at_router(hosts[host].role);
            router.add_worker(0, WorkerSpec { url: Addresses::url(host, rank), model: None, role });
        }
        let retry = RetryConfig::default();
        let mut world = Self {
            clock: Clock::new(),
            index: router.signals().prefix_index.map(PrefixIndex::new),
            // No model is named, so none is unknown.
            scopes: router.scopes(None).unwrap_or_default(),
            router,
            addresses,
            handovers: BTreeMap::new(),
            dice: Dice::new(cell.scenario.faults.clone(), seed),
            budget: RetryBudget::new(retry.budget_percent, retry.budget_floor),
            retry,
            router_wake_ns: None,
            jobs: std::iter::repeat_with(|| None).take(plan.requests.len()).collect(),
            parked: VecDeque::new(),
            front_tries: false,
            records: plan.requests.iter().map(|r| r.record(r.at_ns, r.at_ns)).collect(),
            recorder: Recorder::new(fleet.workers, plan.requests.iter().map(|r| r.at_ns).max().unwrap_or(0)),
            requests: plan.requests,
            pacing: plan.pacing,
            next_arrival: 0,
            reply_blocks: vec![0; chain.places()],
            chain,
            finished: 0,
            ended_twice: 0,
            itl_ns: crate::run::latency_histogram(),
            hop_ns: fleet.network_ns,
            first_byte_ns: cell.scenario.routing.first_byte_ns,
            overhead_ns: fleet.request_overhead_ns,
            sends_runs: hosts.iter().all(|host| host.names_pages),
            hosts,
            fleet,
            events: Vec::new(),
            parts: Vec::new(),
        };
        world.start(&cell.scenario.faults);
        Ok(world)
    }

    fn start(&mut self, faults: &Faults) {
        self.start_monitor();
        self.plan_outages(faults);
        if let Some(joining) = self.fleet.joining {
            for host in self.fleet.known_at_first()..self.fleet.workers {
                self.clock.in_background(joining.at_ns, Event::Joins(host as usize));
            }
        }
        let at_once = match self.pacing {
            Pacing::Open => 1,
            Pacing::Closed { concurrency } => concurrency as usize,
        };
        for _ in 0..at_once {
            self.schedule_arrival(0);
        }
    }

    /// Puts the next planned request that waits for no other on the heap. Open loop: at its own time. Closed loop: now.
    pub(super) fn schedule_arrival(&mut self, now_ns: u64) {
        let waiting = self.requests.get(self.next_arrival..).unwrap_or_default();
        let skipped = waiting.iter().take_while(|request| request.after.is_some()).count();
        let seq = self.next_arrival + skipped;
        self.next_arrival = seq;
        let Some(request) = self.requests.get(seq) else { return };
        self.next_arrival += 1;
        let at_ns = match self.pacing {
            Pacing::Open => request.at_ns,
            Pacing::Closed { .. } => now_ns,
        };
        self.clock.at(at_ns, Event::Arrive(seq));
    }

    /// Plays until every request has ended.
    pub(super) fn run(&mut self, progress: &mut dyn FnMut(u64)) {
        let total = self.requests.len() as u64;
        while self.finished < total {
            // Every request that has not ended has an event on the heap that carries it on.
            let before = self.finished;
            if self.step().is_none() {
                break;
            }
            if self.finished != before && self.finished.is_multiple_of(PROGRESS_EVERY) {
                progress(self.finished);
            }
        }
        progress(self.finished);
    }

    /// Plays what comes next and says when that was; `None` when nothing is left.
    pub(super) fn step(&mut self) -> Option<u64> {
        let (now_ns, event) = self.clock.next()?;
        if self.recorder.is_due(now_ns) {
            self.recorder.take(now_ns, |host| self.hosts[host].sample());
        }
        self.handle(now_ns, event);
        self.arm_router();
        Some(now_ns)
    }

    fn handle(&mut self, now_ns: u64, event: Event) {
        match event {
            Event::Arrive(seq) => self.arrive(now_ns, seq),
            Event::Retry { seq, attempt } => self.retry(now_ns, seq, attempt),
            Event::ClientGone(seq) => self.client_gone(now_ns, seq),
            Event::FrontTries => self.front_tries(now_ns),
            Event::Overdue { seq, attempt } => self.overdue(now_ns, seq, attempt),
            Event::Submit(leg, prompt) => self.submit(now_ns, leg, prompt),
            Event::Abort { host, id } => self.abort(now_ns, host, id),
            Event::Engine(host) => self.wake_engine(now_ns, host),
            Event::KvWanted { host, room } => self.kv_wanted(now_ns, host, room),
            Event::KvArrived { host, room, cached_tokens } => {
                self.kv_arrived(now_ns, host, room, cached_tokens);
            }
            Event::HandoffFailed { host, room, fault } => self.handoff_failed(now_ns, host, room, fault),
            Event::FirstToken(id) => self.first_token(now_ns, id),
            Event::Ended { id, host, end } => self.leg_ended(now_ns, id, host, end),
            Event::Silent(id) => self.silent(now_ns, id),
            Event::Drained(host) => self.drain(now_ns, host),
            Event::Poll => self.poll(now_ns),
            Event::Sample { host, asked_ns } => self.sample(now_ns, host, asked_ns),
            Event::Report { host, asked_ns, reports } => self.report(now_ns, host, asked_ns, &reports),
            Event::Progress => self.progress(now_ns),
            Event::RouterTick => self.router_tick(now_ns),
            Event::Lost { host, back_after_ns } => self.lose(now_ns, host, back_after_ns),
            Event::Back(host) => self.bring_back(now_ns, host),
            Event::Joins(host) => self.join(now_ns, host),
            Event::Noticed { host, up } => self.notice(now_ns, host, up),
        }
    }

    /// The results.
    pub(super) fn finish(self, cell: &Cell, seed: u64) -> Run {
        let mut run = Run::of(cell, seed, self.records, self.itl_ns);
        run.engines = self.recorder.finish(|host| self.hosts[host].sample());
        run.reach = Reach::of(&self.fleet, &self.requests, &run.records);
        run
    }
}

/// The router of a cell. Breakers matter only where something fails, and the policy of decode workers, which wants to be
/// told things, only where there are some.
fn router_config(cell: &Cell, seed: u64) -> Result<RouterConfig, VirtualError> {
    let Scenario { routing, fleet, faults, .. } = &*cell.scenario;
    let mut policies = Policies::all(cell.policy.clone());
    if fleet.roles.disaggregated() {
        policies = policies.with(Role::Decode, routing.decode_policy.clone())?;
    }
    Ok(RouterConfig {
        policies,
        decode_dispatch_limit: routing.decode_dispatch_limit,
        pair: PairPreference {
            least_uncached_tokens: routing.least_uncached_tokens,
            ..PairPreference::default()
        },
        breaker: faults.any().then(BreakerConfig::default),
        warm_up: Some(WarmUp::default()),
        ..RouterConfig::new(cell.policy.clone(), seed)
    })
}
