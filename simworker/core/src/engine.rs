//! The engine: one SGLang data-parallel rank as a state machine without a clock.
//!
//! Time is handed in. Between two calls the engine is idle, about to make a scheduling pass, or in a step whose end
//! it knows. Calls catch up with all that happened before them and report it as [`Event`]s.
//!
//! A call at the very moment of a pass comes before it: whatever is submitted at that moment is considered. The pass
//! is made by [`Engine::advance`], or by any call with a later time. So requests that arrive together are batched
//! together, and a world should deliver arrivals before it advances to the same moment.

mod handoff;
mod loads;
mod lockstep;

use std::collections::HashSet;

pub use crate::request::{Event, FinishReason, Refusal, RequestId, Submit};
pub use crate::scheduler::{DecodeMoments, EngineTotals};
pub use loads::EngineLoads;

use crate::config::{ConfigError, EngineConfig, Pace};
use crate::cost::CostModel;
use crate::handoff::EngineRole;
use crate::limits::Limits;
use crate::scheduler::{Launch, Request, Scheduler};
use crate::time::Ticks;

/// One emulated data-parallel rank.
#[derive(Debug)]
pub struct Engine {
    cost: CostModel,
    limits: Limits,
    max_queued: Option<u32>,
    max_running: u32,
    pace: Pace,
    scheduler: Scheduler,
    role: EngineRole,
    /// Names of the requests that have not ended.
    live: HashSet<RequestId>,
    phase: Phase,
    /// The latest moment that anything was done at.
    clock: Ticks,
    /// No pass is made before: others that it steps with are in a step. What needs no step does not wait for it.
    not_before: Ticks,
}

/// What the engine is doing.
#[derive(Debug, Clone, Copy)]
enum Phase {
    Idle,
    /// The next scheduling pass is due.
    Pass(Ticks),
    Step(Step),
}

#[derive(Debug, Clone, Copy)]
struct Step {
    launch: Launch,
    began: Ticks,
    ends: Ticks,
}

/// Whether passes that are due at the end of a span of time are made in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    Before,
    Through,
}

impl Until {
    fn includes(self, at_ns: u64, now_ns: u64) -> bool {
        at_ns < now_ns || at_ns == now_ns && self == Self::Through
    }
}

impl Engine {
    /// An idle engine with an empty cache.
    ///
    /// # Errors
    /// When the configuration is impossible.
    pub fn new(config: EngineConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            cost: config.cost,
            limits: Limits::new(&config),
            // SGLang has no limit on queues of which a part waits for another engine.
            max_queued: config.max_queued.filter(|_| config.role == EngineRole::Whole),
            max_running: config.max_running,
            pace: config.pace,
            role: config.role,
            scheduler: Scheduler::new(config),
            live: HashSet::new(),
            phase: Phase::Idle,
            clock: Ticks::ZERO,
            not_before: Ticks::ZERO,
        })
    }

    /// Hands in a request at `now_ns`, after catching up with that time.
    ///
    /// # Errors
    /// When the engine does not accept the request. It leaves no trace then, and no event.
    pub fn submit(&mut self, now_ns: u64, request: Submit, events: &mut Vec<Event>) -> Result<(), Refusal> {
        self.catch_up(now_ns, Until::Before, events);
        let length = self.limits.admit(request.prompt.len() as u64, u64::from(request.max_new_tokens))?;
        if self.live.contains(&request.id) {
            return Err(Refusal::DuplicateId);
        }
        if self.role != EngineRole::Whole && request.room.is_none() {
            return Err(Refusal::NoRoom);
        }
        if self.max_queued.is_some_and(|most| self.scheduler.waiting_len() >= most as usize) {
            return Err(Refusal::QueueFull);
        }
        self.live.insert(request.id);
        // A prefill engine makes the first token, whatever length it was asked for.
        let length = if self.role == EngineRole::Prefill { 1 } else { length };
        self.scheduler.enqueue(now_ns, Request::new(request, length, now_ns));
        self.wake(now_ns);
        Ok(())
    }

    /// Lets an idle engine make a pass.
    fn wake(&mut self, now_ns: u64) {
        if let Phase::Idle = self.phase {
            self.phase = Phase::Pass(self.clock.max(self.not_before).max(Ticks::from_ns(now_ns)));
        }
    }

    /// Aborts a request at `now_ns`: one that waits, or whose KV is on its way, ends at once; any other one with the
    /// next result that it has a part in. False when there is no such request.
    pub fn abort(&mut self, now_ns: u64, id: RequestId, events: &mut Vec<Event>) -> bool {
        self.catch_up(now_ns, Until::Before, events);
        let before = events.len();
        let found = self.scheduler.abort(now_ns, id, events);
        self.forget_ended(&events[before..]);
        if found && self.role != EngineRole::Whole {
            // Others may have waited for what it held.
            self.wake(now_ns);
        }
        found
    }

    /// Empties the cache. False, and nothing done, when any request has not ended.
    ///
    /// The engine must have been advanced to the time of the call: a flush reports no events.
    pub fn flush(&mut self) -> bool {
        self.is_idle() && self.scheduler.flush()
    }

    /// Does everything that is due at or before `now_ns`. Time that has passed already is no error.
    pub fn advance(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        self.catch_up(now_ns, Until::Through, events);
    }

    /// When [`Engine::advance`] should be called next; see [`Pace`]. None when nothing will ever happen by itself.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        let in_phase = match (self.phase, self.pace) {
            (Phase::Idle, _) => None,
            (Phase::Pass(at), _) => Some(at.ns()),
            (Phase::Step(step), Pace::Step) => Some(step.ends.ns()),
            (Phase::Step(step), Pace::Stretch) => Some(self.end_of_stretch(step).ns()),
        };
        in_phase.into_iter().chain(self.scheduler.handoff_due_ns()).min()
    }

    fn end_of_stretch(&self, step: Step) -> Ticks {
        match step.launch {
            Launch::Prefill(_) => step.ends,
            Launch::Decode { batch, context } => {
                step.began + self.cost.decode_stretch(batch, context, self.scheduler.quiet_steps())
            }
        }
    }

    pub(crate) fn catch_up(&mut self, now_ns: u64, until: Until, events: &mut Vec<Event>) {
        let before = events.len();
        loop {
            let due_ns = self.scheduler.handoff_due_ns().unwrap_or(u64::MAX);
            match self.phase {
                Phase::Step(step) if step.ends.ns() <= now_ns.min(due_ns) => self.complete(step, events),
                // What comes at the very moment of a pass comes before it.
                Phase::Pass(at) if at.ns() < due_ns && until.includes(at.ns(), now_ns) => {
                    self.pass(at, events)
                }
                _ if due_ns <= now_ns => self.hand_over(due_ns, events),
                _ => break,
            }
        }
        self.forget_ended(&events[before..]);
        debug_assert_eq!(self.scheduler.requests(), self.live.len(), "each name is one request");
        debug_assert!(
            !self.is_idle() || self.scheduler.used_tokens() == 0,
            "nobody needs KV, yet it is in use"
        );
    }

    fn pass(&mut self, at: Ticks, events: &mut Vec<Event>) {
        self.clock = at;
        self.phase = match self.scheduler.pass(at.ns(), events) {
            None => Phase::Idle,
            Some(launch) => Phase::Step(Step { launch, began: at, ends: at + self.duration(launch) }),
        };
    }

    fn duration(&self, launch: Launch) -> Ticks {
        match launch {
            Launch::Prefill(work) => self.cost.prefill(work),
            Launch::Decode { batch, context } => self.cost.decode(batch, context),
        }
    }

    fn complete(&mut self, step: Step, events: &mut Vec<Event>) {
        let span = step.ends.since(step.began);
        match step.launch {
            Launch::Prefill(_) => self.scheduler.prefill_done(step.ends.ns(), span, events),
            Launch::Decode { .. } => self.scheduler.decode_done(step.ends.ns(), span, events),
        }
        self.clock = step.ends;
        self.phase = Phase::Pass(step.ends);
    }

    fn forget_ended(&mut self, events: &[Event]) {
        for event in events {
            if let Event::Finish { id, .. } = event {
                self.live.remove(id);
            }
        }
    }
}

// === impl Engine: what can be seen ===

impl Engine {
    /// Whether no request is waiting or in a batch.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.live.is_empty()
    }

    /// The requests that decode, with the number of output tokens that events have told of each, in the order of the
    /// batch. A request is among them from its first token until its end is told.
    pub fn running(&self) -> impl Iterator<Item = (RequestId, u32)> {
        self.scheduler.outputs()
    }

    /// The requests of the running batch that have been retracted before, and how often.
    pub fn retracted(&self) -> impl Iterator<Item = (RequestId, u32)> {
        self.scheduler.running().retracted()
    }

    /// The bounds on the length of requests.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Counters since the start.
    #[must_use]
    pub fn totals(&self) -> EngineTotals {
        self.scheduler.totals()
    }

    /// Proves the invariants of the whole engine, in time linear in its size: for tests and debugging.
    ///
    /// # Errors
    /// The first invariant that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        self.scheduler.check()?;
        if self.scheduler.requests() != self.live.len() {
            return Err(format!("{} requests, {} names", self.scheduler.requests(), self.live.len()));
        }
        let cache = self.scheduler.cache();
        if self.is_idle() && cache.free() + cache.evictable() != cache.capacity() {
            return Err("idle, yet some KV is in use".into());
        }
        if matches!(self.phase, Phase::Idle) && !self.scheduler.is_parked() {
            return Err("requests are left, yet nothing is due".into());
        }
        if matches!(self.phase, Phase::Step(_)) && self.is_idle() {
            return Err("a step without requests is in progress".into());
        }
        Ok(())
    }
}
