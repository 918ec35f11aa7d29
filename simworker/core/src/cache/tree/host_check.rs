//! Proves the invariants of the second tier.

use super::arena::Arena;
use super::host::Tier;
use super::{NodeId, Tree};

impl Tree {
    /// The first invariant of the host's side that does not hold, in words.
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
        if noted != self.copies.iter().count()
            || self.copies.iter().any(|(turn, id)| nodes[id].copy_turn != Some(turn))
        {
            return Err("the copies are not those that the nodes say".into());
        }
        let is_spared = |id: NodeId| nodes[id].on_host && nodes[id].is_free_leaf();
        if let Some(id) = self.copies.spared().find(|id| !is_spared(*id)) {
            return Err(format!("{id:?} is set apart and no copy of a free leaf"));
        }
        Ok(())
    }
}
