//! The prefix cache of one engine: SGLang's radix tree and the pool of KV slots behind it.
//!
//! Tree and pool are one type because every operation moves tokens between them. A slot is in one of four
//! states, and [`KvCache::check`] proves that they add up to the capacity:
//!
//! | state | who owns it | leaves it by |
//! |---|---|---|
//! | free | nobody | [`KvCache::extend`] |
//! | private | one request ([`Hold`]) | [`KvCache::checkpoint`], [`KvCache::drop_private`] |
//! | protected | the tree, below a node that a request has locked | the last unlock |
//! | evictable | the tree, nobody needs it now | a lock, or eviction |
//!
//! With a [second tier](HostTier), what the device gives up may stay in the tree, on the host. It has no slot then and
//! is in none of these states.
//!
//! Sequences are spelled token by token, or by the names of their pages ([`Spelling`]). The tree counts symbols, everybody else
//! tokens.
//!
//! Only counts are kept: an emulator needs to know *how many* tokens are cached, not in which slot.
//! The semantics, quirks included, are those of SGLang 0.5.23 and are pinned by vectors recorded from it
//! (`tests/radix_golden.rs`). Recency is an internal counter, so equal calls give equal states.
//!
//! | file | idea |
//! |---|---|
//! | here | what a request does with the cache, in the order of its life |
//! | [`hold`] | what a request has of it |
//! | [`demand`] | how many slots something takes |
//! | [`seen`] | counts, contents and invariants |
//! | [`pool`] | the slots |
//! | [`tree`], [`children`] | the radix tree |
//! | [`eviction`], [`host_tier`] | what goes first; what a second tier is made of |

mod children;
mod demand;
mod eviction;
mod hold;
mod host_tier;
mod pool;
mod seen;
mod spelling;
mod tree;

#[cfg(test)]
mod tests;

pub use eviction::Eviction;
pub use hold::Hold;
pub use host_tier::{HostTier, WritePolicy};
pub use pool::Full;
pub use seen::Cached;
pub(crate) use spelling::NAME_SYMBOLS;
pub use spelling::{Sequence, Spelling};
pub use tree::HostTotals;

use crate::namespace::BlockNaming;
use pool::Pool;
use protocol::kv_events::KvEvent;
use tree::{Key, Tree};

/// What a [`KvCache`] is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheConfig {
    /// Tokens per page, at least 1. Only whole pages are shared between requests.
    pub page_size: u32,
    /// Tokens of KV that the pool holds; rounded down to whole pages.
    pub capacity_tokens: u64,
    /// Which cached tokens go first when the pool runs short.
    pub eviction: Eviction,
    /// `disable_radix_cache`: nothing is ever matched or kept; the pool alone is left.
    pub disabled: bool,
}

/// The shortest page that a name can stand for. Two generated pages of different content are the same tokens with a probability
/// of 2^-18 per token, so here never.
pub const LEAST_NAMED_PAGE: u32 = 8;

/// Whether pages of so many tokens can be named.
#[must_use]
pub fn can_name_pages(page_size: u32) -> bool {
    page_size >= LEAST_NAMED_PAGE && page_size.is_multiple_of(NAME_SYMBOLS as u32)
}

/// Where a match ends.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    node: tree::NodeId,
    /// Tokens that match.
    pub len: usize,
}

/// Radix tree and KV pool of one engine. See the [module](self) for the states of a token.
///
/// `namespace` is a hash that keeps requests apart which must not share (LoRA, cache salt); 0 is the common one.
#[derive(Debug)]
pub struct KvCache {
    tree: Tree,
    pool: Pool,
    spelling: Spelling,
    disabled: bool,
    load_back_threshold: u64,
    /// Holds that are out, so that an engine with requests in it is never flushed.
    holds: u32,
    evicted_total: u64,
}

impl KvCache {
    /// An empty cache.
    ///
    /// # Panics
    /// When `page_size` is 0.
    #[must_use]
    pub fn new(config: CacheConfig) -> Self {
        assert!(config.page_size > 0, "a page holds at least one token");
        Self {
            tree: Tree::new(config.page_size as usize, config.eviction),
            pool: Pool::new(config.page_size, config.capacity_tokens),
            spelling: Spelling::Tokens,
            disabled: config.disabled,
            load_back_threshold: 0,
            holds: 0,
            evicted_total: 0,
        }
    }

    /// The same cache, which is asked for sequences by the names of their pages. These must have an even number of at least
    /// [`LEAST_NAMED_PAGE`] tokens. It records nothing and has no second tier.
    #[must_use]
    pub fn of_page_names(mut self) -> Self {
        let page = self.pool.page_size();
        debug_assert!(can_name_pages(page) && self.tree.is_plain(), "tokens are needed here");
        self.spelling = Spelling::PageNames { page };
        self.tree = Tree::new(NAME_SYMBOLS, self.tree.eviction());
        self
    }

    /// The same cache, recording what becomes of its blocks. It begins with a note that everything is gone.
    #[must_use]
    pub fn recording(mut self, naming: BlockNaming) -> Self {
        self.tree.record(naming);
        self
    }

    /// The same cache with a second tier.
    #[must_use]
    pub fn with_host(mut self, tier: HostTier) -> Self {
        self.load_back_threshold = tier.load_back_threshold;
        self.tree.add_host(tier);
        self
    }

    /// What has become of blocks since the last call, if it is recorded.
    pub fn take_events(&mut self) -> Vec<KvEvent> {
        self.tree.take_events()
    }

    /// How many tokens a request for `tokens` would find: at most all but the last one, whose logits must be
    /// computed, rounded down to pages. Looking refreshes recency and may split a node, as in the original.
    pub fn probe<'a>(&mut self, tokens: impl Into<Sequence<'a>>, namespace: u64) -> usize {
        self.find(tokens.into(), namespace).len
    }

    /// Looks like [`probe`](Self::probe), and tells where in the tree the match ends.
    pub fn locate<'a>(&mut self, tokens: impl Into<Sequence<'a>>, namespace: u64) -> Place {
        let found = self.find(tokens.into(), namespace);
        Place { node: found.device_node, len: found.len }
    }

    /// The indices of `places` in the order of a walk down the tree that takes branches with the most places first. No
    /// tokens may have been evicted since the places were found.
    #[must_use]
    pub fn dfs_order(&self, places: &[Place]) -> Vec<usize> {
        let ends: Vec<_> = places.iter().map(|place| place.node).collect();
        self.tree.dfs_order(&ends)
    }

    /// Matches like [`probe`](Self::probe) and locks what was found, so that it cannot be evicted.
    pub fn acquire<'a>(&mut self, tokens: impl Into<Sequence<'a>>, namespace: u64) -> Hold {
        let found = self.find(tokens.into(), namespace);
        self.tree.lock(found.device_node);
        self.holds += 1;
        Hold::new(&found)
    }

    /// Copies what was found on the host to the device, evicting for it. All or nothing: nothing when it is too little
    /// to be worth it, or does not fit. Returns how many tokens that were.
    pub fn load_back(&mut self, hold: &mut Hold) -> u64 {
        let tokens = hold.host_len() as u64;
        if tokens == 0 || tokens < self.load_back_threshold {
            return 0;
        }
        self.tree.lock(hold.host_node);
        self.evict_to_free(tokens);
        if self.pool.take_for_tree(tokens).is_err() {
            self.tree.unlock(hold.host_node);
            return 0;
        }
        self.tree.load_back(hold.host_node);
        self.tree.unlock(hold.node);
        hold.loaded();
        tokens
    }

    /// Gives back the hold of a request that was not admitted after all. What its match touched stays touched.
    pub fn refuse(&mut self, hold: Hold) {
        debug_assert_eq!(hold.kv_len(), hold.matched_len(), "a request that took slots was admitted");
        self.drop_private(hold);
    }

    /// Takes slots for `n` more tokens. Slots are handed out by whole pages, so this costs
    /// [`extend_cost`](Self::extend_cost) tokens of the pool.
    ///
    /// # Errors
    /// [`Full`] when the pool has not enough free slots; nothing has changed then. Evicting is the caller's
    /// decision ([`evict_to_free`](Self::evict_to_free)).
    pub fn extend(&mut self, hold: &mut Hold, n: usize) -> Result<(), Full> {
        self.pool.take(self.extend_cost(hold, n))?;
        hold.kv_len += n;
        Ok(())
    }

    /// Shares what the request has computed: `tokens[..up_to]`, rounded down to pages, goes into the tree, slots
    /// of tokens that were there already are freed, and the lock moves to the end of the path.
    ///
    /// When that reaches beyond the prompt, the prompt is inserted once more with `priority + 1`: this cuts the
    /// leaf at the end of the prompt, so that the reply can be evicted alone and before it.
    pub fn checkpoint<'a>(
        &mut self,
        hold: &mut Hold,
        tokens: impl Into<Sequence<'a>>,
        up_to: usize,
        prompt_len: usize,
        namespace: u64,
        priority: i64,
    ) {
        debug_assert!(up_to <= hold.kv_len, "only computed tokens can be shared");
        let end = self.floor_to_page(up_to);
        if self.disabled || end == 0 {
            return;
        }
        debug_assert!(end >= hold.protected_len, "a checkpoint never shrinks");
        let (tokens, grain) = (tokens.into(), self.spelling.grain());
        let names = hold.names.clone();
        let spelling = self.spelling;
        let key = |end: usize| Key { namespace, names: names.as_ref(), symbols: tokens.cut(end, spelling) };
        let inserted = self.tree.insert(key(end), priority, hold.inserted_len / grain);
        let adopted = inserted.adopted * grain as u64;
        let prompt_end = self.floor_to_page(prompt_len);
        if prompt_end < end {
            self.tree.insert(key(prompt_end), priority.saturating_add(1), end / grain);
        }
        self.pool.give_to_tree(adopted);
        self.pool.give_back((end - hold.protected_len) as u64 - adopted);
        // The original finds the end by matching again. That only makes the path more recent than itself, which no
        // order of leaves can show, so the walk is left out.
        self.tree.lock(inserted.node);
        self.tree.unlock(hold.node);
        hold.node = inserted.node;
        hold.protected_len = end;
        hold.inserted_len = end;
    }

    /// Ends a request: all its KV is shared as by [`checkpoint`](Self::checkpoint) and unlocked.
    ///
    /// `tokens` are the prompt and the outputs that have KV (all but the last), `kv_len` of the hold in number;
    /// more are ignored.
    pub fn finish<'a>(
        &mut self,
        mut hold: Hold,
        tokens: impl Into<Sequence<'a>>,
        prompt_len: usize,
        namespace: u64,
        priority: i64,
    ) {
        let up_to = hold.kv_len;
        self.checkpoint(&mut hold, tokens, up_to, prompt_len, namespace, priority);
        self.drop_private(hold);
    }

    /// Ends a hold without sharing anything: private KV is freed, the rest unlocked (retraction, failure).
    pub fn drop_private(&mut self, hold: Hold) {
        self.pool.give_back(self.private_of(&hold));
        self.tree.unlock(hold.node);
        self.holds -= 1;
    }

    /// Evicts until `tokens` are free, if they are not already and as far as that is possible. Whole leaves go,
    /// so more may be freed than asked. Returns how many tokens went.
    pub fn evict_to_free(&mut self, tokens: u64) -> u64 {
        let short = tokens.saturating_sub(self.pool.free());
        if short == 0 {
            return 0;
        }
        let grain = self.spelling.grain() as u64;
        let evicted = self.tree.evict(short.div_ceil(grain)) * grain;
        self.pool.take_from_tree(evicted);
        self.evicted_total += evicted;
        evicted
    }

    /// Empties the cache, if no request holds a part of it. False, and nothing done, otherwise.
    pub fn flush(&mut self) -> bool {
        if self.holds > 0 {
            return false;
        }
        let evictable = self.evictable();
        self.tree.clear();
        self.pool.take_from_tree(evictable);
        true
    }

    fn find(&mut self, tokens: Sequence<'_>, namespace: u64) -> tree::Found {
        let limit = if self.disabled { 0 } else { self.floor_to_page(tokens.len.saturating_sub(1)) };
        let found = self.tree.find(namespace, tokens.cut(limit, self.spelling));
        let grain = self.spelling.grain();
        tree::Found { len: found.len * grain, device_len: found.device_len * grain, ..found }
    }
}
