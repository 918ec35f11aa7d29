//! What one request has of the cache.

use super::tree::NodeId;

/// One request's hold on the cache: the node it has locked, how much of its KV the tree owns, how much it has.
///
/// Made by [`KvCache::acquire`](super::KvCache::acquire) and given back by exactly one of `refuse`, `finish` and
/// `drop_private`, which is why it cannot be copied.
#[derive(Debug)]
#[must_use = "a hold keeps KV from being evicted until it is given back"]
pub struct Hold {
    pub(super) node: NodeId,
    matched_len: usize,
    pub(super) protected_len: usize,
    pub(super) kv_len: usize,
    /// How much this request itself has put into the tree, so that it counts as one hit on a node, not more.
    pub(super) inserted_len: usize,
}

impl Hold {
    pub(super) fn new(node: NodeId, matched_len: usize) -> Self {
        Self { node, matched_len, protected_len: matched_len, kv_len: matched_len, inserted_len: 0 }
    }

    /// Tokens that were found in the cache when the hold was made.
    #[must_use]
    pub fn matched_len(&self) -> usize {
        self.matched_len
    }

    /// Tokens, from the first, whose KV the tree owns and this hold protects.
    #[must_use]
    pub fn protected_len(&self) -> usize {
        self.protected_len
    }

    /// Tokens, from the first, that have KV, in the tree or privately.
    #[must_use]
    pub fn kv_len(&self) -> usize {
        self.kv_len
    }
}
