//! What the host gives up when it is short of room, and in which order.
//!
//! What one eviction costs depends on what goes, not on how much is cached: copies that may not go yet are set apart
//! when they are met, and come back when that has changed.

use super::{NodeId, Tree};
use protocol::kv_events::Medium;
use std::collections::BTreeMap;

/// Under [`WritePolicy::Back`](crate::cache::WritePolicy::Back): nodes that were on both tiers when they were put here,
/// oldest first.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Those that go at once, and those that are on one tier only by now, which nobody has noticed.
    open: BTreeMap<u64, NodeId>,
    /// Those that the device is about to give up: all of them are free leaves on both tiers.
    spared: BTreeMap<u64, NodeId>,
    turns: u64,
}

impl Copies {
    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.spared.clear();
    }

    /// All nodes with their turns.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, NodeId)> {
        self.open.iter().chain(&self.spared).map(|(turn, id)| (*turn, *id))
    }

    /// Those that are set apart.
    pub(super) fn spared(&self) -> impl Iterator<Item = NodeId> {
        self.spared.values().copied()
    }

    fn remove(&mut self, turn: u64) {
        if self.open.remove(&turn).is_none() {
            self.spared.remove(&turn);
        }
    }
}

// === impl Tree: who goes ===

impl Tree {
    /// Frees `tokens` of the host if that is possible. Returns how many went.
    pub(super) fn evict_host(&mut self, tokens: u64) -> u64 {
        let mut freed = self.drop_copies(tokens);
        while freed < tokens
            && let Some((_, leaf)) = self.tier.as_mut().and_then(|tier| tier.leaves.pop_first())
        {
            self.visited();
            self.nodes[leaf].host_rank = None;
            freed += self.remove_leaf(leaf, Medium::CpuPinned);
        }
        if let Some(tier) = &mut self.tier {
            tier.totals.evicted += freed;
        }
        freed
    }

    /// First go copies of what the device has; of leaves that the device is about to give up, only if the others are not
    /// enough.
    fn drop_copies(&mut self, tokens: u64) -> u64 {
        let mut freed = 0;
        while freed < tokens
            && let Some(id) = self.next_copy()
        {
            self.visited();
            let node = &self.nodes[id];
            if node.on_host && node.is_free_leaf() {
                self.spare(id);
            } else if node.on_host && node.on_device {
                freed += self.drop_copy(id);
            } else {
                self.forget_copy(id);
            }
        }
        while freed < tokens
            && let Some(id) = self.next_spared()
        {
            self.visited();
            freed += self.drop_copy(id);
        }
        freed
    }

    fn next_copy(&self) -> Option<NodeId> {
        self.tier.as_ref()?.copies.open.values().next().copied()
    }

    fn next_spared(&self) -> Option<NodeId> {
        self.tier.as_ref()?.copies.spared.values().next().copied()
    }

    /// Takes a node from the host that the device has. Returns its tokens.
    fn drop_copy(&mut self, id: NodeId) -> u64 {
        self.record_removed(id, Medium::CpuPinned);
        self.forget_host(id);
        self.nodes[id].tokens()
    }

    /// Takes away what only the host has below a node that is about to go, the deepest first.
    pub(super) fn drop_below(&mut self, id: NodeId) {
        let mut below: Vec<(u32, NodeId)> = vec![(0, id)];
        let mut at = 0;
        while let Some(&(depth, above)) = below.get(at) {
            below.extend(self.nodes.children_of(above).map(|child| (depth + 1, child)));
            at += 1;
        }
        below.swap_remove(0);
        below.sort_unstable_by(|a, b| b.cmp(a));
        for (_, other) in below {
            self.visited();
            let lost = self.remove_leaf(other, Medium::CpuPinned);
            if let Some(tier) = &mut self.tier {
                tier.totals.evicted += lost;
            }
        }
    }

    fn visited(&mut self) {
        if let Some(tier) = &mut self.tier {
            tier.totals.visited += 1;
        }
    }
}

// === impl Tree: the books about it ===

impl Tree {
    /// The host has a node no longer.
    pub(super) fn forget_host(&mut self, id: NodeId) {
        let node = &mut self.nodes[id];
        let Some(tier) = &mut self.tier else { return };
        if node.on_host {
            node.on_host = false;
            tier.used -= node.tokens();
        }
        if let Some(rank) = node.host_rank.take() {
            tier.leaves.remove(&(rank, id));
        }
        self.forget_copy(id);
    }

    fn forget_copy(&mut self, id: NodeId) {
        if let Some(turn) = self.nodes[id].copy_turn.take()
            && let Some(tier) = &mut self.tier
        {
            tier.copies.remove(turn);
        }
    }

    /// Notes a node that is on both tiers. It keeps its turn if it has one, though it may have been on one tier only in
    /// between.
    pub(super) fn note_copy(&mut self, id: NodeId) {
        if !self.writes_back() {
            return;
        }
        let node = &mut self.nodes[id];
        if let Some(tier) = &mut self.tier
            && node.on_device
            && node.on_host
            && node.copy_turn.is_none()
        {
            tier.copies.turns += 1;
            tier.copies.open.insert(tier.copies.turns, id);
            node.copy_turn = Some(tier.copies.turns);
        }
    }

    /// Sets a copy apart.
    fn spare(&mut self, id: NodeId) {
        if let Some(turn) = self.nodes[id].copy_turn
            && let Some(tier) = &mut self.tier
            && tier.copies.open.remove(&turn).is_some()
        {
            tier.copies.spared.insert(turn, id);
        }
    }

    /// The device is not about to give up this node any more, or has done so. To be called whenever that may be.
    pub(super) fn unspare(&mut self, id: NodeId) {
        if let Some(turn) = self.nodes[id].copy_turn
            && let Some(tier) = &mut self.tier
            && tier.copies.spared.remove(&turn).is_some()
        {
            tier.copies.open.insert(turn, id);
        }
    }

    /// Puts a node where it belongs: among the host's leaves with its present rank, or not.
    pub(super) fn settle_host(&mut self, id: NodeId) {
        let Some(tier) = &mut self.tier else { return };
        let node = &mut self.nodes[id];
        if let Some(rank) = node.host_rank.take() {
            tier.leaves.remove(&(rank, id));
        }
        if node.is_free_host_leaf() {
            let rank = self.eviction.rank(node.usage);
            node.host_rank = Some(rank);
            tier.leaves.insert((rank, id));
        }
    }

    pub(super) fn clear_host(&mut self) {
        if let Some(tier) = &mut self.tier {
            tier.used = 0;
            tier.leaves.clear();
            tier.copies.clear();
        }
    }
}
