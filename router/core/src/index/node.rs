//! A node of the tree: the run of symbols that leads to it, and who owns that run.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::edge::Stretch;
use super::holdings::Tenant;
use super::memory::{btree, heap};
use super::symbol::Symbol;

/// Place of a node in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeId(pub(super) u32);

impl NodeId {
    /// No node: the parent of a root, the end of the arena's free list.
    pub(super) const NONE: NodeId = NodeId(u32::MAX);
}

/// When a worker was last credited with a run, and whether that very credit created the ownership.
///
/// Epochs count credits over the whole index, so no two credits share one, and all rows with one epoch lie on one
/// path from a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(u64);

impl Stamp {
    pub(super) fn created(epoch: u64) -> Self {
        Self(epoch << 1 | 1)
    }

    pub(super) fn refreshed(epoch: u64) -> Self {
        Self(epoch << 1)
    }

    pub(super) fn epoch(self) -> u64 {
        self.0 >> 1
    }
}

/// A tenant's row in a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    pub(super) tenant: Tenant,
    /// Children of the node that the tenant owns as well; with none, the node is a leaf of this tenant.
    pub(super) kids: u32,
    pub(super) stamp: Stamp,
}

/// The owners of a node in order of tenant. Most nodes have one.
#[derive(Debug, Clone, Default)]
pub(super) struct Owners(SmallVec<[Owner; 1]>);

impl Owners {
    pub(super) fn as_slice(&self) -> &[Owner] {
        &self.0
    }

    fn find(&self, tenant: Tenant) -> Result<usize, usize> {
        self.0.binary_search_by_key(&tenant, |owner| owner.tenant)
    }

    pub(super) fn get(&self, tenant: Tenant) -> Option<&Owner> {
        self.find(tenant).ok().map(|at| &self.0[at])
    }

    pub(super) fn get_mut(&mut self, tenant: Tenant) -> Option<&mut Owner> {
        self.find(tenant).ok().map(|at| &mut self.0[at])
    }

    pub(super) fn insert(&mut self, owner: Owner) {
        match self.find(owner.tenant) {
            Ok(at) => self.0[at] = owner,
            Err(at) => self.0.insert(at, owner),
        }
    }

    pub(super) fn remove(&mut self, tenant: Tenant) -> Option<Owner> {
        let removed = self.find(tenant).ok().map(|at| self.0.remove(at));
        if self.0.spilled() && self.0.len() <= self.0.capacity() / 4 {
            self.0.shrink_to_fit();
        }
        removed
    }

    /// The same rows for a new node whose only child has these.
    pub(super) fn above(&self) -> Self {
        Self(self.0.iter().map(|owner| Owner { kids: 1, ..*owner }).collect())
    }

    /// Whether both have the same tenants with the same stamps.
    pub(super) fn same_as(&self, other: &Owners) -> bool {
        let key = |owner: &Owner| (owner.tenant, owner.stamp);
        self.0.len() == other.0.len() && self.0.iter().map(key).eq(other.0.iter().map(key))
    }

    fn bytes_of(capacity: usize) -> usize {
        heap(capacity * size_of::<Owner>())
    }

    fn bytes(&self) -> usize {
        if self.0.spilled() { Self::bytes_of(self.0.capacity()) } else { 0 }
    }

    /// At most this many bytes more when `tenant` joins.
    pub(super) fn growth(&self, tenant: Tenant) -> usize {
        if self.0.len() < self.0.capacity() || self.get(tenant).is_some() {
            return 0;
        }
        Self::bytes_of((self.0.len() + 1).next_power_of_two())
    }

    /// At most this many bytes for a copy that `tenant` may join.
    pub(super) fn copy_bytes(&self) -> usize {
        Self::bytes_of((self.0.len() + 1).next_power_of_two())
    }
}

/// A run of symbols below another run.
#[derive(Debug)]
pub(super) struct Node<S: Symbol> {
    /// The symbols between the parent and here; empty in a root only.
    pub(super) edge: S::Edge,
    /// Characters of the edge.
    pub(super) chars: u32,
    pub(super) parent: NodeId,
    /// Children by the first symbol of their edge.
    pub(super) children: BTreeMap<S, NodeId>,
    /// Empty in a root only. The owners of a child are among those of its parent.
    pub(super) owners: Owners,
}

impl<S: Symbol> Node<S> {
    /// A node without edge and owners below `parent`.
    pub(super) fn bare(parent: NodeId) -> Self {
        Self {
            edge: S::Edge::default(),
            chars: 0,
            parent,
            children: BTreeMap::new(),
            owners: Owners::default(),
        }
    }
}

impl<S: Symbol> Node<S> {
    /// A node with `edge` of `chars` characters and `owners`, without children.
    pub(super) fn new(parent: NodeId, edge: S::Edge, chars: u64, owners: Owners) -> Self {
        debug_assert_eq!(chars, S::chars(edge.run()), "counted before");
        // An edge is part of one prompt's indexed part, so its characters fit.
        Self { edge, chars: chars as u32, parent, children: BTreeMap::new(), owners }
    }

    /// The only child, if there is exactly one.
    pub(super) fn only_child(&self) -> Option<NodeId> {
        if self.children.len() == 1 { self.children.values().next().copied() } else { None }
    }

    /// What the node holds on the heap, besides its place in the arena.
    pub(super) fn footprint(&self) -> usize {
        self.edge.bytes() + btree(self.children.len(), size_of::<(S, NodeId)>()) + self.owners.bytes()
    }
}
