//! The radix tree: nodes in an arena, walks, splits, locks and eviction.
//!
//! Every edge is a whole number of pages; keys come in already cut to whole pages.

mod arena;
mod check;

use super::children::{ChildIndex, PageHash};
use super::eviction::{Eviction, Queue, Standing, Usage};
pub(super) use arena::NodeId;
use arena::{Arena, Node};
use protocol::tokenizer::Token;

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
}

/// Where a key's path through the tree ends, and how much of the key is on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) node: NodeId,
    pub(super) len: usize,
}

/// Where an inserted key ends, and how much of it had been there before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inserted {
    pub(super) node: NodeId,
    pub(super) present: usize,
}

// === impl Tree: walks ===

impl Tree {
    pub(super) fn new(page: usize, eviction: Eviction) -> Self {
        Self {
            page,
            eviction,
            nodes: Arena::new(),
            children: ChildIndex::default(),
            queue: Queue::default(),
            clock: 0,
            evictable: 0,
            protected: 0,
        }
    }

    /// The longest cached prefix of `key`.
    pub(super) fn find(&mut self, namespace: u64, key: &[Token]) -> Found {
        self.walk(namespace, key, |_, _| ())
    }

    /// Adds `key`. Nodes on its path that end beyond `inserted_len` count one hit more, and all of them take
    /// `priority` if it is higher than theirs. A new leaf is in no queue until it has been locked and unlocked.
    pub(super) fn insert(
        &mut self,
        namespace: u64,
        key: &[Token],
        priority: i64,
        inserted_len: usize,
    ) -> Inserted {
        let found = self.walk(namespace, key, |usage, end| {
            usage.priority = usage.priority.max(priority);
            usage.hits += u32::from(end > inserted_len);
        });
        let rest = &key[found.len..];
        if rest.is_empty() {
            return Inserted { node: found.node, present: found.len };
        }
        let usage = Usage { last_access: self.tick(), hits: 1, priority };
        let leaf = self.nodes.add(Node::new(rest.into(), namespace, found.node, usage));
        self.adopt(leaf);
        self.evictable += rest.len() as u64;
        Inserted { node: leaf, present: found.len }
    }

    /// Follows `key` down as far as it is cached, splitting the last edge if only a part of it matches, and shows
    /// `visit` each node that matched and where it ends.
    fn walk(&mut self, namespace: u64, key: &[Token], mut visit: impl FnMut(&mut Usage, usize)) -> Found {
        let now = self.tick();
        let mut found = Found { node: NodeId::ROOT, len: 0 };
        while let Some(child) = self.child(found.node, namespace, &key[found.len..]) {
            // Before comparing: also the part that will turn out not to match becomes recent.
            self.nodes[child].usage.last_access = now;
            let edge = &self.nodes[child].edge;
            let common = common_prefix(edge, &key[found.len..]);
            let common = common - common % self.page;
            let whole = common == edge.len();
            found.node = if whole { child } else { self.split(child, common) };
            found.len += common;
            visit(&mut self.nodes[found.node].usage, found.len);
        }
        found
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
        node.edge = tail;
        let upper = self.nodes.add(upper);
        self.nodes[lower].parent = upper;
        self.children.insert(old_hash, upper);
        self.children.insert(self.hash_of(lower), lower);
        upper
    }

    /// Makes a new node known to its parent.
    fn adopt(&mut self, id: NodeId) {
        self.children.insert(self.hash_of(id), id);
        let parent = self.nodes[id].parent;
        self.nodes[parent].children += 1;
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

// === impl Tree: locks and eviction ===

impl Tree {
    /// Protects `node` and all above it.
    pub(super) fn lock(&mut self, node: NodeId) {
        let mut at = node;
        while at != NodeId::ROOT {
            let node = &mut self.nodes[at];
            if node.locks == 0 {
                self.evictable -= node.edge.len() as u64;
                self.protected += node.edge.len() as u64;
            }
            node.locks += 1;
            at = node.parent;
        }
    }

    /// Takes back one [`lock`](Self::lock).
    pub(super) fn unlock(&mut self, node: NodeId) {
        let mut at = node;
        while at != NodeId::ROOT {
            let node = &mut self.nodes[at];
            node.locks -= 1;
            let parent = node.parent;
            if node.locks == 0 {
                self.evictable += node.edge.len() as u64;
                self.protected -= node.edge.len() as u64;
                self.enqueue_if_free(at);
            }
            at = parent;
        }
    }

    /// Drops leaves in the order of the policy until at least `tokens` are gone or none is left. Returns how many
    /// tokens went.
    pub(super) fn evict(&mut self, tokens: u64) -> u64 {
        let mut evicted = 0;
        while evicted < tokens
            && let Some(leaf) = self.next_victim()
        {
            evicted += self.remove_leaf(leaf);
        }
        self.evictable -= evicted;
        evicted
    }

    /// Forgets everything but the time.
    pub(super) fn clear(&mut self) {
        self.nodes = Arena::new();
        self.children.clear();
        self.queue.clear();
        self.evictable = 0;
        self.protected = 0;
    }

    fn next_victim(&mut self) -> Option<NodeId> {
        let (nodes, eviction) = (&mut self.nodes, self.eviction);
        let victim = self.queue.pop(|id| {
            let node = &mut nodes[id];
            if node.is_free_leaf() {
                return Standing::Candidate(eviction.rank(node.usage));
            }
            node.queued = false;
            Standing::Withdrawn
        })?;
        self.nodes[victim].queued = false;
        Some(victim)
    }

    fn remove_leaf(&mut self, leaf: NodeId) -> u64 {
        self.children.remove(self.hash_of(leaf), leaf);
        let node = self.nodes.remove(leaf);
        self.nodes[node.parent].children -= 1;
        if node.parent != NodeId::ROOT {
            self.enqueue_if_free(node.parent);
        }
        node.edge.len() as u64
    }

    fn enqueue_if_free(&mut self, id: NodeId) {
        let node = &mut self.nodes[id];
        if node.is_free_leaf() && !node.queued {
            node.queued = true;
            self.queue.push(self.eviction.rank(node.usage), id);
        }
    }
}

// === impl Tree: what can be seen ===

impl Tree {
    pub(super) fn evictable(&self) -> u64 {
        self.evictable
    }

    pub(super) fn protected(&self) -> u64 {
        self.protected
    }

    pub(super) fn node_count(&self) -> usize {
        self.children.len()
    }
}

/// How many tokens `a` and `b` begin with in common. Compares by blocks, at the speed of `memcmp`.
fn common_prefix(a: &[Token], b: &[Token]) -> usize {
    const BLOCK: usize = 64;
    let equal = a.chunks_exact(BLOCK).zip(b.chunks_exact(BLOCK)).take_while(|(a, b)| a == b).count() * BLOCK;
    equal + a[equal..].iter().zip(&b[equal..]).take_while(|(a, b)| a == b).count()
}
