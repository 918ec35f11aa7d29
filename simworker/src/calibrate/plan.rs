//! What is asked in each round: prompts of many lengths, batches of many sizes, as far as the worker has room.

use super::facts::Facts;

/// Lengths of prompts, cut at the prefill chunk. The shortest are bound by the weights on all hardware known.
const LENGTHS: [u64; 12] = [16, 32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192];
/// Requests and prompt tokens of each batch.
const BATCHES: [(u64, u64); 13] = [
    (1, 32),
    (1, 4096),
    (2, 32),
    (4, 2048),
    (8, 32),
    (16, 512),
    (32, 32),
    (64, 32),
    (96, 32),
    (128, 32),
    (192, 32),
    (256, 32),
    (512, 32),
];
/// Tokens that each request of a batch makes in the first round.
pub(super) const MADE: u64 = 20;
/// Tokens that it makes in later ones, where there is room: steps that vary need many of them.
const MADE_LATER: u64 = 64;
/// Most of the KV that a batch may take, so that nothing is evicted or retracted.
const MOST_OF_KV: f64 = 0.5;
/// A long prompt that is cached, and what is new on top of it.
const CACHED: u64 = 16_384;
const NEW: u64 = 512;
/// With less cached, pairs of tokens are a small part of the time.
const LEAST_CACHED: u64 = 1024;

/// One round.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    lengths: Vec<u64>,
    /// Cached tokens and new ones.
    pub(super) cached: Option<(u64, u64)>,
    batches: Vec<(u64, u64)>,
    pub(super) page_size: u64,
    room: u64,
    context_len: u64,
    /// From 1.
    pub(super) round: u32,
}

impl Plan {
    /// The first round.
    pub(super) fn of(facts: &Facts) -> Self {
        let longest = Self::longest(facts);
        let context_len = u64::from(facts.context_len);
        let cached = CACHED.min(facts.kv_tokens / 4).min(context_len.saturating_sub(2 * NEW));
        let room = (facts.kv_tokens as f64 * MOST_OF_KV) as u64;
        let mut plan = Self {
            lengths: LENGTHS.into_iter().filter(|length| *length <= longest).collect(),
            cached: (cached >= LEAST_CACHED && NEW <= longest).then_some((cached, NEW)),
            batches: Vec::new(),
            page_size: facts.page_size.into(),
            room,
            context_len,
            round: 1,
        };
        let fits =
            |(batch, length): &(u64, u64)| *batch <= facts.max_running && plan.fits(*batch, *length, MADE);
        plan.batches = BATCHES.into_iter().filter(fits).collect();
        plan
    }

    /// The longest prompt that is computed in one step.
    pub(super) fn longest(facts: &Facts) -> u64 {
        facts.chunk.min(u64::from(facts.context_len) / 2).min(facts.kv_tokens / 4)
    }

    pub(super) fn lengths(&self) -> &[u64] {
        &self.lengths
    }

    pub(super) fn batches(&self) -> &[(u64, u64)] {
        &self.batches
    }

    /// How often a prompt of this length is sent. Short ones cost little, and the fixed costs hang on them.
    pub(super) fn times(&self, length: u64) -> u32 {
        match (self.round, length) {
            (1, _) => 3,
            (_, 0..=512) => 8,
            (_, 513..=2048) => 3,
            _ => 1,
        }
    }

    /// How often something new is put on the cached prompt.
    pub(super) fn cached_times(&self) -> u32 {
        if self.round == 1 { 3 } else { 12 }
    }

    /// How many tokens each request of a batch makes.
    pub(super) fn made(&self, batch: u64, length: u64) -> u64 {
        if self.round > 1 && self.fits(batch, length, MADE_LATER) { MADE_LATER } else { MADE }
    }

    fn fits(&self, batch: u64, length: u64, made: u64) -> bool {
        // Each request begins and ends with a page that is not full.
        let slots = length + made + if self.page_size > 1 { 2 * self.page_size } else { 0 };
        batch * slots <= self.room && length + made < self.context_len
    }
}
