//! The radix tree: nodes in an arena, walks and splits here, the rest in the files below.
//!
//! | file | idea |
//! |---|---|
//! | [`locks`] | locks and eviction |
//! | [`kin`] | the children of a node, without a search |
//! | [`host`] | the second tier, in memory of the host |
//! | [`host_room`] | what the host gives up, and in which order |
//! | [`events`] | what is told of blocks that come and go |
//! | [`check`], [`host_check`] | the invariants |
//!
//! Every edge is a whole number of pages; keys come in already cut to whole pages. Where these are spelled by names, what is
//! called tokens here are the symbols of names.

mod arena;
mod check;
mod dfs;
mod events;
mod host;
mod host_check;
mod host_room;
mod kin;
mod locks;

use super::children::{ChildIndex, PageHash};
use super::eviction::{Eviction, Queue, Usage};
use crate::cache::Cached;
use crate::namespace::CacheNames;
pub(super) use arena::NodeId;
use arena::{Arena, Node};
use events::Recorder;
pub use host::HostTotals;
use host::Tier;
use protocol::kv_events::Medium;
use protocol::tokenizer::Token;
use std::sync::Arc;

/// The tree of everything that is cached, all namespaces below one root.
#[derive(Debug)]
pub(super) struct Tree {
    page: usize,
    eviction: Eviction,
    nodes: Arena,
    children: ChildIndex,
    queue: Queue,
    /// The last time stamp given out. Time is the number of events that needed one.
    clock: u64,
    evictable: u64,
    protected: u64,
    /// The second tier, if there is one.
    tier: Option<Tier>,
    /// What has happened to blocks, if anyone wants to know.
    recorder: Option<Recorder>,
}

/// Where a key's path through the tree ends, and how much of the key is on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) node: NodeId,
    pub(super) len: usize,
    /// The same for the part that the device has; the rest is on the host.
    pub(super) device_node: NodeId,
    pub(super) device_len: usize,
}

/// Where an inserted key ends, and how many of its tokens the tree has taken the KV of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inserted {
    pub(super) node: NodeId,
    pub(super) adopted: u64,
}

/// What an inserted key is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key<'a> {
    pub(super) namespace: u64,
    pub(super) names: Option<&'a Arc<CacheNames>>,
    /// Its tokens or the names of its pages.
    pub(super) symbols: &'a [Token],
}

// === impl Tree: walks ===

impl Tree {
    pub(super) fn new(page: usize, eviction: Eviction) -> Self {
        Self {
            page,
            eviction,
            nodes: Arena::new(),
            children: ChildIndex::default(),
            queue: Queue::new(eviction),
            clock: 0,
            evictable: 0,
            protected: 0,
            tier: None,
            recorder: None,
        }
    }

    /// The longest cached prefix of `key`.
    pub(super) fn find(&mut self, namespace: u64, key: &[Token]) -> Found {
        self.walk(namespace, key, |_, _, _| ())
    }

    /// Adds `key`. Nodes on its path that end beyond `inserted_len` count one hit more, and all of them take
    /// `priority` if it is higher than theirs. A new leaf is in no queue until it has been locked and unlocked.
    pub(super) fn insert(&mut self, key: Key<'_>, priority: i64, inserted_len: usize) -> Inserted {
        let (tiered, counts) = (self.tier.is_some(), self.counts_hits());
        let mut path = Vec::new();
        let found = self.walk(key.namespace, key.symbols, |id, node, end| {
            let counted = counts && end > inserted_len;
            node.usage.priority = node.usage.priority.max(priority);
            node.usage.hits += u32::from(counted);
            if tiered {
                path.push((id, counted));
            }
        });
        let mut adopted = self.readopt(&path);
        let mut end = found.node;
        if found.len < key.symbols.len() {
            end = self.add_leaf(key, found, priority);
            adopted += self.nodes[end].tokens();
            path.push((end, counts));
        }
        if tiered {
            self.write_through(&path);
        }
        Inserted { node: end, adopted }
    }

    fn add_leaf(&mut self, key: Key<'_>, found: Found, priority: i64) -> NodeId {
        let rest = &key.symbols[found.len..];
        let now = self.tick();
        let usage = Usage { last_access: now, born: now, hits: u32::from(self.counts_hits()), priority };
        let leaf = self.nodes.add(Node::new(rest.into(), key.namespace, found.node, usage));
        self.adopt(leaf);
        self.evictable += rest.len() as u64;
        self.name_leaf(leaf, key.names);
        self.record_stored(leaf, Medium::Gpu);
        leaf
    }

    /// Follows `key` down as far as it is cached, splitting the last edge if only a part of it matches, and shows
    /// `visit` each node that matched and where it ends.
    fn walk(
        &mut self,
        namespace: u64,
        key: &[Token],
        mut visit: impl FnMut(NodeId, &mut Node, usize),
    ) -> Found {
        let now = self.tick();
        let mut found = Found { node: NodeId::ROOT, len: 0, device_node: NodeId::ROOT, device_len: 0 };
        while let Some(child) = self.child(found.node, namespace, &key[found.len..]) {
            // Before comparing: also the part that will turn out not to match becomes recent.
            self.touch(child, now);
            let edge = &self.nodes[child].edge;
            let common = common_prefix(edge, &key[found.len..]);
            let common = common - common % self.page;
            let whole = common == edge.len();
            found.node = if whole { child } else { self.split(child, common) };
            found.len += common;
            let node = &mut self.nodes[found.node];
            if node.on_device {
                (found.device_node, found.device_len) = (found.node, found.len);
            }
            visit(found.node, node, found.len);
        }
        found
    }

    fn touch(&mut self, id: NodeId, now: u64) {
        let node = &mut self.nodes[id];
        if node.queued && self.queue.wants_moves() {
            let before = self.eviction.rank(node.usage);
            node.usage.last_access = now;
            self.queue.moved(before, self.eviction.rank(node.usage), id);
            return;
        }
        node.usage.last_access = now;
        if node.host_rank.is_some() {
            self.settle_host(id);
        }
    }

    /// The child of `parent` whose edge begins with the first page of `rest`.
    fn child(&self, parent: NodeId, namespace: u64, rest: &[Token]) -> Option<NodeId> {
        let page = rest.get(..self.page)?;
        self.children.find(PageHash::of(parent, namespace, page), |id| {
            let node = &self.nodes[id];
            node.parent == parent && node.namespace == namespace && node.edge[..self.page] == *page
        })
    }

    /// Cuts the edge of `lower` after `at` tokens and puts a new node there, which is returned. It inherits all
    /// but the time. `lower` keeps its id, so that its locks, children and place in the queue stay as they are.
    fn split(&mut self, lower: NodeId, at: usize) -> NodeId {
        let old_hash = self.hash_of(lower);
        self.children.remove(old_hash, lower);
        let now = self.tick();
        let node = &mut self.nodes[lower];
        let (head, tail): (Box<[Token]>, Box<[Token]>) = (node.edge[..at].into(), node.edge[at..].into());
        let mut upper =
            Node::new(head, node.namespace, node.parent, Usage { last_access: now, ..node.usage });
        upper.locks = node.locks;
        upper.children = 1;
        upper.device_children = u32::from(node.on_device);
        (upper.on_device, upper.on_host) = (node.on_device, node.on_host);
        node.edge = tail;
        let upper = self.nodes.add(upper);
        self.nodes.put_between(upper, lower);
        self.children.insert(old_hash, upper);
        self.children.insert(self.hash_of(lower), lower);
        self.split_names(upper, lower);
        self.note_copy(upper);
        upper
    }

    /// Makes a new node known to its parent.
    fn adopt(&mut self, id: NodeId) {
        self.children.insert(self.hash_of(id), id);
        self.nodes.link(id);
        let parent = self.nodes[id].parent;
        self.nodes[parent].children += 1;
        self.nodes[parent].device_children += 1;
        self.unspare(parent);
    }

    fn hash_of(&self, id: NodeId) -> PageHash {
        let node = &self.nodes[id];
        PageHash::of(node.parent, node.namespace, &node.edge[..self.page])
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

// === impl Tree: what can be seen ===

impl Tree {
    pub(super) fn eviction(&self) -> Eviction {
        self.eviction
    }

    /// Whether it has one tier and nobody records what becomes of blocks.
    pub(super) fn is_plain(&self) -> bool {
        self.tier.is_none() && self.recorder.is_none()
    }

    pub(super) fn evictable(&self) -> u64 {
        self.evictable
    }

    pub(super) fn protected(&self) -> u64 {
        self.protected
    }

    pub(super) fn node_count(&self) -> usize {
        self.children.len()
    }

    pub(super) fn contents(&self) -> impl Iterator<Item = Cached> {
        self.nodes.iter().map(|(_, node)| {
            let (mut edges, mut at) = (vec![&node.edge[..]], node.parent);
            while at != NodeId::ROOT {
                edges.push(&self.nodes[at].edge);
                at = self.nodes[at].parent;
            }
            let path: Vec<Token> = edges.into_iter().rev().flatten().copied().collect();
            let start = path.len() - node.edge.len();
            let Node { namespace, on_device, on_host, .. } = *node;
            Cached { namespace, path, start, on_device, on_host }
        })
    }
}

/// How many tokens `a` and `b` begin with in common. Compares by blocks, at the speed of `memcmp`.
fn common_prefix(a: &[Token], b: &[Token]) -> usize {
    const BLOCK: usize = 64;
    let equal = a.chunks_exact(BLOCK).zip(b.chunks_exact(BLOCK)).take_while(|(a, b)| a == b).count() * BLOCK;
    equal + a[equal..].iter().zip(&b[equal..]).take_while(|(a, b)| a == b).count()
}
