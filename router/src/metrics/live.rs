//! State that is not counted but read when somebody asks.

use std::sync::Arc;

use router_core::index::IndexStats;
use router_core::{BreakerView, Tally};

use super::WorkerMetrics;
use crate::shared::Shared;

/// Everything that is read at a scrape.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) now_ns: u64,
    /// The workers that the fleet has now.
    pub(crate) workers: Vec<WorkerRow>,
    /// Without a policy that needs it there is none.
    pub(crate) index: Option<IndexStats>,
    pub(crate) queue: QueueRow,
    /// How many routing keys the policy remembers, if it ever does.
    pub(crate) remembered_keys: Option<u64>,
}

/// One worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerRow {
    pub(crate) counts: Arc<WorkerMetrics>,
    pub(crate) url: String,
    /// The word for its role.
    pub(crate) role: &'static str,
    pub(crate) model: Option<Arc<str>>,
    pub(crate) healthy: bool,
    /// The word for how far it has come.
    pub(crate) state: &'static str,
    /// It is given more than its policy would give it.
    pub(crate) warming_up: bool,
    /// How many requests it got in this way.
    pub(crate) diverted: u64,
    /// How many routing keys stick to it, under a policy that remembers some.
    pub(crate) routing_keys: Option<u64>,
    /// In flight.
    pub(crate) requests: u64,
    pub(crate) tokens: u64,
    /// Prompt tokens in flight without a first token.
    pub(crate) queued_prefill_tokens: u64,
    /// Characters that the prefix index believes to be in its cache.
    pub(crate) index_chars: u64,
    pub(crate) breaker: BreakerView,
    pub(crate) tally: Tally,
}

/// The limit on concurrent requests; all 0 without one.
#[derive(Debug, Default)]
pub(crate) struct QueueRow {
    pub(crate) waiting: u64,
    pub(crate) in_use: u64,
}

impl Live {
    /// What there is now.
    pub(crate) fn read(shared: &Shared, queue: QueueRow) -> Self {
        let now_ns = shared.clock.now_ns();
        let index = shared.belief.read().map(|index| index.stats());
        let chars = |worker| {
            let stats = index.as_ref()?;
            let at = stats.chars.binary_search_by_key(&worker, |row| row.0).ok()?;
            Some(stats.chars[at].1)
        };
        let workers = shared.standings().into_iter().map(|worker| WorkerRow {
            counts: Arc::clone(&worker.member.metrics),
            url: worker.member.address.url.clone(),
            role: worker.role.label(),
            model: worker.model,
            healthy: worker.healthy,
            state: worker.member.stage().label(),
            warming_up: worker.warming,
            diverted: worker.diverted,
            routing_keys: worker.routing_keys,
            requests: worker.load.requests,
            tokens: worker.load.tokens,
            queued_prefill_tokens: worker.load.queued_prefill_tokens,
            index_chars: chars(worker.member.id).unwrap_or(0),
            breaker: worker.breaker,
            tally: worker.tally,
        });
        let workers = workers.collect();
        let remembered_keys = shared.books.lock().router.remembered_keys().map(|keys| keys as u64);
        Self { now_ns, workers, index, queue, remembered_keys }
    }
}
