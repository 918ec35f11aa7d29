//! Which worker holds which prompt prefix.
//!
//! Owns: for every (scope, alphabet) one compressed radix tree of the prompts that were booked, and for every run of
//! symbols in it the workers it was booked on. A worker that owns a run owns all that leads to it.
//!
//! Guarantees: a lookup changes nothing and answers for every owner in one walk. Both bounds hold after every call:
//! characters per worker by taking that worker's least recently credited characters from their leaves upwards,
//! exactly as many as are needed; memory by taking the oldest leaf of all workers. Room is made *before* a prompt is
//! added. Nothing costs more than the prompt at hand and what is evicted for it, which is a limited number of leaves.
//! The one exception: after [`PrefixIndex::set_limits`] has lowered a bound it holds again when the sweeps are through.
//!
//! Refuses: to know what a worker really has. It is an estimate from bookings; an engine may have evicted more.
//!
//! Trades away: a place in the arena that falls free is kept for the next node and is given back only when the last
//! prompt of its alphabet goes. Until then it counts as used memory.

mod arena;
mod check;
mod credit;
mod edge;
mod forest;
mod generated;
mod holdings;
mod matches;
mod memory;
mod node;
mod ownership;
mod shared;
mod shrink;
mod symbol;

use self::forest::Row;
use self::generated::GeneratedToken;
use self::holdings::{Holdings, Tenant};
pub use self::matches::{HEAD_PART, Match, Matches};
pub use self::shared::{Held, Shared};
use self::symbol::Forests;
use crate::ids::{ScopeId, WorkerId};
use crate::prompt::PromptView;

/// Bounds of a [`PrefixIndex`]; both hold at all times, lowered ones after a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexLimits {
    /// Characters per worker (the gateway's `--max-tree-size`).
    pub max_tree_size: u64,
    /// Memory of the whole index, in bytes.
    pub max_tree_bytes: u64,
}

/// Sizes of a [`PrefixIndex`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexStats {
    /// Heap in use, estimated from above.
    pub bytes: u64,
    /// Nodes of all trees, without the roots.
    pub nodes: u64,
    /// Characters evicted so far to stay within the bounds.
    pub evicted_chars: u64,
    /// Characters owned by each worker that was credited since it was last cleared, in order of worker id.
    pub chars: Vec<(WorkerId, u64)>,
}

/// Receipt of one [`PrefixIndex::credit`], good for one [`PrefixIndex::withdraw`].
#[derive(Debug, PartialEq, Eq)]
pub struct Credit {
    scope: ScopeId,
    /// To whom, and in which epoch; `None` if nothing was credited.
    booked: Option<(Tenant, u64)>,
}

/// The prefix index; see the module.
#[derive(Debug)]
pub struct PrefixIndex {
    limits: IndexLimits,
    /// Credits so far: the clock of recency.
    epoch: u64,
    evicted_chars: u64,
    forests: Forests,
    holdings: Holdings,
    /// There once the bounds were lowered, until they hold: the tenants before this one are within them.
    shrinking: Option<Tenant>,
}

impl PrefixIndex {
    /// An empty index.
    pub fn new(limits: IndexLimits) -> Self {
        let (forests, holdings) = (Forests::default(), Holdings::default());
        Self { limits, epoch: 0, evicted_chars: 0, forests, holdings, shrinking: None }
    }

    /// How much of the prompt each worker is thought to hold. Pure: recency changes at [`Self::credit`] only.
    pub fn lookup(&self, scope: ScopeId, prompt: PromptView<'_>) -> Matches {
        let prompt = prompt.indexed();
        let rows = match prompt {
            PromptView::Text(run) => self.forests.text.lookup(scope, run),
            PromptView::Tokens(run) => self.forests.tokens.lookup(scope, run),
            PromptView::Generated(run) => self.forests.generated.lookup(scope, run),
            PromptView::Unreadable => Default::default(),
        };
        let live = rows.iter().filter_map(|row| {
            let Row { tenant, chars, credited, head_credited } = *row;
            Some(Match { worker: self.holdings.get(tenant)?.worker, chars, credited, head_credited })
        });
        Matches::at(self.epoch, live, prompt.chars())
    }

    /// Notes that the prompt went to `worker`: it owns all of the indexed part that fits within the bounds, as the
    /// most recent of what it owns; less than that if more than a thousand leaves would have to make room for it. A
    /// forgotten worker is credited with nothing.
    pub fn credit(&mut self, scope: ScopeId, prompt: PromptView<'_>, worker: WorkerId) -> Credit {
        let booked = match prompt.indexed() {
            PromptView::Text(run) => self.credit_run::<u8>(scope, run, worker),
            PromptView::Tokens(run) => self.credit_run::<u32>(scope, run, worker),
            PromptView::Generated(run) => self.credit_run::<GeneratedToken>(scope, run, worker),
            PromptView::Unreadable => None,
        };
        Credit { scope, booked }
    }

    /// Undoes what this credit alone has brought about: ownership that it created and no later credit refreshed.
    /// The prompt is the one that was credited. Of a worker that was cleared since there is nothing to undo.
    pub fn withdraw(&mut self, prompt: PromptView<'_>, credit: Credit) {
        let Credit { scope, booked: Some((tenant, epoch)) } = credit else { return };
        let Some(holding) = self.holdings.get_mut(tenant) else { return };
        match prompt.indexed() {
            PromptView::Text(run) => self.forests.text.withdraw(scope, run, tenant, epoch, holding),
            PromptView::Tokens(run) => self.forests.tokens.withdraw(scope, run, tenant, epoch, holding),
            PromptView::Generated(run) => {
                self.forests.generated.withdraw(scope, run, tenant, epoch, holding);
            }
            PromptView::Unreadable => {}
        }
        self.holdings.settle(tenant);
    }

    /// Takes everything from a worker whose cache may be lost, in constant time: it matches nothing until it is
    /// credited again, and then only what it is credited with. Memory comes back by [`Self::sweep`], or when it is
    /// needed.
    pub fn clear(&mut self, worker: WorkerId) {
        self.holdings.clear(worker);
    }

    /// [`Self::clear`] for good, for a worker that was removed: no credit counts for it any more.
    pub fn forget(&mut self, worker: WorkerId) {
        self.holdings.forget(worker);
    }

    /// Gives back up to `budget_nodes` rows: of cleared and forgotten workers, then what is too much since the bounds were
    /// lowered. True while there may be more to do.
    pub fn sweep(&mut self, budget_nodes: usize) -> bool {
        for _ in 0..budget_nodes {
            if !self.clear_one_row() && !self.shrink_one_leaf() {
                return false;
            }
        }
        self.holdings.grave().is_some() || self.shrinking.is_some()
    }

    /// Sizes, for metrics.
    pub fn stats(&self) -> IndexStats {
        let nodes = self.forests.node_count();
        IndexStats {
            bytes: self.bytes() as u64,
            nodes: nodes as u64,
            evicted_chars: self.evicted_chars,
            chars: self.holdings.chars().collect(),
        }
    }

    /// Characters owned by `worker`.
    pub fn chars_of(&self, worker: WorkerId) -> u64 {
        self.holdings
            .tenant(worker)
            .and_then(|tenant| self.holdings.get(tenant))
            .map_or(0, |holding| holding.chars)
    }

    fn bytes(&self) -> usize {
        self.forests.bytes() + self.holdings.bytes()
    }
}
