//! The waiting queue and its order.

use std::collections::{BTreeSet, VecDeque};

use protocol::tokenizer::Token;

use super::request::Request;
use crate::cache::KvCache;
use crate::config::Schedule;
use crate::request::RequestId;

/// With more waiting than this, lpm falls back to fcfs; and so many are refreshed under fcfs.
const WINDOW: usize = 128;
/// In-batch prefix caching looks at requests that find no more than this in the cache, …
const IN_BATCH_CHECK: u64 = 32;
/// … and lets those wait that share at least this much with one before them.
const IN_BATCH_SHARED: usize = 32;

#[derive(Debug)]
pub(crate) struct WaitingQueue {
    queue: VecDeque<Request>,
    /// Arrivals that the next choice of a batch does not see.
    arrivals: Vec<Request>,
    schedule: Schedule,
    in_batch: bool,
}

impl WaitingQueue {
    pub(crate) fn new(schedule: Schedule, in_batch: bool) -> Self {
        Self { queue: VecDeque::new(), arrivals: Vec::new(), schedule, in_batch }
    }

    pub(crate) fn push(&mut self, request: Request) {
        self.queue.push_back(request);
    }

    /// Takes in a request that has no part in the queue before [`WaitingQueue::receive`].
    pub(crate) fn hold_back(&mut self, request: Request) {
        self.arrivals.push(request);
    }

    /// Lets those that were held back into the queue.
    pub(crate) fn receive(&mut self) {
        self.queue.extend(self.arrivals.drain(..));
    }

    pub(crate) fn has_arrivals(&self) -> bool {
        !self.arrivals.is_empty()
    }

    pub(crate) fn front(&self) -> Option<&Request> {
        self.queue.front()
    }

    /// Takes out the front if it is wanted.
    pub(crate) fn pop_if(&mut self, wanted: bool) -> Option<Request> {
        if wanted { self.queue.pop_front() } else { None }
    }

    /// All that wait, those included that are held back.
    pub(crate) fn len(&self) -> usize {
        self.queue.len() + self.arrivals.len()
    }

    /// Whether there is nobody to choose from.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// All that wait, those included that are held back.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.queue.iter().chain(&self.arrivals)
    }

    /// Takes out the request of that name.
    pub(crate) fn take(&mut self, id: RequestId) -> Option<Request> {
        if let Some(at) = self.arrivals.iter().position(|request| request.id == id) {
            return Some(self.arrivals.remove(at));
        }
        let at = self.queue.iter().position(|request| request.id == id)?;
        self.queue.remove(at)
    }

    /// Whether the order depends on what is cached: matching thousands of prompts at every pass would cost more
    /// than it brings, so SGLang does it for a short queue only.
    pub(crate) fn is_cache_aware(&self) -> bool {
        self.schedule == Schedule::Lpm && self.queue.len() <= WINDOW
    }

    /// Puts the queue into the order in which requests are tried.
    pub(crate) fn order(&mut self, cache: &mut KvCache) {
        if self.is_cache_aware() {
            self.order_by_match(cache);
        }
    }

    /// Keeps the prefixes of the next requests recent while they wait.
    pub(crate) fn refresh(&self, cache: &mut KvCache) {
        for request in self.queue.iter().take(WINDOW) {
            cache.probe(&request.tokens(), request.namespace);
        }
    }

    fn order_by_match(&mut self, cache: &mut KvCache) {
        let mut seen = InBatch::default();
        for request in &mut self.queue {
            let tokens = request.tokens();
            let matched = cache.probe(&tokens, request.namespace) as u64;
            let waits = self.in_batch && matched <= IN_BATCH_CHECK && seen.shares(request.namespace, &tokens);
            drop(tokens);
            request.matched = matched;
            request.waits_for_prefix = waits;
        }
        // Stable: equals keep their order. Those that wait for another's prefix go last, whatever they match.
        self.queue.make_contiguous().sort_by_key(|request| match request.waits_for_prefix {
            true => u64::MAX,
            false => u64::MAX - 1 - request.matched,
        });
    }
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
    /// Whether `tokens` shares enough with a request seen before; it is remembered if not.
    fn shares(&mut self, namespace: u64, tokens: &[Token]) -> bool {
        match tokens.get(..IN_BATCH_SHARED) {
            Some(head) => !self.0.insert((namespace, head.to_vec())),
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cache::{CacheConfig, Eviction};
    use crate::request::Submit;

    fn cache_with(prompt: &[Token]) -> KvCache {
        let mut cache = KvCache::new(CacheConfig {
            page_size: 1,
            capacity_tokens: 100_000,
            eviction: Eviction::Lru,
            disabled: false,
        });
        let mut hold = cache.acquire(prompt, 0);
        cache.extend(&mut hold, prompt.len()).unwrap();
        cache.finish(hold, prompt, prompt.len(), 0, 0);
        cache
    }

    fn request(id: u64, prompt: impl Iterator<Item = Token>) -> Request {
        let prompt: Arc<[Token]> = prompt.collect();
        let id = RequestId(id);
        Request::new(
            Submit { id, prompt, max_new_tokens: 1, ignore_eos: true, priority: 0, namespace: 0, room: None },
            1,
            0,
        )
    }

    fn order(in_batch: bool, schedule: Schedule, requests: Vec<Request>) -> Vec<u64> {
        let mut cache = cache_with(&(0..500).collect::<Vec<_>>());
        let mut queue = WaitingQueue::new(schedule, in_batch);
        for request in requests {
            queue.push(request);
        }
        queue.order(&mut cache);
        queue.iter().map(|request| request.id.0).collect()
    }

    fn mixed() -> Vec<Request> {
        vec![
            request(0, 1000..1100),
            request(1, (0..50).chain(2000..2100)),
            request(2, (1000..1060).chain(3000..3100)),
            request(3, 0..400),
            request(4, 1000..1031),
            request(5, 1000..1032),
        ]
    }

    #[test]
    fn lpm_sorts_by_match_and_fcfs_does_not() {
        assert_eq!(order(false, Schedule::Lpm, mixed()), [3, 1, 0, 2, 4, 5]);
        assert_eq!(order(true, Schedule::Fcfs, mixed()), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn requests_wait_for_the_first_of_their_prefix() {
        // 2 and 5 share 60 and 32 tokens with 0, 5 with its last one counted; 4 shares only 31.
        assert_eq!(order(true, Schedule::Lpm, mixed()), [3, 1, 0, 4, 2, 5]);
    }

    #[test]
    fn a_long_queue_is_served_in_order_of_arrival() {
        let many = |n: u64| {
            let mut requests: Vec<_> = (0..n - 1).map(|i| request(i, 7000..7010)).collect();
            requests.push(request(n - 1, 0..400));
            requests
        };
        assert_eq!(order(true, Schedule::Lpm, many(128))[0], 127);
        assert_eq!(order(true, Schedule::Lpm, many(129))[0], 0);
    }
}
