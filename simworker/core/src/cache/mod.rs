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
//! Only counts are kept: an emulator needs to know *how many* tokens are cached, not in which slot.
//! The semantics, quirks included, are those of SGLang 0.5.23 and are pinned by vectors recorded from it
//! (`tests/radix_golden.rs`). Recency is an internal counter, so equal calls give equal states.

mod children;
mod eviction;
mod hold;
mod host_tier;
mod pool;
mod tree;

#[cfg(test)]
mod tests;

pub use eviction::Eviction;
pub use hold::Hold;
pub use host_tier::{HostTier, WritePolicy};
pub use pool::Full;
pub use tree::HostTotals;

use crate::namespace::BlockNaming;
use pool::Pool;
use protocol::kv_events::KvEvent;
use protocol::tokenizer::Token;
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
    disabled: bool,
    load_back_threshold: u64,
    /// Holds that are out, so that an engine with requests in it is never flushed.
    holds: u32,
    evicted_total: u64,
}

/// A stretch of tokens that is cached as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cached {
    /// Whose it is.
    pub namespace: u64,
    /// The tokens from the beginning of the sequence to its end.
    pub path: Vec<Token>,
    /// Where in them it begins.
    pub start: usize,
    /// Whether the device has its KV.
    pub on_device: bool,
    /// Whether the host has its KV.
    pub on_host: bool,
}

// === impl KvCache: what a request does, in the order of its life ===

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
            disabled: config.disabled,
            load_back_threshold: 0,
            holds: 0,
            evicted_total: 0,
        }
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
    pub fn probe(&mut self, tokens: &[Token], namespace: u64) -> usize {
        self.find(tokens, namespace).len
    }

    /// Looks like [`probe`](Self::probe), and tells where in the tree the match ends.
    pub fn locate(&mut self, tokens: &[Token], namespace: u64) -> Place {
        let found = self.find(tokens, namespace);
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
    pub fn acquire(&mut self, tokens: &[Token], namespace: u64) -> Hold {
        let found = self.find(tokens, namespace);
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
    pub fn checkpoint(
        &mut self,
        hold: &mut Hold,
        tokens: &[Token],
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
        let names = hold.names.clone();
        let key = |end: usize| Key { namespace, names: names.as_ref(), tokens: &tokens[..end] };
        let inserted = self.tree.insert(key(end), priority, hold.inserted_len);
        let prompt_end = self.floor_to_page(prompt_len);
        if prompt_end < end {
            self.tree.insert(key(prompt_end), priority.saturating_add(1), end);
        }
        self.pool.give_to_tree(inserted.adopted);
        self.pool.give_back((end - hold.protected_len) as u64 - inserted.adopted);
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
    pub fn finish(
        &mut self,
        mut hold: Hold,
        tokens: &[Token],
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
        let evicted = self.tree.evict(short);
        self.pool.take_from_tree(evicted);
        self.evicted_total += evicted;
        evicted
    }

    /// Empties the cache, if no request holds a part of it. False, and nothing done, otherwise.
    pub fn flush(&mut self) -> bool {
        if self.holds > 0 {
            return false;
        }
        let evictable = self.tree.evictable();
        self.tree.clear();
        self.pool.take_from_tree(evictable);
        true
    }

    fn find(&mut self, tokens: &[Token], namespace: u64) -> tree::Found {
        let limit = if self.disabled { 0 } else { self.floor_to_page(tokens.len().saturating_sub(1)) };
        self.tree.find(namespace, &tokens[..limit])
    }
}

// === impl KvCache: arithmetic of demand, shared by every caller ===

impl KvCache {
    /// `len` rounded down to whole pages.
    #[must_use]
    pub fn floor_to_page(&self, len: usize) -> usize {
        len - len % self.pool.page_size() as usize
    }

    /// `len` rounded up to whole pages.
    #[must_use]
    pub fn ceil_to_page(&self, len: usize) -> usize {
        len.next_multiple_of(self.pool.page_size() as usize)
    }

    /// Tokens of the pool that [`extend`](Self::extend) by `n` would take: the pages that begin in that range.
    #[must_use]
    pub fn extend_cost(&self, hold: &Hold, n: usize) -> u64 {
        (self.ceil_to_page(hold.kv_len + n) - self.ceil_to_page(hold.kv_len)) as u64
    }

    /// What SGLang asks to be free before a prefill batch of `requests` computes `tokens`: with pages, one page
    /// too many per request.
    #[must_use]
    pub fn prefill_demand(&self, tokens: u64, requests: u64) -> u64 {
        if self.pool.page_size() == 1 { tokens } else { tokens + requests * u64::from(self.pool.page_size()) }
    }

    /// What SGLang asks to be free before a decode step of `requests`, whether or not new pages begin.
    #[must_use]
    pub fn decode_demand(&self, requests: u64) -> u64 {
        requests * u64::from(self.pool.page_size())
    }

    /// What the feasibility check before a decode step asks for: a page for each hold that has none begun.
    #[must_use]
    pub fn decode_check<'a>(&self, holds: impl IntoIterator<Item = &'a Hold>) -> u64 {
        holds.into_iter().map(|hold| self.extend_cost(hold, 1)).sum()
    }

    fn private_of(&self, hold: &Hold) -> u64 {
        (self.ceil_to_page(hold.kv_len) - hold.protected_len) as u64
    }
}

// === impl KvCache: what can be seen ===

impl KvCache {
    /// Tokens that the pool can hold.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.pool.capacity()
    }

    /// Tokens per page.
    #[must_use]
    pub fn page_size(&self) -> u32 {
        self.pool.page_size()
    }

    /// Tokens that nobody owns.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.pool.free()
    }

    /// Tokens that requests own alone, unused rests of their last pages included.
    #[must_use]
    pub fn private(&self) -> u64 {
        self.pool.private()
    }

    /// Tokens in the tree that no request has locked.
    #[must_use]
    pub fn evictable(&self) -> u64 {
        self.tree.evictable()
    }

    /// Tokens in the tree that a request has locked.
    #[must_use]
    pub fn protected(&self) -> u64 {
        self.tree.protected()
    }

    /// Tokens evicted since the start; a flush is not an eviction.
    #[must_use]
    pub fn evicted_total(&self) -> u64 {
        self.evicted_total
    }

    /// Tokens on the host, and how many it can hold. None without a host tier.
    #[must_use]
    pub fn host_usage(&self) -> Option<(u64, u64)> {
        self.tree.host_usage()
    }

    /// What the host tier has done since the start.
    #[must_use]
    pub fn host_totals(&self) -> HostTotals {
        self.tree.host_totals()
    }

    /// Everything that is cached, node by node, in time linear in its size: for tests.
    pub fn contents(&self) -> impl Iterator<Item = Cached> {
        self.tree.contents()
    }

    /// Nodes of the tree below its root.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.tree.node_count()
    }

    /// Whether no hold is out.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.holds == 0
    }

    /// Proves the invariants of the whole structure, in time linear in its size: for tests and debugging.
    ///
    /// # Errors
    /// The first invariant that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        self.tree.check()?;
        self.pool.check(self.tree.evictable() + self.tree.protected())?;
        if self.is_idle() && (self.protected() > 0 || self.private() > 0) {
            return Err(format!("idle, yet {} protected and {} private", self.protected(), self.private()));
        }
        Ok(())
    }
}
