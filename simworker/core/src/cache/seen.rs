//! What can be seen of a cache: counts, contents, and the proof that they add up.

use super::tree::HostTotals;
use super::{KvCache, Spelling};
use protocol::tokenizer::Token;

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

impl KvCache {
    /// What it wants sequences to be spelled in.
    #[must_use]
    pub fn spelling(&self) -> Spelling {
        self.spelling
    }

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
        self.tree.evictable() * self.spelling.grain() as u64
    }

    /// Tokens in the tree that a request has locked.
    #[must_use]
    pub fn protected(&self) -> u64 {
        self.tree.protected() * self.spelling.grain() as u64
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

    /// Everything that is cached, node by node, in the symbols of its spelling and in time linear in its size: for tests.
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
        self.pool.check(self.evictable() + self.protected())?;
        if self.is_idle() && (self.protected() > 0 || self.private() > 0) {
            return Err(format!("idle, yet {} protected and {} private", self.protected(), self.private()));
        }
        Ok(())
    }
}
