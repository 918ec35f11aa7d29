//! What can be seen of the ranks.

use super::Ranks;
use crate::cache::Cached;
use crate::engine::{Engine, EngineLoads, LoadReport, QueueCounts};
use crate::limits::Limits;
use crate::request::RequestId;
use crate::scheduler::EngineTotals;

impl Ranks {
    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.engines.len() as u32
    }

    /// Whether no request is waiting or in a batch.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.live.is_empty()
    }

    /// The requests that decode, as [`Engine::running`], rank by rank.
    pub fn running(&self) -> impl Iterator<Item = (RequestId, u32)> {
        self.engines.iter().flat_map(Engine::running)
    }

    /// The requests of the running batches that have been retracted before, and how often.
    pub fn retracted(&self) -> impl Iterator<Item = (RequestId, u32)> {
        self.engines.iter().flat_map(Engine::retracted)
    }

    /// The bounds on the length of requests, the same on each rank.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.engines[0].limits()
    }

    /// How busy a rank is.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn loads(&self, rank: u32) -> EngineLoads {
        self.engines[rank as usize].loads()
    }

    /// How busy a rank says it is at `now_ns`, as [`Engine::reported_loads`].
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn reported_loads(&self, rank: u32, now_ns: u64) -> LoadReport {
        self.engines[rank as usize].reported_loads(now_ns)
    }

    /// The requests of each priority on a rank, as [`Engine::reported_priorities`].
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn reported_priorities(&self, rank: u32) -> impl Iterator<Item = (Option<i64>, QueueCounts)> {
        self.engines[rank as usize].reported_priorities()
    }

    /// A rank's counters since the start.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn totals(&self, rank: u32) -> EngineTotals {
        self.engines[rank as usize].totals()
    }

    /// Nanoseconds without a step on a rank, as [`Engine::idle_ns`].
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn idle_ns(&self, rank: u32, now_ns: u64) -> u64 {
        self.engines[rank as usize].idle_ns(now_ns)
    }

    /// Everything that a rank has cached, in time linear in its size: for tests.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn cached(&self, rank: u32) -> impl Iterator<Item = Cached> {
        self.engines[rank as usize].cached()
    }

    /// Proves the invariants of all ranks, in time linear in their size: for tests and debugging.
    ///
    /// # Errors
    /// The first invariant that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        self.engines.iter().try_for_each(Engine::check)?;
        self.early.check()?;
        let idle = self.engines.iter().all(Engine::is_idle);
        if idle != self.live.is_empty() {
            return Err(format!("{} requests have a rank, yet the ranks are idle: {idle}", self.live.len()));
        }
        if idle && !self.rooms.is_empty() {
            return Err(format!("idle, yet {} rooms are taken", self.rooms.len()));
        }
        Ok(())
    }
}
