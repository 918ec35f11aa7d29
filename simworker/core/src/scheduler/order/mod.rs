//! The order of the waiting queue (SGLang's `SchedulePolicy` in `schedule_policy.py`).
//!
//! | file | idea |
//! |---|---|
//! | [`prefix`] | what each waiting request finds in the cache or in another one, and the orders by that |
//! | [`plain`] | the orders that look at nothing cached |
//!
//! The order is made anew at each pass that may admit somebody, and made of the order before: all sorts are stable.

mod plain;
mod prefix;

use std::collections::VecDeque;

use super::request::Request;
use super::running::RunningBatch;
use crate::cache::{Eviction, KvCache};
use crate::config::{EngineConfig, EngineRole, PriorityConfig, Schedule};

/// With more waiting than this, some schedules fall back to fcfs; and so many are kept recent. Matching thousands of
/// prompts at every pass would cost more than it brings.
pub(super) const WINDOW: usize = 128;
/// The prefixes of waiting requests are kept recent whenever the queue has been ordered so often.
const REFRESH_CALLS: u64 = 32;

/// Everything else that an order depends on.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    /// The number of this pass.
    pub(super) pass: u64,
    pub(super) running: &'a RunningBatch,
}

#[derive(Debug)]
pub(super) struct Order {
    schedule: Schedule,
    in_batch: bool,
    seed: u64,
    priority: Option<PriorityConfig>,
    /// Whether waiting requests must be kept recent, as nothing else does that.
    refreshes: bool,
    calls: u64,
}

impl Order {
    pub(super) fn new(config: &EngineConfig) -> Self {
        let caches = !config.caches_nothing();
        let schedule =
            if caches || !config.schedule.looks_at_cache() { config.schedule } else { Schedule::Fcfs };
        Self {
            schedule,
            in_batch: config.in_batch_prefix_caching,
            seed: config.queue.seed,
            priority: config.queue.priority,
            refreshes: caches && config.eviction == Eviction::Lru && config.role != EngineRole::Decode,
            calls: 0,
        }
    }

    pub(super) fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// Whether a queue of that length is matched against the cache.
    pub(super) fn is_cache_aware(&self, len: usize) -> bool {
        self.schedule.looks_at_cache() && !(self.schedule.falls_back() && len > WINDOW)
    }

    /// Orders the queue; prefill steps have computed `processed` tokens so far.
    pub(super) fn apply(
        &mut self,
        queue: &mut VecDeque<Request>,
        cache: &mut KvCache,
        processed: u64,
        facts: &Facts<'_>,
    ) {
        if self.is_cache_aware(queue.len()) {
            let places = prefix::match_all(queue, cache, self.in_batch);
            match self.schedule {
                Schedule::DfsWeight => prefix::by_branch(queue, &cache.dfs_order(&places)),
                Schedule::Hrrn => prefix::by_response_ratio(queue, processed),
                Schedule::ShortestPrefillFirst => prefix::by_work(queue),
                _ => prefix::by_match(queue),
            }
            return;
        }
        match self.schedule {
            Schedule::Lof => plain::by_length(queue, self.priority),
            Schedule::Random => plain::shuffle(queue, self.seed, facts.pass),
            Schedule::RoutingKey => plain::by_routing_key(queue, facts.running),
            _ => plain::by_arrival(queue, self.priority),
        }
        self.refresh(queue, cache);
    }

    /// Keeps the prefixes of the next requests recent while they wait, the first one last, so that it is evicted last.
    fn refresh(&mut self, queue: &VecDeque<Request>, cache: &mut KvCache) {
        if !self.refreshes || queue.is_empty() {
            return;
        }
        let is_due = self.calls.is_multiple_of(REFRESH_CALLS);
        self.calls += 1;
        if is_due {
            for request in queue.iter().take(WINDOW).rev() {
                let spelled = request.spelled(cache.spelling());
                cache.probe(request.to_match(&spelled), request.namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests;
