//! In which order cached leaves are given up.

use super::tree::NodeId;
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeSet, BinaryHeap};

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
    /// The one that was made first. Where a leaf is split, both parts count as made when it was.
    Fifo,
    /// The one that was used last.
    Mru,
    /// The one that was made last.
    Filo,
}

/// What the policies look at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    /// Tick of the last walk through the node.
    pub(super) last_access: u64,
    /// Tick of its making.
    pub(super) born: u64,
    /// Requests that have inserted the node or a part of it.
    pub(super) hits: u32,
    /// The highest priority that a request has inserted it with.
    pub(super) priority: i64,
}

/// Place in the order of eviction; the smallest goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank(i64, u64);

impl Eviction {
    /// Every one.
    pub const ALL: [Self; 7] =
        [Self::Lru, Self::Lfu, Self::Slru, Self::Priority, Self::Fifo, Self::Mru, Self::Filo];

    /// SGLang's word for it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Lfu => "lfu",
            Self::Slru => "slru",
            Self::Priority => "priority",
            Self::Fifo => "fifo",
            Self::Mru => "mru",
            Self::Filo => "filo",
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
            Self::Fifo => return Rank(0, usage.born),
            Self::Mru => return Rank(0, u64::MAX - usage.last_access),
            Self::Filo => return Rank(0, u64::MAX - usage.born),
        };
        Rank(first, usage.last_access)
    }

    /// Whether use can bring a node closer to eviction. All that the other policies look at only grows.
    fn ranks_fall(self) -> bool {
        self == Self::Mru
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
#[derive(Debug)]
pub(super) enum Queue {
    /// For ranks that never fall. Using a node does not touch the queue, as most uses are never followed by an
    /// eviction: ranks are compared with the truth when they come to the top, and those that have grown sink again. It
    /// costs at most one sift per use.
    Lazy(BinaryHeap<Reverse<(Rank, NodeId)>>),
    /// For ranks that may fall: every use of a queued node must be [told](Queue::moved).
    Exact(BTreeSet<(Rank, NodeId)>),
}

impl Queue {
    pub(super) fn new(eviction: Eviction) -> Self {
        if eviction.ranks_fall() { Self::Exact(BTreeSet::new()) } else { Self::Lazy(BinaryHeap::new()) }
    }

    /// Adds a node that is not in the queue.
    pub(super) fn push(&mut self, rank: Rank, node: NodeId) {
        match self {
            Self::Lazy(heap) => heap.push(Reverse((rank, node))),
            Self::Exact(set) => {
                set.insert((rank, node));
            }
        }
    }

    /// Whether the queue wants to know of changes of rank.
    pub(super) fn wants_moves(&self) -> bool {
        matches!(self, Self::Exact(_))
    }

    /// Notes that a queued node has changed its rank.
    pub(super) fn moved(&mut self, from: Rank, to: Rank, node: NodeId) {
        if let Self::Exact(set) = self
            && set.remove(&(from, node))
        {
            set.insert((to, node));
        }
    }

    /// Takes out the node that goes first. `standing` is asked for the truth about a node; whatever it calls
    /// withdrawn leaves the queue.
    pub(super) fn pop(&mut self, mut standing: impl FnMut(NodeId) -> Standing) -> Option<NodeId> {
        match self {
            Self::Lazy(heap) => pop_lazy(heap, standing),
            Self::Exact(set) => loop {
                let (_, node) = set.pop_first()?;
                if let Standing::Candidate(_) = standing(node) {
                    return Some(node);
                }
            },
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Self::Lazy(heap) => heap.clear(),
            Self::Exact(set) => set.clear(),
        }
    }

    /// Every queued node with the rank it waits under, in no particular order.
    pub(super) fn entries(&self) -> Vec<(NodeId, Rank)> {
        match self {
            Self::Lazy(heap) => heap.iter().map(|Reverse((rank, node))| (*node, *rank)).collect(),
            Self::Exact(set) => set.iter().map(|(rank, node)| (*node, *rank)).collect(),
        }
    }
}

fn pop_lazy(
    heap: &mut BinaryHeap<Reverse<(Rank, NodeId)>>,
    mut standing: impl FnMut(NodeId) -> Standing,
) -> Option<NodeId> {
    while let Some(mut top) = heap.peek_mut() {
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
