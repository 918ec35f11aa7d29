//! One virtual cluster: a router, its index, N engines, and the driver that offers the planned requests.

use std::sync::Arc;

use hdrhistogram::Histogram;
use protocol::record::RequestRecord;
use protocol::tokenizer::Token;
use router_core::ids::{ScopeId, WorkerId};
use router_core::index::{Matches, PrefixIndex};
use router_core::prompt::PromptView;
use router_core::{
    Assignment, LoadReport, Outcome, Role, RouteRequest, Router, RouterConfig, RoutingKeys, WorkerSpec,
};
use simworker_core::{Engine, Event as EngineEvent, FinishReason, RequestId, Submit};

use super::VirtualError;
use super::clock::Clock;
use crate::run::Run;
use crate::scenario::Cell;
use crate::workload::{Pacing, Plan, PlannedRequest};

/// Finished requests between two calls of the progress function.
const PROGRESS_EVERY: u64 = 256;
/// All virtual workers serve one model in one role.
const SCOPE: ScopeId = ScopeId(0);

/// What can happen, in the words of the one it happens to.
#[derive(Debug)]
pub(super) enum Event {
    /// A client sends request `0`.
    Arrive(usize),
    /// A request reaches its engine's scheduler.
    Submit { seq: usize, worker: usize, prompt: Arc<[Token]> },
    /// An engine's deadline.
    Engine(usize),
    /// The first token of a request reaches router and client.
    FirstToken(usize),
    /// The last byte of a request reaches router and client.
    Finish { seq: usize, end: End },
    /// The load monitor asks every worker.
    Poll,
    /// The shell tells the core how far every stream has come.
    Progress,
    /// The question reaches a worker.
    Sample { worker: usize, asked_ns: u64 },
    /// The answer reaches the router.
    Report { worker: usize, asked_ns: u64, report: LoadReport },
    /// The router's own deadline.
    RouterTick,
}

/// How a request ended, as the client sees it.
#[derive(Debug)]
pub(super) struct End {
    prompt_tokens: u64,
    cached_tokens: u64,
    output_tokens: u64,
    status: u16,
    error: String,
}

/// The cluster and everything under way in it.
pub(super) struct World {
    pub(super) clock: Clock<Event>,
    pub(super) router: Router,
    index: Option<PrefixIndex>,
    pub(super) engines: Vec<Engine>,
    /// The earliest wake-up already on the heap, per engine.
    wake_ns: Vec<Option<u64>>,
    pub(super) router_wake_ns: Option<u64>,
    requests: Vec<PlannedRequest>,
    pacing: Pacing,
    next_arrival: usize,
    pub(super) bookings: Vec<Option<Assignment>>,
    records: Vec<RequestRecord>,
    finished: u64,
    itl_ns: Histogram<u64>,
    pub(super) hop_ns: u64,
    overhead_ns: u64,
    /// Scratch for engine events.
    events: Vec<EngineEvent>,
}

impl World {
    /// A cold cluster and the first arrivals.
    pub(super) fn new(cell: &Cell, seed: u64, plan: Plan) -> Result<Self, VirtualError> {
        let fleet = &cell.scenario.fleet;
        let mut router = Router::new(RouterConfig::new(cell.policy.clone(), seed))?;
        let signals = router.signals();
        let config = fleet.engine_config();
        let mut engines = Vec::new();
        for worker in 0..fleet.workers {
            router.add_worker(
                0,
                WorkerSpec { url: format!("http://worker-{worker}"), model: None, role: Role::Regular },
            );
            engines.push(Engine::new(config.clone())?);
        }
        let mut world = Self {
            clock: Clock::new(),
            index: signals.prefix_index.map(PrefixIndex::new),
            router,
            wake_ns: vec![None; engines.len()],
            engines,
            router_wake_ns: None,
            bookings: vec![None; plan.requests.len()],
            records: plan
                .requests
                .iter()
                .map(|r| RequestRecord::sent(r.seq, r.group, r.at_ns, r.at_ns))
                .collect(),
            requests: plan.requests,
            pacing: plan.pacing,
            next_arrival: 0,
            finished: 0,
            itl_ns: crate::run::latency_histogram(),
            hop_ns: fleet.network_ns,
            overhead_ns: fleet.request_overhead_ns,
            events: Vec::new(),
        };
        world.start();
        Ok(world)
    }

    fn start(&mut self) {
        self.start_monitor();
        let at_once = match self.pacing {
            Pacing::Open => 1,
            Pacing::Closed { concurrency } => concurrency as usize,
        };
        for _ in 0..at_once {
            self.schedule_arrival(0);
        }
    }

    /// Puts the next planned request on the heap. Open loop: at its own time. Closed loop: now.
    fn schedule_arrival(&mut self, now_ns: u64) {
        let seq = self.next_arrival;
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
            let Some((now_ns, event)) = self.clock.next() else { break };
            let before = self.finished;
            self.handle(now_ns, event);
            self.arm_router();
            if self.finished != before && self.finished.is_multiple_of(PROGRESS_EVERY) {
                progress(self.finished);
            }
        }
        progress(self.finished);
    }

    fn handle(&mut self, now_ns: u64, event: Event) {
        match event {
            Event::Arrive(seq) => self.arrive(now_ns, seq),
            Event::Submit { seq, worker, prompt } => self.submit(now_ns, seq, worker, prompt),
            Event::Engine(worker) => self.wake_engine(now_ns, worker),
            Event::FirstToken(seq) => self.first_token(now_ns, seq),
            Event::Finish { seq, end } => self.end(now_ns, seq, end),
            Event::Poll => self.poll(now_ns),
            Event::Sample { worker, asked_ns } => self.sample(now_ns, worker, asked_ns),
            Event::Report { worker, asked_ns, report } => self.report(now_ns, worker, asked_ns, report),
            Event::Progress => self.progress(now_ns),
            Event::RouterTick => self.router_tick(now_ns),
        }
    }

    // === the request's way: client → router → engine → client ===

    fn arrive(&mut self, now_ns: u64, seq: usize) {
        if matches!(self.pacing, Pacing::Open) {
            self.schedule_arrival(now_ns);
        } else {
            self.records[seq].intended_ns = now_ns;
        }
        self.records[seq].sent_ns = now_ns;
        let prompt: Arc<[Token]> = self.requests[seq].tokens().into();
        match self.assign(now_ns, seq, &prompt) {
            Some(assignment) => {
                let worker = assignment.worker.0 as usize;
                let record = &mut self.records[seq];
                record.worker = Some(assignment.worker.0);
                record.reason = assignment.reason.as_str().to_owned();
                record.predicted_cached_tokens = assignment.predicted_cached_tokens;
                self.bookings[seq] = Some(assignment);
                let at_ns = now_ns + self.hop_ns + self.overhead_ns;
                self.clock.at(at_ns, Event::Submit { seq, worker, prompt });
            }
            None => self.end(now_ns, seq, End::failed(503, "no worker is available")),
        }
    }

    /// The shell's three steps: look up, decide under the lock, credit.
    fn assign(&mut self, now_ns: u64, seq: usize, prompt: &[Token]) -> Option<Assignment> {
        let view = PromptView::Tokens(prompt);
        let matches = match &self.index {
            Some(index) => index.lookup(SCOPE, view),
            None => Matches::default(),
        };
        // As live: the prefix group is the routing key.
        let routing_key = self.requests[seq].group.map(|group| group.to_string());
        let request = RouteRequest {
            scope: SCOPE,
            prompt: view,
            prompt_tokens: prompt.len() as u64,
            output_budget: Some(u64::from(self.requests[seq].output_tokens)),
            keys: RoutingKeys { routing_key: routing_key.as_deref(), ..RoutingKeys::default() },
            exclude: &[],
        };
        let assignment = self.router.assign(now_ns, &request, &matches).ok()?;
        if let Some(index) = &mut self.index {
            index.credit(SCOPE, view, assignment.worker);
        }
        Some(assignment)
    }

    fn submit(&mut self, now_ns: u64, seq: usize, worker: usize, prompt: Arc<[Token]>) {
        let submit = Submit {
            id: RequestId(seq as u64),
            prompt,
            max_new_tokens: self.requests[seq].output_tokens,
            ignore_eos: true,
            priority: 0,
            namespace: 0,
        };
        let prompt_tokens = submit.prompt.len() as u64;
        let mut events = std::mem::take(&mut self.events);
        let refusal = self.engines[worker].submit(now_ns, submit, &mut events).err();
        self.collect(events);
        if let Some(refusal) = refusal {
            // A stream begins with status 200 and tells of the refusal in a frame; only the scheduler's own ones count
            // the prompt.
            let mut end = End::failed(200, &refusal.to_string());
            end.prompt_tokens = if refusal.is_scheduler_abort() { prompt_tokens } else { 0 };
            self.clock.at(now_ns + self.hop_ns, Event::Finish { seq, end });
        }
        self.arm_engine(worker);
    }

    fn wake_engine(&mut self, now_ns: u64, worker: usize) {
        // Stale when an earlier wake-up was put on the heap after this one.
        if self.wake_ns[worker] != Some(now_ns) {
            return;
        }
        self.wake_ns[worker] = None;
        self.bring_up_to(now_ns, worker);
    }

    /// Lets an engine do everything until `now_ns`.
    pub(super) fn bring_up_to(&mut self, now_ns: u64, worker: usize) {
        let mut events = std::mem::take(&mut self.events);
        self.engines[worker].advance(now_ns, &mut events);
        self.collect(events);
        self.arm_engine(worker);
    }

    fn arm_engine(&mut self, worker: usize) {
        let Some(at_ns) = self.engines[worker].next_deadline() else { return };
        if self.wake_ns[worker].is_none_or(|armed| at_ns < armed) {
            self.wake_ns[worker] = Some(at_ns);
            self.clock.at(at_ns, Event::Engine(worker));
        }
    }

    /// Turns what an engine said into what router and client will see one hop later.
    fn collect(&mut self, mut events: Vec<EngineEvent>) {
        for event in events.drain(..) {
            match event {
                EngineEvent::FirstToken { id, at_ns, .. } => {
                    self.clock.at(at_ns + self.hop_ns, Event::FirstToken(id.0 as usize));
                }
                EngineEvent::Step { gap_ns, tokens, .. } => {
                    self.itl_ns.saturating_record_n(gap_ns, u64::from(tokens));
                }
                EngineEvent::Finish {
                    id,
                    at_ns,
                    reason,
                    prompt_tokens,
                    cached_tokens,
                    output_tokens,
                    ..
                } => {
                    let end = End {
                        prompt_tokens: u64::from(prompt_tokens),
                        cached_tokens: u64::from(cached_tokens),
                        output_tokens: u64::from(output_tokens),
                        status: 200,
                        error: error_of(reason).to_owned(),
                    };
                    self.clock.at(at_ns + self.hop_ns, Event::Finish { seq: id.0 as usize, end });
                }
            }
        }
        self.events = events;
    }

    fn first_token(&mut self, now_ns: u64, seq: usize) {
        self.records[seq].first_ns = Some(now_ns);
        if let Some(booked) = &self.bookings[seq] {
            self.router.first_token(now_ns, booked.lease);
        }
    }

    /// As live: a cache that holds nothing of what was sent there is not believed in any more.
    fn told_cached(&mut self, now_ns: u64, booked: &Assignment, cached_tokens: u64) {
        if self.router.told_cached(now_ns, booked, cached_tokens)
            && let Some(index) = &mut self.index
        {
            index.clear(booked.worker);
        }
    }

    fn end(&mut self, now_ns: u64, seq: usize, end: End) {
        if let Some(booked) = self.bookings[seq].take() {
            let outcome = Outcome::of_status(end.status);
            if outcome == Outcome::Completed {
                self.told_cached(now_ns, &booked, end.cached_tokens);
            }
            self.router.finish(now_ns, booked.lease, outcome);
        }
        let record = &mut self.records[seq];
        record.last_ns = now_ns;
        record.prompt_tokens = end.prompt_tokens;
        record.cached_tokens = end.cached_tokens;
        record.output_tokens = end.output_tokens;
        record.status = end.status;
        record.error = end.error;
        self.finished += 1;
        if matches!(self.pacing, Pacing::Closed { .. }) {
            self.schedule_arrival(now_ns);
        }
    }

    /// The results.
    pub(super) fn finish(self, cell: &Cell, seed: u64) -> Run {
        Run::of(cell, seed, self.records, self.itl_ns)
    }
}

impl End {
    fn failed(status: u16, error: &str) -> Self {
        Self { prompt_tokens: 0, cached_tokens: 0, output_tokens: 0, status, error: error.to_owned() }
    }
}

/// The error in the last frame of a stream that ended so; empty if there is none.
fn error_of(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Length => "",
        FinishReason::Abort { message } | FinishReason::Error { message, .. } => message,
    }
}

/// Workers are added in order to a new router, so ids are places.
pub(super) fn worker_id(worker: usize) -> WorkerId {
    WorkerId(worker as u32)
}
