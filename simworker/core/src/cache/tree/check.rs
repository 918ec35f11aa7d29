//! Proves the invariants of a whole tree by counting everything anew.

use super::{Node, NodeId, Tree};
use crate::cache::eviction::Rank;
use std::collections::BTreeMap;

impl Tree {
    /// The first invariant that does not hold, in words.
    pub(in crate::cache) fn check(&self) -> Result<(), String> {
        let mut below: BTreeMap<NodeId, Below> = BTreeMap::new();
        let (mut evictable, mut protected, mut count) = (0, 0, 0);
        for (id, node) in self.nodes.iter() {
            self.check_node(id, node)?;
            let parent = below.entry(node.parent).or_default();
            parent.children += 1;
            parent.device_children += u32::from(node.on_device);
            parent.locks += u64::from(node.locks);
            if node.on_device {
                *(if node.locks == 0 { &mut evictable } else { &mut protected }) += node.tokens();
            }
            count += 1;
        }
        if (evictable, protected, count) != (self.evictable, self.protected, self.node_count()) {
            return Err(format!(
                "counted {evictable} evictable, {protected} protected, {count} nodes; booked {}, {}, {}",
                self.evictable,
                self.protected,
                self.node_count()
            ));
        }
        for (id, node) in self.nodes.iter() {
            check_below(id, node, below.get(&id).copied().unwrap_or_default())?;
            let listed = self.nodes.children_of(id).filter(|child| self.nodes[*child].parent == id).count();
            if listed != node.children as usize || self.nodes.children_of(id).count() != listed {
                return Err(format!("{id:?} lists {listed} children of {}", node.children));
            }
        }
        self.check_host()?;
        self.check_queue()
    }

    fn check_node(&self, id: NodeId, node: &Node) -> Result<(), String> {
        if !node.edge.len().is_multiple_of(self.page) {
            return Err(format!("{id:?}: edge of {} tokens is not whole pages", node.edge.len()));
        }
        if self.child(node.parent, node.namespace, &node.edge) != Some(id) {
            return Err(format!("{id:?} is not found below its parent {:?}", node.parent));
        }
        if node.parent != NodeId::ROOT && self.nodes[node.parent].namespace != node.namespace {
            return Err(format!("{id:?} and its parent are in different namespaces"));
        }
        Ok(())
    }

    /// Each queued node is queued once and knows it; each node that may be evicted is queued with a rank that is
    /// not above the true one.
    fn check_queue(&self) -> Result<(), String> {
        let overrated = |&(id, rank): &(NodeId, Rank)| rank > self.eviction.rank(self.nodes[id].usage);
        let entries = self.queue.entries();
        if let Some((id, _)) = entries.iter().copied().find(overrated) {
            return Err(format!("{id:?} waits under a rank above its own"));
        }
        let mut queued: Vec<NodeId> = entries.iter().map(|(id, _)| *id).collect();
        queued.sort_unstable();
        if queued.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("a node is queued twice".into());
        }
        let marked: Vec<NodeId> =
            self.nodes.iter().filter(|(_, node)| node.queued).map(|(id, _)| id).collect();
        if marked != queued {
            return Err(format!("queue has {queued:?}, nodes say {marked:?}"));
        }
        match self.nodes.iter().find(|(_, node)| node.is_free_leaf() && !node.queued) {
            Some((id, _)) => Err(format!("{id:?} can be evicted and is not queued")),
            None => Ok(()),
        }
    }
}

/// Sums over the children of one node.
#[derive(Debug, Clone, Copy, Default)]
struct Below {
    children: u32,
    device_children: u32,
    locks: u64,
}

fn check_below(id: NodeId, node: &Node, below: Below) -> Result<(), String> {
    if (node.children, node.device_children) != (below.children, below.device_children) {
        return Err(format!(
            "{id:?} counts {} children of {}, {} of {} on the device",
            node.children, below.children, node.device_children, below.device_children
        ));
    }
    // A lock on a child is a lock on its parent, too.
    if u64::from(node.locks) < below.locks {
        return Err(format!("{id:?} has {} locks, its children {}", node.locks, below.locks));
    }
    Ok(())
}
