//! Orders that look at nothing cached.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use protocol::tokenizer::mix;

use crate::config::PriorityConfig;
use crate::scheduler::request::Request;
use crate::scheduler::running::RunningBatch;

/// By priority if that counts, then first come, first served. Without priorities the queue is in that order already.
pub(super) fn by_arrival(queue: &mut VecDeque<Request>, priority: Option<PriorityConfig>) {
    if let Some(priority) = priority {
        queue.make_contiguous().sort_by_key(|request| (priority.rank(request.priority), request.entered));
    }
}

/// By priority if that counts, then the longest reply first.
pub(super) fn by_length(queue: &mut VecDeque<Request>, priority: Option<PriorityConfig>) {
    queue.make_contiguous().sort_by_key(|request| {
        (priority.map(|priority| priority.rank(request.priority)), Reverse(request.max_new))
    });
}

/// A draw that depends on nothing but the seed, the pass and who waits, so that it can be repeated.
pub(super) fn shuffle(queue: &mut VecDeque<Request>, seed: u64, pass: u64) {
    let draw = mix(seed ^ mix(pass));
    queue.make_contiguous().sort_by_cached_key(|request| (mix(draw ^ mix(request.id.0)), request.id));
}

/// Those first whose routing key the most running requests have; keys with equally many by their hash (SGLang: by their
/// text).
pub(super) fn by_routing_key(queue: &mut VecDeque<Request>, running: &RunningBatch) {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for key in running.routing_keys() {
        *counts.entry(key).or_default() += 1;
    }
    if counts.is_empty() {
        return;
    }
    queue.make_contiguous().sort_by_key(|request| {
        let count = request.routing_key.and_then(|key| counts.get(&key)).copied().unwrap_or(0);
        (count == 0, Reverse(count), request.routing_key)
    });
}
