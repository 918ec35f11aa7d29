//! Where the nodes live: one vector whose gaps are filled again.

use super::events::Print;
use super::kin::Kin;
use crate::cache::eviction::{Rank, Usage};
use protocol::tokenizer::Token;
use std::ops::{Index, IndexMut};

/// Names a node for as long as it is in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::cache) struct NodeId(pub(in crate::cache) u32);

impl NodeId {
    /// The node above everything: no edge, never evicted, in no count.
    pub(in crate::cache) const ROOT: Self = Self(0);

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// A stretch of tokens that has been cached as one.
#[derive(Debug)]
pub(super) struct Node {
    /// The tokens between the parent's end and this node's end; empty for the root and for gaps of the arena.
    pub(super) edge: Box<[Token]>,
    pub(super) namespace: u64,
    pub(super) parent: NodeId,
    /// How many children there are. The child index finds one by its first page, `kin` leads to all.
    pub(super) children: u32,
    pub(super) kin: Kin,
    /// How many of them have KV on the device.
    pub(super) device_children: u32,
    /// Holds on this node or below it.
    pub(super) locks: u32,
    /// Whether the device has its KV. Without a host tier it always has.
    pub(super) on_device: bool,
    /// Whether the host has its KV.
    pub(super) on_host: bool,
    /// Whether the eviction queue of the device has an entry for it, a stale one perhaps.
    pub(super) queued: bool,
    /// The rank under which it waits in the host's, if it does.
    pub(super) host_rank: Option<Rank>,
    /// Its turn among the nodes that were on both tiers when they got it.
    pub(super) copy_turn: Option<u64>,
    pub(super) usage: Usage,
    /// Its names in KV events, if these are recorded.
    pub(super) print: Option<Box<Print>>,
}

impl Node {
    pub(super) fn new(edge: Box<[Token]>, namespace: u64, parent: NodeId, usage: Usage) -> Self {
        Self {
            edge,
            namespace,
            parent,
            children: 0,
            kin: Kin::default(),
            device_children: 0,
            locks: 0,
            on_device: true,
            on_host: false,
            queued: false,
            host_rank: None,
            copy_turn: None,
            usage,
            print: None,
        }
    }

    /// Whether its KV on the device may be given up now.
    pub(super) fn is_free_leaf(&self) -> bool {
        self.device_children == 0 && self.locks == 0 && self.on_device
    }

    /// Whether its KV on the host, the only copy, may be given up now.
    pub(super) fn is_free_host_leaf(&self) -> bool {
        self.children == 0 && self.locks == 0 && !self.on_device && self.on_host
    }

    /// Tokens between the parent's end and its own.
    pub(super) fn tokens(&self) -> u64 {
        self.edge.len() as u64
    }

    fn vacant() -> Self {
        let usage = Usage { last_access: 0, born: 0, hits: 0, priority: 0 };
        Self::new(Box::default(), 0, NodeId::ROOT, usage)
    }
}

/// All nodes, by id.
#[derive(Debug)]
pub(super) struct Arena {
    nodes: Vec<Node>,
    gaps: Vec<NodeId>,
}

impl Arena {
    /// An arena with only a root.
    pub(super) fn new() -> Self {
        Self { nodes: vec![Node::vacant()], gaps: Vec::new() }
    }

    pub(super) fn add(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.gaps.pop() {
            self[id] = node;
            return id;
        }
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(node);
        id
    }

    pub(super) fn remove(&mut self, id: NodeId) -> Node {
        self.gaps.push(id);
        std::mem::replace(&mut self[id], Node::vacant())
    }

    /// All nodes but the root and the gaps.
    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        let named = self.nodes.iter().enumerate().map(|(i, node)| (NodeId(i as u32), node));
        named.filter(|(_, node)| !node.edge.is_empty())
    }
}

impl Index<NodeId> for Arena {
    type Output = Node;

    fn index(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }
}

impl IndexMut<NodeId> for Arena {
    fn index_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.index()]
    }
}
