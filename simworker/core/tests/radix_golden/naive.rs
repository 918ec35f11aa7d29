//! A flat, slow model of the prefix cache: a list of nodes that each know their whole path.
//!
//! Nothing is counted along the way. Locks follow from the holds that are out, free slots from everything else,
//! the next victim from a search through all nodes.

use crate::subject::{Counts, Insertion, Subject};
use protocol::tokenizer::Token;
use simworker_core::cache::{CacheConfig, Eviction};
use std::collections::BTreeMap;

pub(crate) struct Naive {
    page: usize,
    capacity: u64,
    eviction: Eviction,
    clock: u64,
    nodes: Vec<Node>,
    holds: BTreeMap<u64, State>,
    holds_made: u64,
}

/// A node covers `path[start..]`.
#[derive(Clone)]
struct Node {
    namespace: u64,
    path: Vec<Token>,
    start: usize,
    last_access: u64,
    hits: i64,
    priority: i64,
}

/// What a hold has: everything on its path is locked.
struct State {
    namespace: u64,
    path: Vec<Token>,
    kv_len: usize,
    inserted_len: usize,
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
                self.nodes[at].start = len;
                self.nodes.push(upper);
                visit(self.nodes.last_mut().expect("just pushed"));
            } else {
                visit(&mut self.nodes[at]);
            }
        }
        len
    }

    fn insert(&mut self, key: &[Token], namespace: u64, priority: i64, inserted_len: usize) {
        let present = self.walk(key, namespace, |node| {
            node.priority = node.priority.max(priority);
            node.hits += i64::from(node.path.len() > inserted_len);
        });
        if present < key.len() {
            let last_access = self.tick();
            let path = key.to_vec();
            self.nodes.push(Node { namespace, path, start: present, last_access, hits: 1, priority });
        }
    }

    fn locked(&self, node: &Node) -> bool {
        self.holds.values().any(|hold| hold.namespace == node.namespace && hold.path.starts_with(&node.path))
    }

    fn has_children(&self, node: &Node) -> bool {
        let end = node.path.len();
        self.nodes.iter().any(|other| {
            other.namespace == node.namespace && other.start == end && other.path.starts_with(&node.path)
        })
    }

    fn rank(&self, node: &Node) -> (i64, u64) {
        let first = match self.eviction {
            Eviction::Lru => 0,
            Eviction::Lfu => node.hits,
            Eviction::Slru => i64::from(node.hits >= 2),
            Eviction::Priority => node.priority,
        };
        (first, node.last_access)
    }

    fn victim(&self) -> Option<usize> {
        (0..self.nodes.len())
            .filter(|&at| !self.has_children(&self.nodes[at]) && !self.locked(&self.nodes[at]))
            .min_by_key(|&at| self.rank(&self.nodes[at]))
    }

    fn tokens_in(&self, locked: bool) -> u64 {
        let nodes = self.nodes.iter().filter(|node| self.locked(node) == locked);
        nodes.map(|node| (node.path.len() - node.start) as u64).sum()
    }

    fn free(&self) -> u64 {
        let private = |hold: &State| (hold.kv_len.div_ceil(self.page) * self.page - hold.path.len()) as u64;
        let used: u64 = self.holds.values().map(private).sum();
        self.capacity - used - self.tokens_in(true) - self.tokens_in(false)
    }
}

impl Subject for Naive {
    type Hold = NaiveHold;

    fn new(config: CacheConfig) -> Self {
        Self {
            page: config.page_size as usize,
            capacity: config.capacity_tokens,
            eviction: config.eviction,
            clock: 0,
            nodes: Vec::new(),
            holds: BTreeMap::new(),
            holds_made: 0,
        }
    }

    fn probe(&mut self, tokens: &[Token], namespace: u64) -> usize {
        self.find(tokens, namespace)
    }

    fn acquire(&mut self, tokens: &[Token], namespace: u64) -> NaiveHold {
        let len = self.find(tokens, namespace);
        self.holds_made += 1;
        let state = State { namespace, path: tokens[..len].to_vec(), kv_len: len, inserted_len: 0 };
        self.holds.insert(self.holds_made, state);
        NaiveHold(self.holds_made, len)
    }

    fn refuse(&mut self, hold: NaiveHold) {
        self.drop_private(hold);
    }

    fn evict_to_free(&mut self, tokens: u64) -> u64 {
        let before = self.free();
        let mut free = before;
        while free < tokens {
            let Some(at) = self.victim() else { break };
            let node = self.nodes.swap_remove(at);
            free += (node.path.len() - node.start) as u64;
        }
        free - before
    }

    fn extend(&mut self, hold: &mut NaiveHold, n: usize) -> Result<(), String> {
        let pages = (hold.1 + n).div_ceil(self.page) - hold.1.div_ceil(self.page);
        if ((pages * self.page) as u64) > self.free() {
            return Err("full".into());
        }
        hold.1 += n;
        self.holds.get_mut(&hold.0).expect("holds are given back once").kv_len = hold.1;
        Ok(())
    }

    fn checkpoint(&mut self, hold: &mut NaiveHold, tokens: &[Token], up_to: usize, of: Insertion) {
        let (end, prompt_end) = (self.floor(up_to), self.floor(of.prompt_len));
        let inserted_len = self.holds[&hold.0].inserted_len;
        self.insert(&tokens[..end], of.namespace, of.priority, inserted_len);
        if prompt_end < end {
            self.insert(&tokens[..prompt_end], of.namespace, of.priority + 1, end);
        }
        self.walk(&tokens[..end], of.namespace, |_| ());
        let state = self.holds.get_mut(&hold.0).expect("holds are given back once");
        state.path = tokens[..end].to_vec();
        state.inserted_len = end;
    }

    fn finish(&mut self, mut hold: NaiveHold, tokens: &[Token], of: Insertion) {
        let up_to = hold.1;
        self.checkpoint(&mut hold, tokens, up_to, of);
        self.drop_private(hold);
    }

    fn drop_private(&mut self, hold: NaiveHold) {
        self.holds.remove(&hold.0).expect("holds are given back once");
    }

    fn flush(&mut self) -> bool {
        let idle = self.holds.is_empty();
        if idle {
            self.nodes.clear();
        }
        idle
    }

    fn kv_len(hold: &NaiveHold) -> usize {
        hold.1
    }

    fn counts(&self) -> Counts {
        Counts {
            free: self.free(),
            evictable: self.tokens_in(false),
            protected: self.tokens_in(true),
            nodes: self.nodes.len(),
        }
    }
}
