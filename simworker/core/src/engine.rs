//! The engine: one SGLang data-parallel rank as a state machine without a clock.
//!
//! Time is handed in. Between two calls the engine is idle, about to make a scheduling pass, or in a step whose end
//! it knows. Calls catch up with all that happened before them and report it as [`Event`]s.
//!
//! A call at the very moment of a pass comes before it: whatever is submitted at that moment is considered. The pass
//! is made by [`Engine::advance`], or by any call with a later time. So requests that arrive together are batched
//! together, and a world should deliver arrivals before it advances to the same moment.

mod handoff;
mod lockstep;
mod pace;
mod pause;
mod seen;

use std::collections::HashSet;

pub use crate::request::{Event, FinishReason, Refusal, RequestId, Submit};
pub use crate::scheduler::{DecodeMoments, EngineLoads, EngineTotals, LoadReport, PauseMode, QueueCounts};

use crate::config::{ConfigError, EngineConfig, Pace, QueueConfig};
use crate::cost::CostModel;
use crate::handoff::EngineRole;
use crate::limits::Limits;
use crate::scheduler::{Launch, Request, Scheduler};
use crate::time::Ticks;

/// One emulated data-parallel rank.
#[derive(Debug)]
pub struct Engine {
    /// How long steps take at the moment, and before anything slowed them.
    cost: CostModel,
    own_cost: CostModel,
    /// For a token, from the host to the device.
    load_time: Ticks,
    limits: Limits,
    queue: QueueConfig,
    pace: Pace,
    tells_kv: bool,
    scheduler: Scheduler,
    role: EngineRole,
    /// Names of the requests that have not ended.
    live: HashSet<RequestId>,
    phase: Phase,
    /// The latest moment that anything was done at.
    clock: Ticks,
    /// The latest moment that a call was about.
    seen_ns: u64,
    /// No pass is made before: others that it steps with are in a step. What needs no step does not wait for it.
    not_before: Ticks,
    rest: Rest,
}

/// Time without a step.
#[derive(Debug, Clone, Copy, Default)]
struct Rest {
    /// Up to the step in progress, or else the last one.
    total: Ticks,
    /// When the last step ended.
    since: Ticks,
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
        let tells_kv = config.kv_events.is_some();
        Ok(Self {
            tells_kv,
            cost: config.cost,
            own_cost: config.cost,
            load_time: config.host_tier.map_or(Ticks::ZERO, |tier| tier.load_time()),
            limits: Limits::new(&config),
            queue: config.queue,
            pace: config.pace,
            role: config.role,
            scheduler: Scheduler::new(config),
            live: HashSet::new(),
            // One that tells about KV begins by telling that there is none.
            phase: if tells_kv { Phase::Pass(Ticks::ZERO) } else { Phase::Idle },
            clock: Ticks::ZERO,
            seen_ns: 0,
            not_before: Ticks::ZERO,
            rest: Rest::default(),
        })
    }

    /// The same engine in its place among the ranks of a worker.
    pub(crate) fn of_rank(mut self, rank: u32) -> Self {
        self.scheduler.rank = rank;
        self
    }

    /// Hands in a request at `now_ns`, after catching up with that time.
    ///
    /// Where priorities count and the queue is full, the least important request that waits ends for one that is more
    /// important.
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
        if self.queue.refuses_priorities && self.queue.priority.is_none() && request.priority.is_some() {
            return Err(Refusal::PrioritiesDisabled);
        }
        self.make_way(now_ns, request.priority, events)?;
        self.rest_report(now_ns);
        self.live.insert(request.id);
        let length = match self.role {
            EngineRole::Whole if request.is_prefill_only => 0,
            // It makes the first token, whatever length it was asked for.
            EngineRole::Prefill => 1,
            EngineRole::Whole | EngineRole::Decode => length,
        };
        self.scheduler.enqueue(now_ns, Request::new(request, length, now_ns));
        self.wake(now_ns);
        Ok(())
    }

    /// Lets a request of that priority into the queue, if need be instead of one that waits.
    fn make_way(
        &mut self,
        now_ns: u64,
        priority: Option<i64>,
        events: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        if !self.scheduler.is_queue_full() {
            return Ok(());
        }
        let before = events.len();
        if !self.scheduler.displace(now_ns, priority, events) {
            return Err(Refusal::QueueFull);
        }
        self.forget_ended(&events[before..]);
        Ok(())
    }

    /// An engine that has nothing to do reports all the time, so the last such report is of this moment.
    fn rest_report(&mut self, now_ns: u64) {
        if matches!(self.phase, Phase::Idle) && !self.is_paused() {
            self.scheduler.take_snapshot(now_ns);
        }
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

    /// Whether [`Engine::flush`] would empty the cache: when all requests have ended; of a paused engine, when those
    /// that are left wait in the queue and hold no KV (`is_fully_idle` in SGLang's `scheduler.py`).
    #[must_use]
    pub fn may_flush(&self) -> bool {
        self.is_idle() || self.is_paused() && self.scheduler.only_queues()
    }

    /// Empties the cache. False, and nothing done, where it [may not](Engine::may_flush).
    ///
    /// The engine must have been advanced to the time of the call: a flush reports no events.
    pub fn flush(&mut self) -> bool {
        let flushed = self.may_flush() && self.scheduler.flush();
        if flushed && self.tells_kv {
            // The next pass, which is due, tells of it.
            self.wake(self.seen_ns);
        }
        flushed
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
            Launch::Prefill(_) | Launch::Mixed { .. } => step.ends,
            Launch::Decode { .. } => {
                let running = self.scheduler.running();
                let (batch, more) = (running.len() as u64, self.scheduler.quiet_steps() - 1);
                step.ends + self.cost.decode_stretch(batch, running.context() + batch, more)
            }
        }
    }

    pub(crate) fn catch_up(&mut self, now_ns: u64, until: Until, events: &mut Vec<Event>) {
        self.seen_ns = self.seen_ns.max(now_ns);
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
            Some(launch) => {
                self.rest.total += at.since(self.rest.since);
                Phase::Step(Step { launch, began: at, ends: at + self.duration(launch) })
            }
        };
    }

    fn duration(&self, launch: Launch) -> Ticks {
        match launch {
            // Layer by layer, computing waits for what is loaded.
            Launch::Prefill(work) => self.cost.prefill(work).max(self.load_time * work.loaded()),
            Launch::Mixed { work, batch, context } => {
                self.cost.mixed(work, batch, context).max(self.load_time * work.loaded())
            }
            Launch::Decode { batch, context } => self.cost.decode(batch, context),
        }
    }

    fn complete(&mut self, step: Step, events: &mut Vec<Event>) {
        let span = step.ends.since(step.began);
        match step.launch {
            Launch::Prefill(_) | Launch::Mixed { .. } => {
                self.scheduler.prefill_done(step.ends.ns(), span, events)
            }
            Launch::Decode { .. } => self.scheduler.decode_done(step.ends.ns(), span, events),
        }
        self.clock = step.ends;
        self.rest.since = step.ends;
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
