//! Nodes in chunks of fixed size.
//!
//! Chunks rather than one vector: growth never copies what is there, so no credit stalls for it and memory rises in
//! small steps. Places of removed nodes are chained through their `parent` and used again first.

use super::memory::heap;
use super::node::{Node, NodeId};
use super::symbol::Symbol;

const CHUNK: usize = 64;

#[derive(Debug)]
pub(super) struct Arena<S: Symbol> {
    chunks: Vec<Vec<Node<S>>>,
    first_free: NodeId,
    /// Places taken from the chunks so far, and how many of them are free again.
    taken: usize,
    free: usize,
}

impl<S: Symbol> Default for Arena<S> {
    fn default() -> Self {
        Self { chunks: Vec::new(), first_free: NodeId::NONE, taken: 0, free: 0 }
    }
}

impl<S: Symbol> Arena<S> {
    /// Nodes in use.
    pub(super) fn len(&self) -> usize {
        self.taken - self.free
    }

    pub(super) fn node(&self, id: NodeId) -> &Node<S> {
        let place = id.0 as usize;
        &self.chunks[place / CHUNK][place % CHUNK]
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> &mut Node<S> {
        let place = id.0 as usize;
        &mut self.chunks[place / CHUNK][place % CHUNK]
    }

    pub(super) fn insert(&mut self, node: Node<S>) -> NodeId {
        if self.first_free != NodeId::NONE {
            let id = self.first_free;
            let place = self.node_mut(id);
            let next = place.parent;
            *place = node;
            self.first_free = next;
            self.free -= 1;
            return id;
        }
        if self.taken == self.chunks.len() * CHUNK {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let id = NodeId(self.taken as u32);
        self.chunks[self.taken / CHUNK].push(node);
        self.taken += 1;
        id
    }

    pub(super) fn remove(&mut self, id: NodeId) -> Node<S> {
        let vacant = Node::bare(self.first_free);
        self.first_free = id;
        self.free += 1;
        std::mem::replace(self.node_mut(id), vacant)
    }

    /// Heap of the chunks; what the nodes hold besides is not counted here.
    pub(super) fn bytes(&self) -> usize {
        heap(self.chunks.capacity() * size_of::<Vec<Node<S>>>()) + self.chunks.len() * Self::chunk_bytes()
    }

    /// At most this many bytes more for `nodes` (no more than a chunk) further nodes.
    pub(super) fn growth(&self, nodes: usize) -> usize {
        if self.free + self.chunks.len() * CHUNK - self.taken >= nodes {
            return 0;
        }
        let table = self.chunks.capacity().max(4) * 2 * size_of::<Vec<Node<S>>>();
        let more_table = if self.chunks.len() == self.chunks.capacity() { heap(table) } else { 0 };
        Self::chunk_bytes() + more_table
    }

    fn chunk_bytes() -> usize {
        heap(CHUNK * size_of::<Node<S>>())
    }
}
