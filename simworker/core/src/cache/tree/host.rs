//! The second tier: KV of nodes in memory of the host (SGLang's HiCache).
//!
//! A node is on the device, on the host or on both. On any path from the root the device has the upper part, and what
//! the device gives up stays in the tree as long as the host has it. Copies between the tiers are done at once; how
//! long loading takes is the engine's business.

use super::host_room::Copies;
use super::{NodeId, Tree};
use crate::cache::eviction::Rank;
use crate::cache::{HostTier, WritePolicy};
use protocol::kv_events::Medium;
use std::collections::BTreeSet;

/// The host's side of the tree.
#[derive(Debug)]
pub(super) struct Tier {
    pub(super) config: HostTier,
    /// Tokens of KV on the host.
    pub(super) used: u64,
    /// Nodes without children that only the host has, cheapest first.
    pub(super) leaves: BTreeSet<(Rank, NodeId)>,
    /// Under [`WritePolicy::Back`]: what may go first.
    pub(super) copies: Copies,
    pub(super) totals: HostTotals,
}

/// What the host tier has done since the start, in tokens unless something else is said.
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
    /// Nodes, not tokens, that were looked at to find what the host gives up: the measure of what evicting costs.
    pub visited: u64,
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
            copies: Copies::default(),
            totals: HostTotals::default(),
        });
    }

    /// Whether insertions count as hits: under [`WritePolicy::Back`] SGLang counts none, which evens out the policies
    /// that look at hits.
    pub(super) fn counts_hits(&self) -> bool {
        !self.writes_back()
    }

    pub(super) fn writes_back(&self) -> bool {
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
        self.unspare(id);
        self.record_removed(id, Medium::Gpu);
        self.nodes[parent].device_children -= 1;
        if parent != NodeId::ROOT {
            self.enqueue_if_free(parent);
        }
        self.settle_host(id);
        tokens
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
        self.unspare(parent);
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
}
