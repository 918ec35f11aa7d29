//! The second tier: KV of nodes in memory of the host (SGLang's HiCache).
//!
//! A node is on the device, on the host or on both. On any path from the root the device has the upper part, and what
//! the device gives up stays in the tree as long as the host has it. Copies between the tiers are done at once; how
//! long loading takes is the engine's business.

use super::arena::Arena;
use super::{NodeId, Tree};
use crate::cache::eviction::Rank;
use crate::cache::{HostTier, WritePolicy};
use protocol::kv_events::Medium;
use std::collections::{BTreeMap, BTreeSet};

/// The host's side of the tree.
#[derive(Debug)]
pub(super) struct Tier {
    config: HostTier,
    /// Tokens of KV on the host.
    used: u64,
    /// Nodes without children that only the host has, cheapest first.
    leaves: BTreeSet<(Rank, NodeId)>,
    /// Under [`WritePolicy::Back`]: nodes that were on both tiers when they were put here, oldest first.
    copies: BTreeMap<u64, NodeId>,
    turns: u64,
    totals: HostTotals,
}

/// What the host tier has done since the start, in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostTotals {
    /// Copied to the host.
    pub backed_up: u64,
    /// Copied back to the device.
    pub loaded_back: u64,
    /// Given up by the host, the only copies and others.
    pub evicted: u64,
    /// Lost by the device without a copy, as the host had no room for it.
    pub dropped: u64,
}

// === impl Tree: from the device to the host ===

impl Tree {
    /// Gives the tree a second tier. It must be empty.
    pub(in crate::cache) fn add_host(&mut self, config: HostTier) {
        let capacity_tokens = config.capacity_tokens - config.capacity_tokens % self.page as u64;
        let config = HostTier { capacity_tokens, ..config };
        self.tier = Some(Tier {
            config,
            used: 0,
            leaves: BTreeSet::new(),
            copies: BTreeMap::new(),
            turns: 0,
            totals: HostTotals::default(),
        });
    }

    /// Whether insertions count as hits: under [`WritePolicy::Back`] SGLang counts none, which evens out the policies
    /// that look at hits.
    pub(super) fn counts_hits(&self) -> bool {
        !self.writes_back()
    }

    fn writes_back(&self) -> bool {
        self.tier.as_ref().is_some_and(|tier| tier.config.write == WritePolicy::Back)
    }

    /// Copies the nodes to the host that have just been hit often enough, and what they need above them.
    pub(super) fn write_through(&mut self, path: &[(NodeId, bool)]) {
        let Some(hits) = self.tier.as_ref().and_then(|tier| tier.config.write.hits()) else { return };
        for &(id, counted) in path {
            let node = &self.nodes[id];
            if counted && !node.on_host && node.usage.hits >= hits {
                self.back_up_path(id);
            }
        }
    }

    /// From the top, as the host has no node without its parent; so the first that finds no room is the last.
    fn back_up_path(&mut self, end: NodeId) {
        let (mut path, mut at) = (Vec::new(), end);
        while at != NodeId::ROOT && !self.nodes[at].on_host {
            path.push(at);
            at = self.nodes[at].parent;
        }
        while let Some(id) = path.pop()
            && self.back_up(id)
        {}
    }

    /// Copies a node to the host; false if there is no room, even after evicting.
    fn back_up(&mut self, id: NodeId) -> bool {
        let tokens = self.nodes[id].tokens();
        let Some(tier) = &self.tier else { return false };
        let short = tokens.saturating_sub(tier.config.capacity_tokens - tier.used);
        if short > 0 && self.evict_host(short) < short {
            return false;
        }
        let Some(tier) = &mut self.tier else { return false };
        tier.used += tokens;
        tier.totals.backed_up += tokens;
        self.nodes[id].on_host = true;
        self.note_copy(id);
        self.record_stored(id, Medium::CpuPinned);
        true
    }

    /// Takes a leaf from the device. Returns how many of its tokens are free.
    pub(super) fn give_up(&mut self, leaf: NodeId) -> u64 {
        // It is on its way out: what happens around it must not queue it again.
        self.nodes[leaf].queued = true;
        if self.writes_back() && !self.nodes[leaf].on_host {
            self.back_up(leaf);
        }
        if self.nodes[leaf].on_host {
            return self.demote(leaf);
        }
        if let Some(tier) = &mut self.tier {
            tier.totals.dropped += self.nodes[leaf].tokens();
        }
        self.drop_below(leaf);
        self.remove_leaf(leaf, Medium::Gpu)
    }

    fn demote(&mut self, id: NodeId) -> u64 {
        let node = &mut self.nodes[id];
        (node.on_device, node.queued) = (false, false);
        let (parent, tokens) = (node.parent, node.tokens());
        self.record_removed(id, Medium::Gpu);
        self.nodes[parent].device_children -= 1;
        if parent != NodeId::ROOT {
            self.enqueue_if_free(parent);
        }
        self.settle_host(id);
        tokens
    }

    /// Takes away what only the host has below a node that is about to go.
    fn drop_below(&mut self, id: NodeId) {
        if self.nodes[id].children == 0 {
            return;
        }
        let mut below: Vec<NodeId> = self.nodes.iter().map(|(other, _)| other).collect();
        below.retain(|other| self.depth_below(*other, id).is_some());
        below.sort_by_key(|other| std::cmp::Reverse((self.depth_below(*other, id), *other)));
        for other in below {
            let lost = self.remove_leaf(other, Medium::CpuPinned);
            if let Some(tier) = &mut self.tier {
                tier.totals.evicted += lost;
            }
        }
    }

    /// How many levels `id` is below `above`, if it is.
    fn depth_below(&self, id: NodeId, above: NodeId) -> Option<u32> {
        let (mut at, mut depth) = (id, 0);
        while at != NodeId::ROOT {
            at = self.nodes[at].parent;
            depth += 1;
            if at == above {
                return Some(depth);
            }
        }
        None
    }
}

// === impl Tree: what the host gives up ===

impl Tree {
    /// Frees `tokens` of the host if that is possible. Returns how many went.
    fn evict_host(&mut self, tokens: u64) -> u64 {
        let mut freed = self.drop_copies(tokens);
        while freed < tokens
            && let Some((_, leaf)) = self.tier.as_mut().and_then(|tier| tier.leaves.pop_first())
        {
            self.nodes[leaf].host_rank = None;
            freed += self.remove_leaf(leaf, Medium::CpuPinned);
        }
        if let Some(tier) = &mut self.tier {
            tier.totals.evicted += freed;
        }
        freed
    }

    /// Under [`WritePolicy::Back`]: first go copies of what the device has; of leaves that the device is about to
    /// give up, only if the others are not enough.
    fn drop_copies(&mut self, tokens: u64) -> u64 {
        let mut freed = 0;
        let turns: Vec<(u64, NodeId)> = self.tier.iter().flat_map(|tier| tier.copies.clone()).collect();
        for spares_leaves in [true, false] {
            for &(turn, id) in &turns {
                if freed >= tokens {
                    return freed;
                }
                let node = &self.nodes[id];
                if node.copy_turn != Some(turn) || spares_leaves && node.on_host && node.is_free_leaf() {
                    continue;
                }
                if node.on_device && node.on_host {
                    self.record_removed(id, Medium::CpuPinned);
                    freed += self.nodes[id].tokens();
                    self.forget_host(id);
                } else {
                    self.forget_copy(id);
                }
            }
        }
        freed
    }

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
            tier.copies.remove(&turn);
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
            tier.turns += 1;
            tier.copies.insert(tier.turns, id);
            node.copy_turn = Some(tier.turns);
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

// === impl Tree: from the host to the device ===

impl Tree {
    /// Takes the KV that a request has computed for nodes which only the host has. Returns how many tokens.
    pub(super) fn readopt(&mut self, path: &[(NodeId, bool)]) -> u64 {
        let mut adopted = 0;
        for &(id, _) in path {
            if !self.nodes[id].on_device {
                self.bring_back(id);
                adopted += self.nodes[id].tokens();
                self.evictable += self.nodes[id].tokens();
            }
        }
        adopted
    }

    /// Puts all that is missing on the device up to `end` there; its path must be locked.
    pub(in crate::cache) fn load_back(&mut self, end: NodeId) {
        let (mut path, mut at) = (Vec::new(), end);
        while !self.nodes[at].on_device {
            path.push(at);
            at = self.nodes[at].parent;
        }
        while let Some(id) = path.pop() {
            self.bring_back(id);
            let tokens = self.nodes[id].tokens();
            self.protected += tokens;
            if let Some(tier) = &mut self.tier {
                tier.totals.loaded_back += tokens;
            }
        }
    }

    fn bring_back(&mut self, id: NodeId) {
        let node = &mut self.nodes[id];
        node.on_device = true;
        let parent = node.parent;
        self.nodes[parent].device_children += 1;
        self.settle_host(id);
        self.note_copy(id);
        self.record_stored(id, Medium::Gpu);
    }
}

// === impl Tree: what can be seen of the host ===

impl Tree {
    /// Tokens on the host, and how many it can hold. None without a host tier.
    pub(in crate::cache) fn host_usage(&self) -> Option<(u64, u64)> {
        self.tier.as_ref().map(|tier| (tier.used, tier.config.capacity_tokens))
    }

    pub(in crate::cache) fn host_totals(&self) -> HostTotals {
        self.tier.as_ref().map(|tier| tier.totals).unwrap_or_default()
    }

    pub(super) fn check_host(&self) -> Result<(), String> {
        let mut used = 0;
        for (id, node) in self.nodes.iter() {
            let parent = &self.nodes[node.parent];
            if !node.on_device && !node.on_host {
                return Err(format!("{id:?} is on no tier"));
            }
            if node.on_device && !parent.on_device {
                return Err(format!("{id:?} is on the device, its parent is not"));
            }
            if !node.on_device && node.locks > 0 {
                return Err(format!("{id:?} is locked and not on the device"));
            }
            let is_below_copy = node.parent == NodeId::ROOT || parent.on_host;
            if node.on_host && !is_below_copy && !self.writes_back() {
                return Err(format!("{id:?} is on the host, its parent is not"));
            }
            if node.host_rank != node.is_free_host_leaf().then(|| self.eviction.rank(node.usage)) {
                return Err(format!("{id:?} waits under a rank that is not its own on the host"));
            }
            used += if node.on_host { node.tokens() } else { 0 };
        }
        let Some(tier) = &self.tier else {
            return if used == 0 { Ok(()) } else { Err("KV on a host that there is not".into()) };
        };
        if used != tier.used || used > tier.config.capacity_tokens {
            return Err(format!(
                "{used} tokens on the host of {}, {} booked",
                tier.config.capacity_tokens, tier.used
            ));
        }
        tier.check_lists(&self.nodes)
    }
}

impl Tier {
    fn check_lists(&self, nodes: &Arena) -> Result<(), String> {
        let waiting = nodes.iter().filter(|(_, node)| node.host_rank.is_some()).count();
        if waiting != self.leaves.len()
            || self.leaves.iter().any(|(rank, id)| nodes[*id].host_rank != Some(*rank))
        {
            return Err("the host's leaves are not those that its nodes say".into());
        }
        let noted = nodes.iter().filter(|(_, node)| node.copy_turn.is_some()).count();
        if noted != self.copies.len()
            || self.copies.iter().any(|(turn, id)| nodes[*id].copy_turn != Some(*turn))
        {
            return Err("the copies are not those that the nodes say".into());
        }
        Ok(())
    }
}
