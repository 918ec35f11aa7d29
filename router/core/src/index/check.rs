//! Invariants of the whole structure, for tests.

use std::collections::BTreeMap;

use super::PrefixIndex;
use super::edge::Stretch;
use super::forest::Forest;
use super::holdings::{Leaf, Tenant};
use super::node::{Node, NodeId};
use super::symbol::{Run, Symbol};

/// What the trees say a worker holds.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    chars: u64,
    leaves: BTreeMap<u64, Leaf>,
}

impl PrefixIndex {
    /// Walks everything and compares it with what is kept up to date on the way; the error says what is wrong.
    ///
    /// # Errors
    /// The first violated invariant, in words.
    pub fn check(&self) -> Result<(), String> {
        let mut seen = BTreeMap::new();
        self.forests.text.check(&mut seen)?;
        self.forests.tokens.check(&mut seen)?;
        self.forests.generated.check(&mut seen)?;
        for (tenant, holding) in self.holdings.iter() {
            let seen = seen.remove(&tenant).unwrap_or_default();
            if (seen.chars, &seen.leaves) != (holding.chars, &holding.leaves) {
                return Err(format!("{tenant:?}: booked {holding:?}, found {seen:?}"));
            }
            // A gone tenant is nobody's.
            let may_be_above = self.shrinking.is_some() || self.holdings.get(tenant).is_none();
            if holding.chars > self.limits.max_tree_size && !may_be_above {
                return Err(format!("{tenant:?} owns {} characters", holding.chars));
            }
        }
        if let Some((tenant, seen)) = seen.pop_first() {
            return Err(format!("{tenant:?} has rows but no holding: {seen:?}"));
        }
        self.holdings.check()?;
        if self.bytes() as u64 > self.limits.max_tree_bytes && self.shrinking.is_none() {
            return Err(format!("{} bytes in use, {} allowed", self.bytes(), self.limits.max_tree_bytes));
        }
        Ok(())
    }
}

impl<S: Symbol> Forest<S> {
    fn check(&self, seen: &mut BTreeMap<Tenant, Seen>) -> Result<(), String> {
        let (mut nodes, mut held) = (0, 0);
        let mut open: Vec<NodeId> = self.roots.values().copied().collect();
        while let Some(id) = open.pop() {
            let node = self.arena.node(id);
            let is_root = node.parent == NodeId::NONE;
            if is_root != node.edge.run().is_empty() || is_root != node.owners.as_slice().is_empty() {
                return Err(format!("{id:?}: only a root is bare: {node:?}"));
            }
            if u64::from(node.chars) != S::chars(node.edge.run()) {
                return Err(format!("{id:?}: characters miscounted: {node:?}"));
            }
            self.check_children(id, node)?;
            self.check_owners(id, node, seen)?;
            nodes += 1;
            held += node.footprint();
            open.extend(node.children.values());
        }
        if (nodes, held) != (self.arena.len(), self.held_bytes) {
            return Err(format!(
                "{nodes} nodes with {held} B, booked {} with {}",
                self.arena.len(),
                self.held_bytes
            ));
        }
        Ok(())
    }

    fn check_children(&self, id: NodeId, node: &Node<S>) -> Result<(), String> {
        for (first, &child) in &node.children {
            let below = self.arena.node(child);
            if below.parent != id || below.edge.run().first() != Some(*first) {
                return Err(format!("{child:?} is not a child of {id:?} by {first:?}: {below:?}"));
            }
        }
        Ok(())
    }

    fn check_owners(
        &self,
        id: NodeId,
        node: &Node<S>,
        seen: &mut BTreeMap<Tenant, Seen>,
    ) -> Result<(), String> {
        if !node.owners.as_slice().is_sorted_by(|a, b| a.tenant < b.tenant) {
            return Err(format!("{id:?}: owners out of order: {node:?}"));
        }
        for owner in node.owners.as_slice() {
            let below =
                node.children.values().filter_map(|&child| self.arena.node(child).owners.get(owner.tenant));
            let (mut kids, mut newest) = (0, 0);
            for row in below {
                kids += 1;
                newest = newest.max(row.stamp.epoch());
            }
            if owner.kids != kids || newest > owner.stamp.epoch() {
                return Err(format!("{id:?}: {kids} owned children, newest {newest}: {owner:?}"));
            }
            let above = self.arena.node(node.parent);
            if above.parent != NodeId::NONE && above.owners.get(owner.tenant).is_none() {
                return Err(format!("{id:?}: {:?} does not own the parent", owner.tenant));
            }
            let seen = seen.entry(owner.tenant).or_default();
            seen.chars += u64::from(node.chars);
            if kids == 0 && seen.leaves.insert(owner.stamp.epoch(), S::leaf(id)).is_some() {
                return Err(format!("{id:?}: two leaves of one epoch: {owner:?}"));
            }
        }
        Ok(())
    }
}
