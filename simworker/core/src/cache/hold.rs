//! What one request has of the cache.

use super::tree::{Found, NodeId};
use crate::namespace::CacheNames;
use std::sync::Arc;

/// One request's hold on the cache: the node it has locked, how much of its KV the tree owns, how much it has.
///
/// Made by [`KvCache::acquire`](super::KvCache::acquire) and given back by exactly one of `refuse`, `finish` and
/// `drop_private`, which is why it cannot be copied.
#[derive(Debug)]
#[must_use = "a hold keeps KV from being evicted until it is given back"]
pub struct Hold {
    pub(super) node: NodeId,
    /// Where the part ends that was found on the host and not loaded back.
    pub(super) host_node: NodeId,
    host_len: usize,
    loaded_len: usize,
    /// Those of them whose loading has not been charged for.
    loading: usize,
    matched_len: usize,
    pub(super) protected_len: usize,
    pub(super) kv_len: usize,
    /// How much this request itself has put into the tree, so that it counts as one hit on a node, not more.
    pub(super) inserted_len: usize,
    /// What its blocks are called after in events.
    pub(super) names: Option<Arc<CacheNames>>,
}

impl Hold {
    pub(super) fn new(found: &Found) -> Self {
        let Found { node, len, device_node, device_len } = *found;
        Self {
            node: device_node,
            host_node: node,
            host_len: len - device_len,
            loaded_len: 0,
            loading: 0,
            matched_len: device_len,
            protected_len: device_len,
            kv_len: device_len,
            inserted_len: 0,
            names: None,
        }
    }

    /// All that was found on the host is on the device now.
    pub(super) fn loaded(&mut self) {
        self.node = self.host_node;
        self.loaded_len = std::mem::take(&mut self.host_len);
        self.loading = self.loaded_len;
        self.matched_len += self.loaded_len;
        self.protected_len += self.loaded_len;
        self.kv_len += self.loaded_len;
    }

    /// Says what blocks are called after that this hold puts into the cache.
    pub fn set_names(&mut self, names: Option<Arc<CacheNames>>) {
        self.names = names;
    }

    /// Tokens that were found in the cache when the hold was made and that the device has, those loaded back included.
    #[must_use]
    pub fn matched_len(&self) -> usize {
        self.matched_len
    }

    /// Tokens that were found on the host, beyond those the device had, and are not loaded back.
    #[must_use]
    pub fn host_len(&self) -> usize {
        self.host_len
    }

    /// Tokens that were found on the host and loaded back.
    #[must_use]
    pub fn loaded_len(&self) -> usize {
        self.loaded_len
    }

    /// Tokens that are being loaded back, once.
    pub(crate) fn take_loading(&mut self) -> usize {
        std::mem::take(&mut self.loading)
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
