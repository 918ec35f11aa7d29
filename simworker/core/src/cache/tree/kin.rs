//! The children of a node as a list that runs through them, so that a branch can be walked at the price of its nodes.

use super::NodeId;
use super::arena::Arena;

/// Where the list goes on. The root is nobody's child, so its id stands for the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kin {
    first_child: NodeId,
    next: NodeId,
    before: NodeId,
}

impl Default for Kin {
    fn default() -> Self {
        Self { first_child: NodeId::ROOT, next: NodeId::ROOT, before: NodeId::ROOT }
    }
}

impl Arena {
    /// Puts a node before the other children of its parent.
    pub(super) fn link(&mut self, id: NodeId) {
        let parent = self[id].parent;
        let next = std::mem::replace(&mut self[parent].kin.first_child, id);
        let kin = &mut self[id].kin;
        (kin.before, kin.next) = (NodeId::ROOT, next);
        if next != NodeId::ROOT {
            self[next].kin.before = id;
        }
    }

    /// Takes a node out from among the children of its parent.
    pub(super) fn unlink(&mut self, id: NodeId) {
        let Kin { before, next, .. } = self[id].kin;
        if before == NodeId::ROOT {
            let parent = self[id].parent;
            self[parent].kin.first_child = next;
        } else {
            self[before].kin.next = next;
        }
        if next != NodeId::ROOT {
            self[next].kin.before = before;
        }
    }

    /// Makes `lower` the only child of `upper`, a new node whose parent is that of `lower`.
    pub(super) fn put_between(&mut self, upper: NodeId, lower: NodeId) {
        self.unlink(lower);
        self.link(upper);
        self[lower].parent = upper;
        self.link(lower);
    }

    /// The children of a node, the newest link first.
    pub(super) fn children_of(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let end = |id: NodeId| (id != NodeId::ROOT).then_some(id);
        std::iter::successors(end(self[id].kin.first_child), move |child| end(self[*child].kin.next))
    }
}
