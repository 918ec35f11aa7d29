//! How much of the prompts a cache can serve.
//!
//! A block is served when it and all before it in its prompt are cached, so a block is known by its whole prefix: the name
//! of the block before it, and its own. A request is looked up before it is stored. It is stored from its last block to its
//! first, so that a beginning is never evicted before what follows it.
//!
//! What a prompt has beyond its named blocks takes room in a cache too: it counts as blocks that no other prompt has. Where a
//! prompt has no named block at all, nothing is known of it, and nothing counted.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use protocol::tokenizer::mix;
use serde::Serialize;

use super::lru::LruStack;
use crate::trace::{Row, blocks};

/// The sizes of the LRU curve, in tokens: 640, 1,920, 5,856, 11,718 and 97,657 blocks of 512.
const SIZES_TOKENS: [u64; 5] = [640 * 512, 1_920 * 512, 5_856 * 512, 11_718 * 512, 97_657 * 512];
/// The bounds of the match-ratio histogram.
const BOUNDS: [f64; 12] = [0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

/// What prompts share.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reuse {
    /// Prompt tokens per block.
    pub block_tokens: u32,
    /// Blocks of all prompts.
    pub references: u64,
    /// Different ones among them.
    pub distinct: u64,
    /// Share of the blocks that a cache that never evicts serves.
    pub infinite_by_block: f64,
    /// Share of the prompt tokens that it serves.
    pub infinite_by_token: f64,
    /// The same over the last half of the requests: what the LRU curve comes up to.
    pub infinite_last_half: f64,
    /// How large a share of each prompt it serves.
    pub match_ratio: Vec<Bin>,
}

/// Prompts of which a share within two bounds is served.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bin {
    /// The lower bound, which belongs to it.
    pub from: f64,
    /// The upper bound, which only belongs to the last one.
    pub to: f64,
    /// Share of the prompts.
    pub share: f64,
}

/// One LRU cache for the whole trace.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LruPoint {
    /// Its size, in blocks of the trace.
    pub blocks: u64,
    /// Its size, in tokens.
    pub tokens: u64,
    /// Share of the prompt tokens that it serves, over the last half of the requests.
    pub hit_rate: f64,
}

/// Workers whose caches are asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fleet {
    /// Tokens of KV that fit into one of them.
    pub kv_tokens: u64,
    /// How many there are.
    pub workers: u32,
}

/// One LRU cache as large as those of some workers together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FleetPoint {
    /// How many workers.
    pub workers: u32,
    /// The cache.
    #[serde(flatten)]
    pub cache: LruPoint,
}

impl Fleet {
    /// One worker, and all of them.
    fn parts(self) -> impl Iterator<Item = (u32, u64)> {
        let counts = std::iter::once(1).chain((self.workers > 1).then_some(self.workers));
        counts.map(move |workers| (workers, self.kv_tokens.saturating_mul(workers.into())))
    }
}

/// What prompts share, and what caches serve.
#[derive(Debug, Default)]
pub(super) struct Caches {
    /// Absent if no row had blocks; then the others are empty.
    pub(super) reuse: Option<Reuse>,
    pub(super) lru: Vec<LruPoint>,
    pub(super) fleet: Vec<FleetPoint>,
}

#[derive(Debug)]
pub(super) struct Tally {
    block_tokens: u32,
    fleet: Option<Fleet>,
    /// Of all caches but the last, which never evicts; they ascend.
    sizes: Vec<u32>,
    stack: LruStack,
    entries: HashMap<u64, u32, BuildHasherDefault<Mixed>>,
    references: u64,
    hit_blocks: u64,
    /// The length of each row.
    inputs: Vec<u32>,
    /// For each row, the tokens that each cache serves, one after the other: which rows are the last half shows at the end.
    served: Vec<u32>,
    /// The blocks of the row at hand: name of the prefix, and entry.
    scratch: Vec<(u64, Option<u32>)>,
    /// How many of them each cache serves.
    hits: Vec<u32>,
}

impl Tally {
    pub(super) fn new(block_tokens: u32, fleet: Option<Fleet>) -> Self {
        let asked = fleet.into_iter().flat_map(Fleet::parts).map(|(_, tokens)| tokens);
        let mut sizes: Vec<u32> =
            SIZES_TOKENS.into_iter().chain(asked).map(|tokens| blocks_of(tokens, block_tokens)).collect();
        sizes.sort_unstable();
        Self {
            block_tokens,
            fleet,
            stack: LruStack::new(sizes.clone()),
            hits: vec![0; sizes.len() + 1],
            sizes,
            entries: HashMap::default(),
            references: 0,
            hit_blocks: 0,
            inputs: Vec::new(),
            served: Vec::new(),
            scratch: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, row: &Row) {
        let (seq, named) = (self.inputs.len() as u64, row.blocks.len());
        let all = if named == 0 { 0 } else { row.input_tokens.div_ceil(self.block_tokens) as usize };
        let own = blocks::own(seq, named).take(all.saturating_sub(named));
        self.look_up(row.blocks.iter().copied().chain(own));
        self.references += self.scratch.len() as u64;
        self.hit_blocks += u64::from(self.hits[self.sizes.len()]);
        let tokens = |blocks: &u32| blocks.saturating_mul(self.block_tokens).min(row.input_tokens);
        self.inputs.push(row.input_tokens);
        self.served.extend(self.hits.iter().map(tokens));
        self.store();
    }

    /// Counts how many of the first `blocks` each cache serves.
    fn look_up(&mut self, blocks: impl Iterator<Item = u64>) {
        self.scratch.clear();
        self.hits.fill(0);
        let mut prefix = 0;
        let mut smallest = Some(0);
        for id in blocks {
            prefix = mix(prefix ^ mix(id));
            let entry = self.entries.get(&prefix).copied();
            self.scratch.push((prefix, entry));
            // The smallest cache that still holds everything up to here.
            smallest = smallest.and_then(|smallest: usize| Some(smallest.max(self.stack.segment(entry?))));
            if let Some(smallest) = smallest {
                self.hits[smallest..].iter_mut().for_each(|blocks| *blocks += 1);
            }
        }
    }

    fn store(&mut self) {
        for (prefix, entry) in self.scratch.iter().rev() {
            match entry {
                Some(entry) => self.stack.touch(*entry),
                None => {
                    self.entries.insert(*prefix, self.stack.insert());
                }
            }
        }
    }

    /// What prompts share and what caches serve; nothing if no row had blocks.
    pub(super) fn finish(self) -> Caches {
        if self.references == 0 {
            return Caches::default();
        }
        let (infinite, half) = (self.sizes.len(), self.inputs.len() / 2);
        let reuse = Reuse {
            block_tokens: self.block_tokens,
            references: self.references,
            distinct: self.entries.len() as u64,
            infinite_by_block: self.hit_blocks as f64 / self.references as f64,
            infinite_by_token: self.hit_rate(0, infinite),
            infinite_last_half: self.hit_rate(half, infinite),
            match_ratio: self.match_ratio(),
        };
        let lru = SIZES_TOKENS.into_iter().map(|tokens| self.point(half, tokens)).collect();
        let parts = self.fleet.into_iter().flat_map(Fleet::parts);
        let fleet = parts.map(|(workers, tokens)| FleetPoint { workers, cache: self.point(half, tokens) });
        Caches { reuse: Some(reuse), lru, fleet: fleet.collect() }
    }

    /// The cache of so many tokens, over the rows from `half` on.
    fn point(&self, half: usize, tokens: u64) -> LruPoint {
        let blocks = blocks_of(tokens, self.block_tokens);
        let cache = self.sizes.partition_point(|size| *size < blocks);
        let tokens = u64::from(blocks) * u64::from(self.block_tokens);
        LruPoint { blocks: blocks.into(), tokens, hit_rate: self.hit_rate(half, cache) }
    }

    /// Tokens of each row that the cache serves.
    fn served_by(&self, cache: usize) -> impl Iterator<Item = u32> {
        self.served.iter().skip(cache).step_by(self.hits.len()).copied()
    }

    /// Over the rows from `first` on.
    fn hit_rate(&self, first: usize, cache: usize) -> f64 {
        let hits: u64 = self.served_by(cache).skip(first).map(u64::from).sum();
        hits as f64 / self.inputs[first..].iter().map(|input| u64::from(*input)).sum::<u64>() as f64
    }

    fn match_ratio(&self) -> Vec<Bin> {
        let mut counts = [0u64; BOUNDS.len() - 1];
        for (input, served) in self.inputs.iter().zip(self.served_by(self.sizes.len())) {
            let ratio = f64::from(served) / f64::from(*input);
            let above = BOUNDS[1..counts.len()].partition_point(|bound| *bound <= ratio);
            counts[above] += 1;
        }
        let bins = BOUNDS.windows(2).zip(counts);
        let share = |count: u64| count as f64 / self.inputs.len() as f64;
        bins.map(|(b, count)| Bin { from: b[0], to: b[1], share: share(count) }).collect()
    }
}

/// Blocks of a cache of so many tokens.
fn blocks_of(tokens: u64, block_tokens: u32) -> u32 {
    u32::try_from(tokens / u64::from(block_tokens)).unwrap_or(u32::MAX).max(1)
}

/// Names of prefixes are mixed already.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| mix(hash ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
