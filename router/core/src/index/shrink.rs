//! Bounds that change while the index is in use: what is too much goes little by little.

use super::credit::evict_leaf;
use super::holdings::Tenant;
use super::{IndexLimits, PrefixIndex};

impl PrefixIndex {
    /// Other bounds, in constant time. What the index holds stays as far as they allow. What is too much is evicted as
    /// always, the oldest first: by [`Self::sweep`], until it says that there is no more to do, and by credits, each of
    /// which evicts as much as it may and notes only what finds room.
    ///
    /// Places in the arena count as used memory until all are free. If they alone are more than the new `max_tree_bytes`
    /// (some 100 bytes for each node that there ever was at a time), everything is forgotten.
    pub fn set_limits(&mut self, limits: IndexLimits) {
        let before = std::mem::replace(&mut self.limits, limits);
        if limits.max_tree_size < before.max_tree_size || limits.max_tree_bytes < before.max_tree_bytes {
            self.shrinking = Some(Tenant::FIRST);
        }
    }

    /// Evicts one leaf, or a part of it, that is too much under lowered bounds; false if nothing is.
    pub(super) fn shrink_one_leaf(&mut self) -> bool {
        let Some(from) = self.shrinking else { return false };
        if self.bytes() as u64 > self.limits.max_tree_bytes
            && let Some((tenant, holding)) = self.holdings.eldest()
        {
            self.evicted_chars += evict_leaf(&mut self.forests, u64::MAX, tenant, holding);
            self.holdings.settle(tenant);
            return true;
        }
        let max_chars = self.limits.max_tree_size;
        let Some((tenant, holding)) = self.holdings.first_above(from, max_chars) else {
            self.shrinking = None;
            return false;
        };
        let too_much = holding.chars - max_chars;
        self.evicted_chars += evict_leaf(&mut self.forests, too_much, tenant, holding);
        self.holdings.settle(tenant);
        // No credit brings one above the bound that was within it.
        self.shrinking = Some(tenant);
        true
    }
}
