//! The figures of `/v1/loads`, and when SGLang takes them.

use std::collections::BTreeMap;

use super::{DecodeMoments, Scheduler};
use crate::handoff::HandoffLoads;

/// How busy an engine is: the core figures of SGLang's `/v1/loads`, with its meanings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EngineLoads {
    /// Requests in the decode batch; those in a prefill step are in no figure until it ends.
    pub running: u64,
    /// Requests that wait: in the queue; for the decode side to ask; for slots, for KV on its way, on the host.
    pub waiting: u64,
    /// Tokens that the waiting requests, and the rest of a chunked one, will have to compute: an estimate.
    pub waiting_uncached_tokens: u64,
    /// Tokens of KV that requests need now. What is cached and idle does not count.
    pub used_tokens: u64,
    /// `used_tokens`, and the lengths of the waiting requests that hold no KV.
    pub total_tokens: u64,
    /// `total_tokens` without those whose KV has not arrived.
    pub active_tokens: u64,
    /// Tokens of KV in all.
    pub max_total_tokens: u64,
    /// Most requests that run at once.
    pub max_running: u64,
    /// `used_tokens` as a share of all.
    pub token_usage: f64,
    /// Output tokens per second in the last [interval](crate::EngineConfig::decode_log_interval) of decode steps; 0 when
    /// idle.
    pub gen_throughput: f64,
    /// Share of the last prefill batch that was found in the cache.
    pub cache_hit_rate: f64,
    /// `new_token_ratio`: the share of output still to come that is reserved.
    pub new_token_ratio: f64,
    /// Tokens with KV over the running requests.
    pub context_tokens: u64,
    /// Requests thrown out of the batch for lack of KV between the last two reports of throughput: one at each prefill
    /// and one at the end of each interval.
    pub retracted_lately: u64,
    /// Tokens that are free, not even cached.
    pub free_tokens: u64,
    /// Tokens that are cached and idle.
    pub evictable_tokens: u64,
    /// Tokens that prefill steps computed since the start.
    pub total_prefill_uncached_tokens: u64,
    /// Microseconds spent in prefill steps since the start.
    pub total_prefill_busy_us: u64,
    /// Sums over decode steps since the start; none before the first that counts.
    pub decode_moments: Option<DecodeMoments>,
    /// Tokens of KV on the host, and how many fit there; none without a second tier.
    pub host_tokens: Option<(u64, u64)>,
    /// Routing keys in the decode batch, as of the last report at which all of it had one.
    pub routing_keys: u64,
    /// The queues of the hand-off.
    pub handoff: HandoffLoads,
}

/// Requests of one priority.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// In the decode batch.
    pub running: u64,
    /// In the queue.
    pub waiting: u64,
}

/// The load as an engine reports it: figures of one moment, which stay the same until SGLang would take new ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadReport {
    /// When they were taken.
    pub at_ns: u64,
    /// The figures.
    pub loads: EngineLoads,
}

/// The last report, and how many decode steps have passed since.
///
/// SGLang's scheduler writes its load into shared memory when it begins to process a result, *before* the result
/// changes anything: of each prefill step, of every so many decode steps; and again and again while it has
/// nothing to do (`publish_load_snapshot` in `scheduler.py`). Everything that asks for the load reads that.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    last: Option<LoadReport>,
    decode_steps: u32,
    /// Under priority scheduling: requests by priority; a priority that was there once stays, as in SGLang.
    by_priority: BTreeMap<Option<i64>, QueueCounts>,
}

/// Most priorities that are told apart; requests of any further one are counted in the sums only.
const MOST_PRIORITIES: usize = 256;

// === impl Scheduler ===

impl Scheduler {
    /// The load of this moment.
    pub(crate) fn loads(&self) -> EngineLoads {
        let (cache, meters, totals) = (self.cache(), self.meters(), self.totals());
        let (used, waiting_tokens) = (self.used_tokens(), self.waiting_tokens());
        EngineLoads {
            running: self.occupied() as u64,
            waiting: self.waiting_len() as u64,
            waiting_uncached_tokens: self.uncached_tokens(),
            used_tokens: used,
            total_tokens: used + waiting_tokens,
            // Prompts that share a cached prefix are in use once, and on the way each.
            active_tokens: (used + waiting_tokens).saturating_sub(self.tokens_on_the_way()),
            max_total_tokens: cache.capacity(),
            max_running: u64::from(self.config.max_running),
            token_usage: used as f64 / cache.capacity() as f64,
            gen_throughput: meters.throughput(),
            cache_hit_rate: meters.hit_rate(),
            new_token_ratio: self.new_token_ratio(),
            context_tokens: self.running().context(),
            retracted_lately: meters.retracted_lately(),
            free_tokens: self.running().free(cache),
            evictable_tokens: cache.evictable(),
            total_prefill_uncached_tokens: totals.prefill_uncached_tokens,
            total_prefill_busy_us: totals.prefill_busy_ns / 1000,
            decode_moments: meters.moments(),
            host_tokens: cache.host_usage(),
            routing_keys: self.running().unique_routing_keys().unwrap_or_else(|| self.former_routing_keys()),
            handoff: self.handoff_loads(),
        }
    }

    fn former_routing_keys(&self) -> u64 {
        self.snapshots.last.map_or(0, |report| report.loads.routing_keys)
    }

    /// The requests of each priority, as of the last report; none where priorities do not count.
    pub(crate) fn reported_priorities(&self) -> &BTreeMap<Option<i64>, QueueCounts> {
        &self.snapshots.by_priority
    }

    /// The last report; the load of the start before the first.
    pub(crate) fn reported_loads(&self) -> LoadReport {
        self.snapshots.last.unwrap_or_else(|| LoadReport { at_ns: 0, loads: self.loads() })
    }

    /// Takes the figures anew.
    pub(crate) fn take_snapshot(&mut self, at_ns: u64) {
        self.snapshots.last = Some(LoadReport { at_ns, loads: self.loads() });
        self.snapshots.decode_steps = 0;
        if self.config.queue.priority.is_some() {
            self.count_priorities();
        }
    }

    fn count_priorities(&mut self) {
        let mut counts = std::mem::take(&mut self.snapshots.by_priority);
        counts.values_mut().for_each(|count| *count = QueueCounts::default());
        for priority in self.running.priorities() {
            count(&mut counts, priority, |count| count.running += 1);
        }
        for request in self.waiting.iter() {
            count(&mut counts, request.priority, |count| count.waiting += 1);
        }
        self.snapshots.by_priority = counts;
    }

    /// The result of a decode step is about to be processed.
    pub(super) fn snapshot_after_decode(&mut self, at_ns: u64) {
        self.snapshots.decode_steps += 1;
        if self.snapshots.decode_steps >= self.config.load_report_steps {
            self.take_snapshot(at_ns);
        }
    }
}

fn count(
    counts: &mut BTreeMap<Option<i64>, QueueCounts>,
    priority: Option<i64>,
    add: impl FnOnce(&mut QueueCounts),
) {
    if counts.len() < MOST_PRIORITIES || counts.contains_key(&priority) {
        add(counts.entry(priority).or_default());
    }
}
