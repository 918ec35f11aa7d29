//! What each waiting request finds in the cache or in another one, and the orders by that.

use std::collections::{BTreeSet, VecDeque};

use protocol::tokenizer::Token;

use crate::cache::{KvCache, Place};
use crate::scheduler::request::Request;

/// In-batch prefix caching looks at requests that find no more than this in the cache, …
const IN_BATCH_CHECK: u64 = 32;
/// … and lets those wait that share at least this much with one before them.
const IN_BATCH_SHARED: usize = 32;

/// Matches all that wait, one after the other, and notes what each finds.
pub(super) fn match_all(queue: &mut VecDeque<Request>, cache: &mut KvCache, in_batch: bool) -> Vec<Place> {
    let mut seen = InBatch::default();
    let mut places = Vec::with_capacity(queue.len());
    for request in queue {
        let spelled = request.spelled(cache.spelling());
        let place = cache.locate(request.to_match(&spelled), request.namespace);
        let matched = place.len as u64;
        let waits = in_batch && matched <= IN_BATCH_CHECK && seen.shares(request);
        drop(spelled);
        request.matched = matched;
        request.waits_for_prefix = waits;
        places.push(place);
    }
    places
}

/// The longest match first. Those that wait for another's prefix go last, whatever they match.
pub(super) fn by_match(queue: &mut VecDeque<Request>) {
    queue.make_contiguous().sort_by_key(|request| match request.waits_for_prefix {
        true => u64::MAX,
        false => u64::MAX - 1 - request.matched,
    });
}

/// In an order of places that has been found.
pub(super) fn by_branch(queue: &mut VecDeque<Request>, order: &[usize]) {
    let mut requests: Vec<Option<Request>> = queue.drain(..).map(Some).collect();
    queue.extend(order.iter().filter_map(|at| requests[*at].take()));
}

/// The largest ratio of the prefill work that has been done since a request came to its own work first; those without
/// work before all. Equals in the order of their names.
pub(super) fn by_response_ratio(queue: &mut VecDeque<Request>, processed: u64) {
    let ratio = |request: &Request| {
        if request.waits_for_prefix {
            return f64::NEG_INFINITY;
        }
        let work = (request.prompt.len() as u64).saturating_sub(request.matched);
        if work == 0 {
            return f64::INFINITY;
        }
        processed.saturating_sub(request.processed_before) as f64 / work as f64
    };
    queue.make_contiguous().sort_by(|a, b| ratio(b).total_cmp(&ratio(a)).then(a.id.cmp(&b.id)));
}

/// The least work first; those that wait for another's prefix last.
pub(super) fn by_work(queue: &mut VecDeque<Request>) {
    queue
        .make_contiguous()
        .sort_by_key(|request| (request.waits_for_prefix, request.prefill_work(), request.entered));
}

/// The tree over waiting requests that in-batch prefix caching matches against.
///
/// SGLang builds a radix tree with pages of one token; but only whether a match reaches [`IN_BATCH_SHARED`] tokens
/// matters, and that is so exactly if the first tokens in that number are those of a request inserted before. The
/// whole sequence is matched here, unlike in the real tree, which leaves the last token to be computed
/// (`SchedulePolicy._compute_prefix_matches` in `schedule_policy.py`).
#[derive(Default)]
struct InBatch(BTreeSet<(u64, Vec<Token>)>);

impl InBatch {
    /// Whether a request shares enough with one seen before; it is remembered if not.
    fn shares(&mut self, request: &Request) -> bool {
        match request.head(IN_BATCH_SHARED) {
            Some(head) => !self.0.insert((request.namespace, head)),
            None => false,
        }
    }
}
