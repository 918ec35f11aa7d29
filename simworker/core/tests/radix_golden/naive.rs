//! A flat, slow model of the prefix cache: a list of nodes that each know their whole path.
//!
//! Nothing is counted along the way. Locks follow from the holds that are out, free slots from everything else,
//! the next victim from a search through all nodes.

use crate::subject::{Counts, Insertion, Subject};
use protocol::tokenizer::Token;
use simworker_core::cache::{CacheConfig, Eviction, HostTier, WritePolicy};
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

// === impl Naive: the second tier ===

impl Naive {
    fn host_used(&self) -> u64 {
        let nodes = self.nodes.iter().filter(|node| node.host);
        nodes.map(|node| (node.path.len() - node.start) as u64).sum()
    }

    fn note_copy(&mut self, at: usize) {
        let node = &self.nodes[at];
        if self.writes() == Some(WritePolicy::Back) && node.device && node.host && node.copied.is_none() {
            self.copies += 1;
            self.nodes[at].copied = Some(self.copies);
        }
    }

    fn back_up(&mut self, at: usize) -> bool {
        if self.nodes[at].host {
            return true;
        }
        let Some(tier) = self.tier else { return false };
        let capacity = tier.capacity_tokens / self.page as u64 * self.page as u64;
        let (namespace, path) = (self.nodes[at].namespace, self.nodes[at].path.clone());
        let tokens = (path.len() - self.nodes[at].start) as u64;
        let short = (self.host_used() + tokens).saturating_sub(capacity);
        if short > 0 && self.evict_host(short) < short {
            return false;
        }
        // Others may have moved.
        let at = *self.path(&path, namespace).last().expect("what is on the device stays");
        self.nodes[at].host = true;
        self.note_copy(at);
        true
    }

    fn evict_host(&mut self, tokens: u64) -> u64 {
        let before = self.host_used();
        let freed = |model: &Self| before - model.host_used();
        let mut turns: Vec<u64> = self.nodes.iter().filter_map(|node| node.copied).collect();
        turns.sort_unstable();
        for spares in [true, false] {
            for turn in &turns {
                let Some(at) = self.nodes.iter().position(|node| node.copied == Some(*turn)) else {
                    continue;
                };
                let node = &self.nodes[at];
                let is_copy = node.device && node.host;
                if freed(self) >= tokens || is_copy && spares && self.is_device_leaf(node) {
                    continue;
                }
                self.nodes[at].copied = None;
                self.nodes[at].host &= !is_copy;
            }
        }
        while freed(self) < tokens {
            let only_host =
                |node: &Node| !node.device && !self.locked(node) && !self.has_children(node, |_| true);
            let leaves = (0..self.nodes.len()).filter(|&at| only_host(&self.nodes[at]));
            let Some(at) = leaves.min_by_key(|&at| self.rank(&self.nodes[at])) else { break };
            self.nodes.swap_remove(at);
        }
        freed(self)
    }

    fn give_up(&mut self, at: usize) {
        let (namespace, path) = (self.nodes[at].namespace, self.nodes[at].path.clone());
        if self.writes() == Some(WritePolicy::Back) {
            self.back_up(at);
        }
        let at = *self.path(&path, namespace).last().expect("what is on the device stays");
        if self.nodes[at].host {
            self.nodes[at].device = false;
        } else {
            self.nodes.retain(|node| node.namespace != namespace || !node.path.starts_with(&path));
        }
    }
}

impl Subject for Naive {
    type Hold = NaiveHold;

    fn new(config: CacheConfig, tier: Option<HostTier>) -> Self {
        Self {
            tier,
            copies: 0,
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
        let found = tokens[..self.find(tokens, namespace)].to_vec();
        let len = self.device_len(&found, namespace);
        self.holds_made += 1;
        let state = State { namespace, path: found[..len].to_vec(), kv_len: len, inserted_len: 0, found };
        self.holds.insert(self.holds_made, state);
        NaiveHold(self.holds_made, len)
    }

    fn load_back(&mut self, hold: &mut NaiveHold) -> u64 {
        let state = self.holds.get_mut(&hold.0).expect("holds are given back once");
        let (before, all, namespace) = (state.path.clone(), state.found.clone(), state.namespace);
        let tokens = (all.len() - before.len()) as u64;
        if tokens < self.tier.map_or(0, |tier| tier.load_back_threshold) || tokens == 0 {
            return 0;
        }
        // The whole path is locked, yet nothing more is private.
        state.path.clone_from(&all);
        state.kv_len = all.len();
        self.evict_to_free(tokens);
        let fits = self.free() >= tokens;
        if fits {
            for at in self.path(&all, namespace) {
                self.nodes[at].device = true;
                self.note_copy(at);
            }
            hold.1 = all.len();
        } else {
            let state = self.holds.get_mut(&hold.0).expect("holds are given back once");
            state.kv_len = before.len();
            state.path = before;
        }
        if fits { tokens } else { 0 }
    }

    fn refuse(&mut self, hold: NaiveHold) {
        self.drop_private(hold);
    }

    fn evict_to_free(&mut self, tokens: u64) -> u64 {
        let before = self.free();
        let mut free = before;
        while free < tokens {
            let Some(at) = self.victim() else { break };
            self.give_up(at);
            free = self.free();
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
            host: self.host_used(),
        }
    }
}
