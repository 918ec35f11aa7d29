//! A flat, slow model of the prefix cache: a list of nodes that each know their whole path.
//!
//! Nothing is counted along the way. Locks follow from the holds that are out, free slots from everything else,
//! the next victim from a search through all nodes.

#[path = "naive/subject.rs"]
mod subject;
#[path = "naive/tier.rs"]
mod tier;

use protocol::tokenizer::Token;
use simworker_core::cache::{Eviction, HostTier, WritePolicy};
use std::collections::BTreeMap;

pub(crate) struct Naive {
    page: usize,
    capacity: u64,
    eviction: Eviction,
    clock: u64,
    nodes: Vec<Node>,
    holds: BTreeMap<u64, State>,
    holds_made: u64,
    tier: Option<HostTier>,
    copies: u64,
}

/// A node covers `path[start..]`.
#[derive(Clone)]
struct Node {
    namespace: u64,
    path: Vec<Token>,
    start: usize,
    last_access: u64,
    born: u64,
    hits: i64,
    priority: i64,
    device: bool,
    host: bool,
    /// When it was first on both tiers, unless that has been found to be over.
    copied: Option<u64>,
}

/// What a hold has: everything on its path is locked.
struct State {
    namespace: u64,
    path: Vec<Token>,
    kv_len: usize,
    inserted_len: usize,
    /// What the tree has of it on either tier, when that was looked up.
    found: Vec<Token>,
}

/// The name of a hold and its KV length.
pub(crate) struct NaiveHold(u64, usize);

impl Naive {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn floor(&self, len: usize) -> usize {
        len / self.page * self.page
    }

    fn find(&mut self, tokens: &[Token], namespace: u64) -> usize {
        let limit = self.floor(tokens.len().saturating_sub(1));
        self.walk(&tokens[..limit], namespace, |_| ())
    }

    fn writes(&self) -> Option<WritePolicy> {
        self.tier.map(|tier| tier.write)
    }

    /// Walks down node by node and page by page; splits where a node agrees in part only.
    fn walk(&mut self, key: &[Token], namespace: u64, visit: impl Fn(&mut Node)) -> usize {
        let now = self.tick();
        let (mut len, page) = (0, self.page);
        while len < key.len() {
            let next = self.nodes.iter().position(|node| {
                node.namespace == namespace && node.start == len && node.path.starts_with(&key[..len + page])
            });
            let Some(at) = next else { break };
            self.nodes[at].last_access = now;
            while len < key.len().min(self.nodes[at].path.len())
                && self.nodes[at].path[len..len + page] == key[len..len + page]
            {
                len += page;
            }
            if len < self.nodes[at].path.len() {
                let mut upper = self.nodes[at].clone();
                upper.path.truncate(len);
                upper.last_access = self.tick();
                upper.copied = None;
                self.nodes[at].start = len;
                self.nodes.push(upper);
                self.note_copy(self.nodes.len() - 1);
                visit(self.nodes.last_mut().expect("just pushed"));
            } else {
                visit(&mut self.nodes[at]);
            }
        }
        len
    }

    fn insert(&mut self, key: &[Token], namespace: u64, priority: i64, inserted_len: usize) {
        let counts = self.writes() != Some(WritePolicy::Back);
        let present = self.walk(key, namespace, |node| {
            node.priority = node.priority.max(priority);
            node.hits += i64::from(counts && node.path.len() > inserted_len);
        });
        for at in self.path(key, namespace) {
            self.nodes[at].device = true;
            self.note_copy(at);
        }
        if present < key.len() {
            let now = self.tick();
            self.nodes.push(Node {
                namespace,
                path: key.to_vec(),
                start: present,
                last_access: now,
                born: now,
                hits: i64::from(counts),
                priority,
                device: true,
                host: false,
                copied: None,
            });
        }
        let hits = match self.writes() {
            Some(WritePolicy::Through) => 1,
            Some(WritePolicy::ThroughSelective) => 2,
            Some(WritePolicy::Back) | None => return,
        };
        let ends: Vec<usize> =
            self.path(key, namespace).iter().map(|&at| self.nodes[at].path.len()).collect();
        for end in ends {
            let reaches = |model: &Self| model.path(&key[..end], namespace);
            let last = *reaches(self).last().expect("it is in the tree");
            if end > inserted_len && self.nodes[last].hits >= hits {
                // What is above comes first; without room for it there is no point in going on.
                for part in reaches(self).iter().map(|&at| self.nodes[at].path.len()).collect::<Vec<_>>() {
                    let at = *self.path(&key[..part], namespace).last().expect("it is in the tree");
                    if !self.back_up(at) {
                        break;
                    }
                }
            }
        }
    }

    /// The nodes of a sequence, from the top.
    fn path(&self, key: &[Token], namespace: u64) -> Vec<usize> {
        let on_it = |node: &Node| node.namespace == namespace && key.starts_with(&node.path);
        let mut path: Vec<usize> = (0..self.nodes.len()).filter(|&at| on_it(&self.nodes[at])).collect();
        path.sort_by_key(|&at| self.nodes[at].start);
        path
    }

    fn device_len(&self, key: &[Token], namespace: u64) -> usize {
        let path = self.path(key, namespace).into_iter().map(|at| &self.nodes[at]);
        path.take_while(|node| node.device).map(|node| node.path.len()).last().unwrap_or(0)
    }

    fn locked(&self, node: &Node) -> bool {
        self.holds.values().any(|hold| hold.namespace == node.namespace && hold.path.starts_with(&node.path))
    }

    fn has_children(&self, node: &Node, which: impl Fn(&Node) -> bool) -> bool {
        let end = node.path.len();
        self.nodes.iter().any(|other| {
            other.namespace == node.namespace
                && other.start == end
                && other.path.starts_with(&node.path)
                && which(other)
        })
    }

    fn rank(&self, node: &Node) -> (i64, i64) {
        let (used, born) = (node.last_access as i64, node.born as i64);
        match self.eviction {
            Eviction::Lru => (0, used),
            Eviction::Lfu => (node.hits, used),
            Eviction::Slru => (i64::from(node.hits >= 2), used),
            Eviction::Priority => (node.priority, used),
            Eviction::Fifo => (0, born),
            Eviction::Mru => (0, -used),
            Eviction::Filo => (0, -born),
        }
    }

    fn is_device_leaf(&self, node: &Node) -> bool {
        node.device && !self.locked(node) && !self.has_children(node, |child| child.device)
    }

    fn victim(&self) -> Option<usize> {
        let leaves = (0..self.nodes.len()).filter(|&at| self.is_device_leaf(&self.nodes[at]));
        leaves.min_by_key(|&at| self.rank(&self.nodes[at]))
    }

    fn tokens_in(&self, locked: bool) -> u64 {
        let nodes = self.nodes.iter().filter(|node| node.device && self.locked(node) == locked);
        nodes.map(|node| (node.path.len() - node.start) as u64).sum()
    }

    fn free(&self) -> u64 {
        let private = |hold: &State| (hold.kv_len.div_ceil(self.page) * self.page - hold.path.len()) as u64;
        let used: u64 = self.holds.values().map(private).sum();
        self.capacity - used - self.tokens_in(true) - self.tokens_in(false)
    }
}
