//! How much of the prompts a cache can serve.
//!
//! A block is served when it and all before it in its prompt are cached, so a block is known by its whole prefix: the name
//! of the block before it, and its own. A request is looked up before it is stored. It is stored from its last block to its
//! first, so that a beginning is never evicted before what follows it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use protocol::tokenizer::mix;
use serde::Serialize;

use super::lru::LruStack;
use crate::trace::Row;

/// The sizes of the LRU curve, in tokens: 640, 1,920, 5,856, 11,718 and 97,657 blocks of 512.
const SIZES_TOKENS: [u64; 5] = [640 * 512, 1_920 * 512, 5_856 * 512, 11_718 * 512, 97_657 * 512];
/// One more than there are sizes: the cache that never evicts.
const CACHES: usize = SIZES_TOKENS.len() + 1;
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

#[derive(Debug)]
pub(super) struct Tally {
    block_tokens: u32,
    sizes: [u32; SIZES_TOKENS.len()],
    stack: LruStack,
    entries: HashMap<u64, u32, BuildHasherDefault<Mixed>>,
    references: u64,
    hit_blocks: u64,
    /// For each row, its length and the tokens that each cache serves: which rows are the last half shows at the end.
    rows: Vec<(u32, [u32; CACHES])>,
    /// The blocks of the row at hand: name of the prefix, and entry.
    scratch: Vec<(u64, Option<u32>)>,
}

impl Tally {
    pub(super) fn new(block_tokens: u32) -> Self {
        let blocks = |tokens: u64| u32::try_from(tokens / u64::from(block_tokens)).unwrap_or(u32::MAX).max(1);
        let sizes = SIZES_TOKENS.map(blocks);
        Self {
            block_tokens,
            sizes,
            stack: LruStack::new(sizes.to_vec()),
            entries: HashMap::default(),
            references: 0,
            hit_blocks: 0,
            rows: Vec::new(),
            scratch: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, row: &Row) {
        let served = self.look_up(&row.blocks);
        self.references += row.blocks.len() as u64;
        self.hit_blocks += u64::from(served[CACHES - 1]);
        let tokens = |blocks: u32| blocks.saturating_mul(self.block_tokens).min(row.input_tokens);
        self.rows.push((row.input_tokens, served.map(tokens)));
        self.store();
    }

    /// How many of the first `blocks` each cache serves.
    fn look_up(&mut self, blocks: &[u64]) -> [u32; CACHES] {
        self.scratch.clear();
        let (mut served, mut prefix) = ([0; CACHES], 0);
        let mut smallest = Some(0);
        for id in blocks {
            prefix = mix(prefix ^ mix(*id));
            let entry = self.entries.get(&prefix).copied();
            self.scratch.push((prefix, entry));
            // The smallest cache that still holds everything up to here.
            smallest = smallest.and_then(|smallest: usize| Some(smallest.max(self.stack.segment(entry?))));
            if let Some(smallest) = smallest {
                served[smallest..].iter_mut().for_each(|blocks| *blocks += 1);
            }
        }
        served
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

    /// What prompts share, and the LRU curve; nothing if no row had blocks.
    pub(super) fn finish(self) -> (Option<Reuse>, Vec<LruPoint>) {
        if self.references == 0 {
            return (None, Vec::new());
        }
        let last_half = &self.rows[self.rows.len() / 2..];
        let reuse = Reuse {
            block_tokens: self.block_tokens,
            references: self.references,
            distinct: self.entries.len() as u64,
            infinite_by_block: self.hit_blocks as f64 / self.references as f64,
            infinite_by_token: hit_rate(&self.rows, CACHES - 1),
            infinite_last_half: hit_rate(last_half, CACHES - 1),
            match_ratio: match_ratio(&self.rows),
        };
        let point = |(cache, blocks): (usize, &u32)| LruPoint {
            blocks: u64::from(*blocks),
            tokens: u64::from(*blocks) * u64::from(self.block_tokens),
            hit_rate: hit_rate(last_half, cache),
        };
        (Some(reuse), self.sizes.iter().enumerate().map(point).collect())
    }
}

fn hit_rate(rows: &[(u32, [u32; CACHES])], cache: usize) -> f64 {
    let hits: u64 = rows.iter().map(|(_, served)| u64::from(served[cache])).sum();
    hits as f64 / rows.iter().map(|(input, _)| u64::from(*input)).sum::<u64>() as f64
}

fn match_ratio(rows: &[(u32, [u32; CACHES])]) -> Vec<Bin> {
    let mut counts = [0u64; BOUNDS.len() - 1];
    for (input, served) in rows {
        let ratio = f64::from(served[CACHES - 1]) / f64::from(*input);
        let above = BOUNDS[1..counts.len()].partition_point(|bound| *bound <= ratio);
        counts[above] += 1;
    }
    let bins = BOUNDS.windows(2).zip(counts);
    bins.map(|(b, count)| Bin { from: b[0], to: b[1], share: count as f64 / rows.len() as f64 }).collect()
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
