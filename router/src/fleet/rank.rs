//! What the decision core knows as one worker: an engine as a whole, or one of its data-parallel ranks. And which of these an
//! engine has.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use router_core::ids::WorkerId;
use smallvec::SmallVec;

use super::{Identity, Member};
use crate::metrics::WorkerMetrics;
use crate::upstream::Address;

/// One of them. All ranks of an engine share its address, its health and what is said of it.
#[derive(Debug)]
pub(crate) struct Rank {
    /// In the decision core.
    pub(crate) id: WorkerId,
    /// The data-parallel rank, as the engine counts; `None`: the engine is addressed as a whole.
    pub(crate) number: Option<u32>,
    /// Under which operators know it; that of the engine if it is the whole of it.
    pub(crate) identity: Identity,
    /// The engine's URL, and `@` with the number behind it if there is one.
    pub(crate) url: Arc<str>,
    pub(crate) metrics: Arc<WorkerMetrics>,
    /// It alone was told to leave.
    is_leaving: AtomicBool,
}

/// How an engine is addressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// As a whole: it chooses among its ranks by itself, if it has several.
    Whole,
    /// By these ranks: `count` of them, 2 or more, from `first` on.
    Ranks { first: u32, count: u32 },
}

/// Ids of an engine's workers; most engines have one.
pub(crate) type Ids = SmallVec<[WorkerId; 4]>;

/// Who an engine's workers are. Changed under the lock of the books alone.
#[derive(Debug)]
pub(super) struct Ranks(RwLock<Roll>);

#[derive(Debug)]
struct Roll {
    layout: Layout,
    /// In the order of their ids; at least one.
    now: Arc<[Arc<Rank>]>,
    /// Those that have left, while something may be in flight there.
    former: Vec<Arc<Rank>>,
}

// === impl Rank ===

impl Rank {
    pub(super) fn new(id: WorkerId, address: &Address, number: Option<u32>) -> Self {
        Self {
            id,
            number,
            identity: Identity::of_rank(address, number),
            url: Self::url(address, number).into(),
            metrics: Arc::default(),
            is_leaving: AtomicBool::new(false),
        }
    }

    /// What the rank of this number is called.
    pub(super) fn url(address: &Address, number: Option<u32>) -> String {
        number.map_or_else(|| address.url.clone(), |number| format!("{}@{number}", address.url))
    }

    /// Whether it alone was told to leave.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire)
    }

    /// It is to leave; whether that is news.
    pub(super) fn leave(&self) -> bool {
        !self.is_leaving.swap(true, Ordering::AcqRel)
    }
}

// === impl Layout ===

impl Layout {
    /// So many ranks from that one on. One is all that there is, whichever number it has.
    pub(super) fn of(first: u32, count: u32) -> Self {
        if count > 1 { Self::Ranks { first, count } } else { Self::Whole }
    }

    /// What its workers are called; `None` is the whole engine.
    pub(super) fn numbers(self) -> impl Iterator<Item = Option<u32>> {
        let (whole, ranks) = match self {
            Self::Whole => (Some(None), 0..0),
            Self::Ranks { first, count } => (None, first..first.saturating_add(count)),
        };
        whole.into_iter().chain(ranks.map(Some))
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("as a whole"),
            Self::Ranks { first, count } => write!(f, "by its ranks {first} to {}", first + (count - 1)),
        }
    }
}

// === impl Ranks ===

impl Ranks {
    /// One: the whole engine.
    pub(super) fn whole(id: WorkerId, address: &Address) -> Self {
        let now = Arc::new([Arc::new(Rank::new(id, address, None))]);
        Self(RwLock::new(Roll { layout: Layout::Whole, now, former: Vec::new() }))
    }
}

impl Member {
    /// Its workers in the decision core; at least one. A request that found nobody at one of them finds nobody at the others.
    pub(crate) fn ids(&self) -> Ids {
        self.ranks.0.read().now.iter().map(|rank| rank.id).collect()
    }

    /// The same, with those that have left and where something may be in flight.
    pub(super) fn all_ids(&self) -> Ids {
        let ranks = self.ranks.0.read();
        ranks.now.iter().chain(&ranks.former).map(|rank| rank.id).collect()
    }

    /// Its workers, in the order of their ids.
    pub(crate) fn ranks(&self) -> Arc<[Arc<Rank>]> {
        Arc::clone(&self.ranks.0.read().now)
    }

    /// How it is addressed.
    pub(crate) fn layout(&self) -> Layout {
        self.ranks.0.read().layout
    }

    /// These are its workers from now on; of those before, the ones that `is_busy` are remembered.
    pub(super) fn set_ranks(&self, layout: Layout, now: Vec<Arc<Rank>>, is_busy: impl Fn(WorkerId) -> bool) {
        let mut ranks = self.ranks.0.write();
        let before = std::mem::replace(&mut ranks.now, now.into());
        let gone = before.iter().filter(|rank| ranks.now.iter().all(|other| other.id != rank.id)).cloned();
        let gone: Vec<_> = gone.collect();
        ranks.former.extend(gone);
        ranks.former.retain(|rank| is_busy(rank.id));
        ranks.layout = layout;
    }
}
