//! In which order cached leaves are given up.

use super::tree::NodeId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// Which leaf goes first (`--radix-eviction-policy`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Eviction {
    /// The one whose last use is longest ago.
    #[default]
    Lru,
    /// The one that the fewest requests have used; among equals the least recent.
    Lfu,
    /// Those used by one request only before those used by more; among equals the least recent.
    Slru,
    /// The one with the lowest priority; among equals the least recent.
    Priority,
}

/// What the policies look at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    /// Tick of the last walk through the node.
    pub(super) last_access: u64,
    /// Requests that have inserted the node or a part of it.
    pub(super) hits: u32,
    /// The highest priority that a request has inserted it with.
    pub(super) priority: i64,
}

/// Place in the order of eviction; the smallest goes first.
///
/// The value of a node only ever grows: all parts of [`Usage`] do. The queue below relies on it, so a policy that
/// prefers the *most* recent would need another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank(i64, u64);

impl Eviction {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Lru, Self::Lfu, Self::Slru, Self::Priority];

    /// SGLang's word for it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Lfu => "lfu",
            Self::Slru => "slru",
            Self::Priority => "priority",
        }
    }

    /// The one with that [label](Self::label).
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|eviction| eviction.label() == label)
    }

    pub(super) fn rank(self, usage: Usage) -> Rank {
        let first = match self {
            Self::Lru => 0,
            Self::Lfu => i64::from(usage.hits),
            Self::Slru => i64::from(usage.hits >= 2),
            Self::Priority => usage.priority,
        };
        Rank(first, usage.last_access)
    }
}

/// What a queued node is when its turn comes.
pub(super) enum Standing {
    /// It may be evicted, and this is its rank now.
    Candidate(Rank),
    /// It has been locked or has got children since; it no longer belongs to the queue.
    Withdrawn,
}

/// The candidates for eviction, cheapest first.
///
/// Using a node does not touch the queue, as most uses are never followed by an eviction: ranks are compared with
/// the truth when they come to the top, and those that have grown sink again. This is exact because ranks never
/// fall, and costs at most one sift per use.
#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<(Rank, NodeId)>>,
}

impl Queue {
    /// Adds a node that is not in the queue.
    pub(super) fn push(&mut self, rank: Rank, node: NodeId) {
        self.heap.push(Reverse((rank, node)));
    }

    /// Takes out the node that goes first. `standing` is asked for the truth about a node; whatever it calls
    /// withdrawn leaves the queue.
    pub(super) fn pop(&mut self, mut standing: impl FnMut(NodeId) -> Standing) -> Option<NodeId> {
        while let Some(mut top) = self.heap.peek_mut() {
            let Reverse((rank, node)) = *top;
            match standing(node) {
                Standing::Candidate(now) if now == rank => {
                    PeekMut::pop(top);
                    return Some(node);
                }
                Standing::Candidate(now) => *top = Reverse((now, node)),
                Standing::Withdrawn => {
                    PeekMut::pop(top);
                }
            }
        }
        None
    }

    pub(super) fn clear(&mut self) {
        self.heap.clear();
    }

    /// Every queued node with the rank it waits under, in no particular order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (NodeId, Rank)> {
        self.heap.iter().map(|Reverse((rank, node))| (*node, *rank))
    }
}
