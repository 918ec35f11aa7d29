//! What a worker tells about its load and its counters.

use simworker_core::{EngineLoads, EngineTotals, LoadReport, QueueCounts};

use super::Inner;

/// The load of a rank as it is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToldLoads {
    pub(crate) loads: EngineLoads,
    /// The moment it is of, in seconds since the epoch: the same in each answer that tells the same report.
    pub(crate) unix_s: f64,
    /// The rank makes no steps.
    pub(crate) is_paused: bool,
}

/// What a rank counts.
#[derive(Debug)]
pub(crate) struct RankReport {
    /// The load that it reported last.
    pub(crate) loads: EngineLoads,
    pub(crate) totals: EngineTotals,
    /// Engine time without a step, since the start of its process.
    pub(crate) idle_ns: u64,
    /// Where priorities count: its requests by theirs.
    pub(crate) priorities: Vec<(Option<i64>, QueueCounts)>,
}

impl Inner {
    /// Requests in the queues of all ranks, and those on their way there.
    pub(in crate::worker) fn queued(&self) -> u64 {
        let waiting = (0..self.engine.size()).map(|rank| self.engine.loads(rank).waiting);
        self.arrivals.len() as u64 + waiting.sum::<u64>()
    }

    /// The load of each rank to tell.
    pub(in crate::worker) fn told_loads(&self, now_ns: u64) -> Vec<ToldLoads> {
        let told = |rank| {
            let LoadReport { at_ns, loads } = self.engine.reported_loads(rank, now_ns);
            let unix_s = self.clock.unix_s(at_ns.max(self.started_ns));
            ToldLoads { loads, unix_s, is_paused: self.engine.is_paused() }
        };
        self.frozen.clone().unwrap_or_else(|| (0..self.engine.size()).map(told).collect())
    }

    /// What each rank counts.
    pub(in crate::worker) fn report(&self, now_ns: u64) -> Vec<RankReport> {
        let rank = |rank| RankReport {
            loads: self.engine.reported_loads(rank, now_ns).loads,
            totals: self.engine.totals(rank),
            idle_ns: self.engine.idle_ns(rank, now_ns).saturating_sub(self.started_ns),
            priorities: self.engine.reported_priorities(rank).collect(),
        };
        (0..self.engine.size()).map(rank).collect()
    }
}
