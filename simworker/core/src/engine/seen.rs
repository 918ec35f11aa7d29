//! What can be seen of an engine.

use super::{Engine, EngineLoads, EngineTotals, LoadReport, Phase, QueueCounts, RequestId, Rest};
use crate::cache::Cached;
use crate::limits::Limits;
use crate::time::Ticks;

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

    /// How busy the engine is, as of the last call that took a time.
    #[must_use]
    pub fn loads(&self) -> EngineLoads {
        self.scheduler.loads()
    }

    /// How busy the engine says it is at `now_ns`, with which it has caught up: figures that change only when SGLang takes
    /// new ones. One that has nothing to do takes them all the time.
    #[must_use]
    pub fn reported_loads(&self, now_ns: u64) -> LoadReport {
        match self.phase {
            Phase::Idle if !self.is_paused() => LoadReport { at_ns: now_ns, loads: self.loads() },
            _ => self.scheduler.reported_loads(),
        }
    }

    /// Under priority scheduling the requests of each priority that has been seen, as of the last report of the load.
    pub fn reported_priorities(&self) -> impl Iterator<Item = (Option<i64>, QueueCounts)> {
        self.scheduler.reported_priorities().iter().map(|(priority, counts)| (*priority, *counts))
    }

    /// Counters since the start.
    #[must_use]
    pub fn totals(&self) -> EngineTotals {
        self.scheduler.totals()
    }

    /// Nanoseconds without a step from the start to `now_ns`, with which the engine has caught up. It never falls as time
    /// goes on: a step in progress is no idle time from its beginning on.
    #[must_use]
    pub fn idle_ns(&self, now_ns: u64) -> u64 {
        let Rest { total, since } = self.rest;
        let lately = match self.phase {
            Phase::Step(_) => Ticks::ZERO,
            Phase::Idle | Phase::Pass(_) => Ticks::from_ns(now_ns).since(since),
        };
        (total + lately).ns()
    }

    /// Everything that is cached, in time linear in its size: for tests.
    pub fn cached(&self) -> impl Iterator<Item = Cached> {
        self.scheduler.cache().contents()
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
        if matches!(self.phase, Phase::Idle) && !self.scheduler.is_parked() && !self.is_paused() {
            return Err("requests are left, yet nothing is due".into());
        }
        // What ended as a surprise may leave a step behind in which nobody has a part any more.
        if matches!(self.phase, Phase::Step(_)) && self.is_idle() && !self.scheduler.overlaps() {
            return Err("a step without requests is in progress".into());
        }
        Ok(())
    }
}
