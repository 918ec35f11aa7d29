//! Who is protected, and who goes when room is needed.

use super::arena::Arena;
use super::{NodeId, Tree};
use crate::cache::eviction::Standing;
use protocol::kv_events::Medium;

impl Tree {
    /// Protects `node` and all above it.
    pub(in crate::cache) fn lock(&mut self, node: NodeId) {
        let mut at = node;
        while at != NodeId::ROOT {
            let node = &mut self.nodes[at];
            if node.locks == 0 && node.on_device {
                self.evictable -= node.tokens();
                self.protected += node.tokens();
            }
            node.locks += 1;
            let parent = node.parent;
            if !node.on_device {
                self.settle_host(at);
            }
            self.unspare(at);
            at = parent;
        }
    }

    /// Takes back one [`lock`](Self::lock).
    pub(in crate::cache) fn unlock(&mut self, node: NodeId) {
        let mut at = node;
        while at != NodeId::ROOT {
            let node = &mut self.nodes[at];
            node.locks -= 1;
            let parent = node.parent;
            if node.locks == 0 && node.on_device {
                self.evictable += node.tokens();
                self.protected -= node.tokens();
                self.enqueue_if_free(at);
            } else if !node.on_device {
                self.settle_host(at);
            }
            at = parent;
        }
    }

    /// Gives up leaves in the order of the policy until at least `tokens` of the device are free or none is left.
    /// Returns how many tokens went.
    pub(in crate::cache) fn evict(&mut self, tokens: u64) -> u64 {
        let mut evicted = 0;
        while evicted < tokens
            && let Some(leaf) = self.next_victim()
        {
            evicted += self.give_up(leaf);
        }
        self.evictable -= evicted;
        evicted
    }

    /// Forgets everything but the time.
    pub(in crate::cache) fn clear(&mut self) {
        self.nodes = Arena::new();
        self.children.clear();
        self.queue.clear();
        self.evictable = 0;
        self.protected = 0;
        self.clear_host();
        self.record_cleared();
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

    /// Takes a leaf away, from the host too if it is there. Returns its tokens.
    pub(super) fn remove_leaf(&mut self, leaf: NodeId, medium: Medium) -> u64 {
        self.record_removed(leaf, medium);
        self.forget_host(leaf);
        self.children.remove(self.hash_of(leaf), leaf);
        self.nodes.unlink(leaf);
        let node = self.nodes.remove(leaf);
        let parent = &mut self.nodes[node.parent];
        parent.children -= 1;
        parent.device_children -= u32::from(node.on_device);
        if node.parent != NodeId::ROOT {
            self.enqueue_if_free(node.parent);
            self.settle_host(node.parent);
        }
        node.tokens()
    }

    pub(super) fn enqueue_if_free(&mut self, id: NodeId) {
        let node = &mut self.nodes[id];
        if node.is_free_leaf() && !node.queued {
            node.queued = true;
            self.queue.push(self.eviction.rank(node.usage), id);
        }
    }
}
