//! The order of a walk down the tree that visits the busiest branches first.

use std::collections::BTreeMap;

use super::{NodeId, Tree};

/// A node with requests at it or below it.
#[derive(Debug, Default)]
struct Busy {
    /// Requests at it and below it.
    weight: u64,
    children: Vec<NodeId>,
    /// Requests that end here.
    ends: Vec<usize>,
}

impl Tree {
    /// The indices of `ends` in the order of a depth-first walk: children by how many of `ends` are below them, older
    /// ones first among equals, and what ends at a node after all below it.
    pub(in crate::cache) fn dfs_order(&self, ends: &[NodeId]) -> Vec<usize> {
        let mut busy = self.busy(ends);
        let weights: BTreeMap<NodeId, u64> = busy.iter().map(|(node, busy)| (*node, busy.weight)).collect();
        for busy in busy.values_mut() {
            busy.children.sort_by_key(|child| (u64::MAX - weights[child], self.nodes[*child].usage.born));
        }
        let mut order = Vec::with_capacity(ends.len());
        let mut stack = vec![(NodeId::ROOT, false)];
        while let Some((node, is_done)) = stack.pop() {
            let Some(busy) = busy.get(&node) else { continue };
            if is_done {
                order.extend(&busy.ends);
                continue;
            }
            stack.push((node, true));
            stack.extend(busy.children.iter().rev().map(|child| (*child, false)));
        }
        order
    }

    fn busy(&self, ends: &[NodeId]) -> BTreeMap<NodeId, Busy> {
        let mut busy: BTreeMap<NodeId, Busy> = BTreeMap::new();
        for (index, end) in ends.iter().enumerate() {
            busy.entry(*end).or_default().ends.push(index);
            let mut at = *end;
            loop {
                let entry = busy.entry(at).or_default();
                entry.weight += 1;
                if at == NodeId::ROOT {
                    break;
                }
                let is_new = entry.weight == 1;
                let parent = self.nodes[at].parent;
                if is_new {
                    busy.entry(parent).or_default().children.push(at);
                }
                at = parent;
            }
        }
        busy
    }
}
