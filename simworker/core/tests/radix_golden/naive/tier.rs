//! The second tier of the model.

use super::{Naive, Node};
use simworker_core::cache::WritePolicy;

impl Naive {
    pub(super) fn host_used(&self) -> u64 {
        let nodes = self.nodes.iter().filter(|node| node.host);
        nodes.map(|node| (node.path.len() - node.start) as u64).sum()
    }

    pub(super) fn note_copy(&mut self, at: usize) {
        let node = &self.nodes[at];
        if self.writes() == Some(WritePolicy::Back) && node.device && node.host && node.copied.is_none() {
            self.copies += 1;
            self.nodes[at].copied = Some(self.copies);
        }
    }

    pub(super) fn back_up(&mut self, at: usize) -> bool {
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

    pub(super) fn evict_host(&mut self, tokens: u64) -> u64 {
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

    pub(super) fn give_up(&mut self, at: usize) {
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
