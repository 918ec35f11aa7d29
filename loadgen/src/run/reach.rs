//! How much of the prompts could have come from a cache, and where the rest was lost.
//!
//! Four shares of the same prompt tokens, each within the one before: with one cache that forgets nothing; with one LRU cache
//! that is as large as all caches of the fleet; with an LRU cache in every worker and the requests where the policy has sent
//! them; and what the engines have reported. Requests count in order of arrival, as if each had ended before the next. Caches
//! hold what prompts are made of, named blocks, and give them up as a whole; hits end at a whole page and leave one token to
//! compute, as in the engine.

use std::collections::{BTreeMap, HashMap, VecDeque};

use protocol::record::RequestRecord;
use protocol::tokenizer::mix;

use crate::scenario::Fleet;
use crate::workload::{PlannedRequest, Segment};

/// Most blocks that are looked at: a bound on the cost. Requests beyond it are left out of all four shares.
const MOST_BLOCKS: usize = 1_000_000;

/// Shares of prompt tokens, from the widest bound to what came.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reach {
    /// The requests that were looked at: the first ones, those that succeeded.
    pub requests: u64,
    /// Whether there were more than could be looked at.
    pub cut: bool,
    /// With one cache that forgets nothing.
    pub infinite: f64,
    /// With one LRU cache of the fleet's size.
    pub fleet: f64,
    /// With LRU caches of the workers' sizes, where the policy has sent the requests.
    pub policy: f64,
    /// As the engines have reported.
    pub delivered: f64,
}

impl Reach {
    /// Of the requests of a run, in the order of their places; `None` when none has succeeded.
    pub(crate) fn of(fleet: &Fleet, requests: &[PlannedRequest], records: &[RequestRecord]) -> Option<Self> {
        let sizes = Sizes::of(fleet);
        let mut caches = Caches::new(&sizes);
        let (mut counts, mut blocks, mut prompt_tokens) = ([0; 4], 0, 0);
        let (mut judged, mut cut) = (0, false);
        for (request, record) in requests.iter().zip(records).filter(|(_, record)| record.succeeded()) {
            blocks += request.prompt.len() + 1;
            cut = blocks > MOST_BLOCKS;
            if cut {
                break;
            }
            let path = path(request);
            let found = caches.serve(&path, record);
            let length = u64::from(request.prompt_tokens());
            let reachable = length.saturating_sub(1);
            let whole = |tokens: u64| {
                let tokens = tokens.min(reachable);
                tokens - tokens % sizes.page
            };
            for (count, tokens) in
                counts.iter_mut().zip(found.map(whole).into_iter().chain([record.cached_tokens]))
            {
                *count += tokens;
            }
            prompt_tokens += record.prompt_tokens.max(1);
            judged += 1;
        }
        let [infinite, fleet, policy, delivered] =
            counts.map(|count| count as f64 / prompt_tokens.max(1) as f64);
        (judged > 0).then_some(Self { requests: judged, cut, infinite, fleet, policy, delivered })
    }
}

/// How much the caches of a fleet hold, in tokens.
struct Sizes {
    page: u64,
    ranks: u64,
    /// Of every worker that computes prompts: one rank of it.
    rank_tokens: BTreeMap<u32, u64>,
}

impl Sizes {
    fn of(fleet: &Fleet) -> Self {
        let computes = |role| role != simworker_core::EngineRole::Decode;
        let rank_tokens = (0..)
            .zip(fleet.worker_roles())
            .filter(|(_, role)| computes(*role))
            .map(|(worker, role)| (worker, fleet.engine_config(role).kv_tokens));
        Self {
            page: u64::from(fleet.engine.config().page_size).max(1),
            ranks: u64::from(fleet.ranks.size).max(1),
            rank_tokens: rank_tokens.collect(),
        }
    }

    fn in_all(&self) -> u64 {
        self.rank_tokens.values().sum::<u64>() * self.ranks
    }

    /// Of the cache of a rank, or of a whole worker that does not tell ranks apart.
    fn of_cache(&self, worker: u32, rank: Option<u32>) -> u64 {
        let one = self.rank_tokens.get(&worker).copied().unwrap_or(0);
        if rank.is_some() { one } else { one * self.ranks }
    }
}

/// A block of a prompt after all that comes before it, and how much of it the prompt has.
#[derive(Debug, Clone, Copy)]
struct Node {
    key: u64,
    tokens: u32,
    /// Whether it belongs to the prompt; the reply is only kept.
    asked: bool,
}

/// The prompt of a request, and its reply.
fn path(request: &PlannedRequest) -> Vec<Node> {
    let reply = Segment::Reply { seq: request.seq as u32, tokens: request.output_tokens };
    let mut before = 0;
    let segments = request.prompt.iter().map(|segment| (*segment, true)).chain([(reply, false)]);
    let node = |(segment, asked): (Segment, bool)| {
        let (name, tokens) = match segment {
            Segment::Text { block, tokens } => (mix(block), tokens),
            Segment::Reply { seq, tokens } => (mix(mix(u64::from(seq)) ^ 1), tokens),
        };
        let key = mix(before ^ name);
        before = mix(key ^ u64::from(tokens));
        Node { key, tokens, asked }
    };
    segments.map(node).collect()
}

/// The three imagined ways to cache.
struct Caches<'s> {
    sizes: &'s Sizes,
    infinite: Lru,
    fleet: Lru,
    workers: BTreeMap<(u32, Option<u32>), Lru>,
}

impl<'s> Caches<'s> {
    fn new(sizes: &'s Sizes) -> Self {
        Self {
            sizes,
            infinite: Lru::new(u64::MAX),
            fleet: Lru::new(sizes.in_all()),
            workers: BTreeMap::new(),
        }
    }

    /// What each finds of a prompt, which it keeps.
    fn serve(&mut self, path: &[Node], record: &RequestRecord) -> [u64; 3] {
        let placed = record.prefill_worker.or(record.worker).map_or(0, |worker| {
            let place = (worker, record.rank);
            let size = self.sizes.of_cache(worker, record.rank);
            self.workers.entry(place).or_insert_with(|| Lru::new(size)).serve(path)
        });
        [self.infinite.serve(path), self.fleet.serve(path), placed]
    }
}

/// A cache of blocks that gives up what was not used for longest.
#[derive(Debug)]
struct Lru {
    capacity: u64,
    held: u64,
    uses: u64,
    entries: HashMap<u64, Entry>,
    /// Every use, oldest first; one that is not its entry's last is void.
    order: VecDeque<(u64, u64)>,
}

#[derive(Debug)]
struct Entry {
    tokens: u32,
    used: u64,
}

impl Lru {
    fn new(capacity: u64) -> Self {
        Self { capacity, held: 0, uses: 0, entries: HashMap::new(), order: VecDeque::new() }
    }

    /// How much of a prompt it holds; and it keeps all of it.
    fn serve(&mut self, path: &[Node]) -> u64 {
        let found = self.find(path);
        // From the end, so that what others may share is given up last.
        path.iter().rev().for_each(|node| self.keep(*node));
        self.shrink();
        found
    }

    fn find(&self, path: &[Node]) -> u64 {
        let mut found = 0;
        for node in path.iter().filter(|node| node.asked) {
            let held = self.entries.get(&node.key).map_or(0, |entry| entry.tokens);
            found += u64::from(held.min(node.tokens));
            if held < node.tokens {
                break;
            }
        }
        found
    }

    fn keep(&mut self, node: Node) {
        self.uses += 1;
        let entry = self.entries.entry(node.key).or_insert(Entry { tokens: 0, used: 0 });
        self.held += u64::from(node.tokens.saturating_sub(entry.tokens));
        entry.tokens = entry.tokens.max(node.tokens);
        entry.used = self.uses;
        if self.capacity < u64::MAX {
            self.order.push_back((node.key, self.uses));
        }
    }

    fn shrink(&mut self) {
        while self.held > self.capacity {
            let Some((key, used)) = self.order.pop_front() else { return };
            if self.entries.get(&key).is_some_and(|entry| entry.used == used)
                && let Some(gone) = self.entries.remove(&key)
            {
                self.held -= u64::from(gone.tokens);
            }
        }
        if self.order.len() > 2 * self.entries.len() + 64 {
            let entries = &self.entries;
            self.order.retain(|(key, used)| entries.get(key).is_some_and(|entry| entry.used == *used));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(key: u64, tokens: u32) -> Node {
        Node { key, tokens, asked: true }
    }

    #[test]
    fn what_was_not_used_for_longest_goes_and_the_start_of_a_prompt_stays() {
        let mut lru = Lru::new(100);
        let (shared, one, other) = (node(1, 40), node(2, 40), node(3, 40));
        assert_eq!(lru.serve(&[shared, one]), 0);
        assert_eq!(lru.serve(&[shared, other]), 40, "and the first question goes");
        assert_eq!(lru.serve(&[shared, other]), 80);
        assert_eq!(lru.serve(&[shared, one]), 40);
        assert_eq!(lru.held, 80);
    }

    #[test]
    fn part_of_a_block_is_found_and_nothing_behind_it() {
        let mut lru = Lru::new(u64::MAX);
        lru.serve(&[node(1, 30), node(2, 10)]);
        assert_eq!(lru.serve(&[node(1, 50), node(2, 10)]), 30);
        assert_eq!(lru.serve(&[node(1, 50), node(2, 10)]), 60);
    }

    #[test]
    fn old_uses_do_not_pile_up() {
        let mut lru = Lru::new(1000);
        (0..10_000).for_each(|_| {
            lru.serve(&[node(1, 10)]);
        });
        assert!(lru.order.len() < 100, "{}", lru.order.len());
    }
}
