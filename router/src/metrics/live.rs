//! State that is not counted but read when somebody asks.

use std::sync::Arc;

use router_core::index::IndexStats;
use router_core::{BreakerState, BreakerView, Role, Tally};

use super::WorkerMetrics;
use crate::fleet::Standing;
use crate::record::Counts;
use crate::shared::Shared;

/// Everything that is read at a scrape.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) now_ns: u64,
    /// The workers that the fleet has now.
    pub(crate) workers: Vec<WorkerRow>,
    /// Their engines.
    pub(crate) engines: Vec<EngineRow>,
    /// Without a policy that needs it there is none.
    pub(crate) index: Option<IndexStats>,
    pub(crate) queue: QueueRow,
    /// Requests that wait for a decode stream to end; `None` without a limit on these.
    pub(crate) dispatch_waiting: Option<u64>,
    /// How many routing keys the policy remembers, if it ever does.
    pub(crate) remembered_keys: Option<u64>,
    /// There are to be prefill and decode workers, whoever is there.
    pub(crate) expects_pairs: bool,
    /// How much was recorded, if anything is.
    pub(crate) recorded: Option<Counts>,
}

/// One worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerRow {
    pub(crate) counts: Arc<WorkerMetrics>,
    pub(crate) url: Arc<str>,
    /// The word for its role.
    pub(crate) role: &'static str,
    pub(crate) model: Option<Arc<str>>,
    pub(crate) healthy: bool,
    /// It may get requests: it is healthy, stays, and its breaker is not open.
    pub(crate) available: bool,
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
    /// Of a prefill worker: decode streams that go on with what it computed.
    pub(crate) decode_streams: Option<u64>,
    /// Prompt tokens in flight without a first token; `None` of a decode worker, which computes none of them.
    pub(crate) queued_prefill_tokens: Option<u64>,
    /// Characters that the prefix index believes to be in its cache.
    pub(crate) index_chars: u64,
    pub(crate) breaker: BreakerView,
    pub(crate) tally: Tally,
}

/// What is probed: an engine, whatever its ranks.
#[derive(Debug, Default)]
pub(crate) struct EngineRow {
    pub(crate) url: String,
    /// The word for its role.
    pub(crate) role: &'static str,
    pub(crate) good_checks: u64,
    pub(crate) failed_checks: u64,
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
        let standings = shared.standings();
        let engines = standings.chunk_by(|a, b| a.member.first_id == b.member.first_id);
        let engines = engines.filter_map(<[Standing]>::first).map(EngineRow::of).collect();
        let workers = standings.into_iter().map(|worker| WorkerRow {
            counts: Arc::clone(&worker.rank.metrics),
            url: Arc::clone(&worker.rank.url),
            role: worker.role.label(),
            model: worker.model,
            healthy: worker.healthy,
            available: worker.takes_requests && worker.breaker.state != BreakerState::Open,
            state: worker.member.stage().label(),
            warming_up: worker.warming,
            diverted: worker.diverted,
            routing_keys: worker.routing_keys,
            requests: worker.load.requests,
            tokens: worker.load.tokens,
            decode_streams: (worker.role == Role::Prefill).then_some(worker.decode_streams),
            queued_prefill_tokens: (worker.role != Role::Decode).then_some(worker.load.queued_prefill_tokens),
            index_chars: chars(worker.rank.id).unwrap_or(0),
            breaker: worker.breaker,
            tally: worker.tally,
        });
        let workers = workers.collect();
        let remembered_keys = shared.books.lock().router.remembered_keys().map(|keys| keys as u64);
        let dispatch_waiting = shared.dispatch.waiting();
        let expects_pairs = shared.settings.expects_pairs;
        let recorded = shared.tape.as_ref().map(|tape| tape.counts());
        Self {
            recorded,
            now_ns,
            workers,
            engines,
            index,
            queue,
            dispatch_waiting,
            remembered_keys,
            expects_pairs,
        }
    }
}

impl EngineRow {
    fn of(worker: &Standing) -> Self {
        let member = &worker.member;
        Self {
            url: member.address.url.clone(),
            role: worker.role.label(),
            good_checks: member.checks.count(true),
            failed_checks: member.checks.count(false),
        }
    }
}
