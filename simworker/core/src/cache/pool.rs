//! The pool of KV slots, as counts.

use thiserror::Error;

/// The pool has fewer free slots than were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("KV pool is full: {needed} tokens needed, {free} free")]
pub struct Full {
    /// Tokens asked for, whole pages.
    pub needed: u64,
    /// Tokens free at that time.
    pub free: u64,
}

/// Counts of free and private tokens; the tree counts the rest. All are multiples of the page.
#[derive(Debug)]
pub(super) struct Pool {
    page_size: u32,
    capacity: u64,
    free: u64,
    private: u64,
}

impl Pool {
    pub(super) fn new(page_size: u32, capacity_tokens: u64) -> Self {
        let capacity = capacity_tokens - capacity_tokens % u64::from(page_size);
        Self { page_size, capacity, free: capacity, private: 0 }
    }

    pub(super) fn page_size(&self) -> u32 {
        self.page_size
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) fn free(&self) -> u64 {
        self.free
    }

    pub(super) fn private(&self) -> u64 {
        self.private
    }

    /// Free → private.
    pub(super) fn take(&mut self, tokens: u64) -> Result<(), Full> {
        if tokens > self.free {
            return Err(Full { needed: tokens, free: self.free });
        }
        self.free -= tokens;
        self.private += tokens;
        Ok(())
    }

    /// Private → free.
    pub(super) fn give_back(&mut self, tokens: u64) {
        self.private -= tokens;
        self.free += tokens;
    }

    /// Private → tree.
    pub(super) fn give_to_tree(&mut self, tokens: u64) {
        self.private -= tokens;
    }

    /// Free → tree.
    pub(super) fn take_for_tree(&mut self, tokens: u64) -> Result<(), Full> {
        if tokens > self.free {
            return Err(Full { needed: tokens, free: self.free });
        }
        self.free -= tokens;
        Ok(())
    }

    /// Tree → free.
    pub(super) fn take_from_tree(&mut self, tokens: u64) {
        self.free += tokens;
    }

    /// Proves that every slot is in exactly one state, given how many the tree has.
    pub(super) fn check(&self, in_tree: u64) -> Result<(), String> {
        let Self { page_size, capacity, free, private } = *self;
        if free + private + in_tree != capacity {
            return Err(format!("{free} free + {private} private + {in_tree} in the tree ≠ {capacity}"));
        }
        if [free, private].iter().any(|count| count % u64::from(page_size) != 0) {
            return Err(format!("{free} free, {private} private: not whole pages of {page_size}"));
        }
        Ok(())
    }
}
