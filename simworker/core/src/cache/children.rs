//! Finds a child by the first page of its edge.

use super::tree::NodeId;
use hashbrown::HashTable;
use protocol::tokenizer::{Token, mix};

/// One table for the children of all nodes. It stores hashes and ids; the pages themselves stay in the edges, and
/// the caller compares them, so equal hashes cannot confuse two children.
#[derive(Debug, Default)]
pub(super) struct ChildIndex {
    table: HashTable<(PageHash, NodeId)>,
}

/// Hash of a child's place: its parent, its namespace and its first page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageHash(u64);

impl PageHash {
    pub(super) fn of(parent: NodeId, namespace: u64, page: &[Token]) -> Self {
        const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
        let seed = mix(namespace ^ u64::from(parent.0).wrapping_mul(SPREAD));
        let fold = |hash: u64, &token: &Token| (hash.rotate_left(5) ^ u64::from(token)).wrapping_mul(SPREAD);
        Self(mix(page.iter().fold(seed, fold)))
    }
}

impl ChildIndex {
    /// The child with this hash for which `is_it` holds.
    pub(super) fn find(&self, hash: PageHash, mut is_it: impl FnMut(NodeId) -> bool) -> Option<NodeId> {
        self.table.find(hash.0, |&(other, node)| other == hash && is_it(node)).map(|&(_, node)| node)
    }

    /// Adds a child that is not in the table.
    pub(super) fn insert(&mut self, hash: PageHash, node: NodeId) {
        self.table.insert_unique(hash.0, (hash, node), |&(hash, _)| hash.0);
    }

    /// Takes out `node`, which was inserted with `hash`.
    pub(super) fn remove(&mut self, hash: PageHash, node: NodeId) {
        if let Ok(entry) = self.table.find_entry(hash.0, |&entry| entry == (hash, node)) {
            entry.remove();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn clear(&mut self) {
        self.table.clear();
    }
}
