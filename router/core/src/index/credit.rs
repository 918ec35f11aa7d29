//! Crediting a prompt: room is made first, then the prompt is added.
//!
//! The order is what keeps the bounds true at every moment: the path is made the newest, memory is freed, the
//! worker's oldest characters are evicted, and only then does the worker get the rest.

use super::PrefixIndex;
use super::edge::SPLIT_BYTES;
use super::forest::{Path, Rest};
use super::holdings::{Holding, Leaf, Tenant};
use super::memory::heap;
use super::node::Owner;
use super::ownership::MOST_NEW_NODES;
use super::symbol::{Forests, Run, Symbol};
use crate::ids::{ScopeId, WorkerId};

impl PrefixIndex {
    /// Returns whom it was credited to and its epoch, or `None` if there was nothing to note or no room for it.
    pub(super) fn credit_run<S: Symbol>(
        &mut self,
        scope: ScopeId,
        run: S::Run<'_>,
        worker: WorkerId,
    ) -> Option<(Tenant, u64)> {
        let run = run.until(S::head(run, self.limits.max_tree_size).min(self.most_symbols::<S>()));
        if run.is_empty() {
            return None;
        }
        let tenant = self.holdings.tenant(worker)?;
        self.epoch += 1;
        let epoch = self.epoch;
        let mut leaves = MOST_EVICTED;
        let mut path = self.make_room::<S>(scope, run, tenant, epoch, &mut leaves)?;
        let holding = self.holdings.entry(worker, tenant);
        let forest = S::forest_mut(&mut self.forests);
        forest.cut(&mut path);
        let mut rest: Rest<'_, S> = Rest::of(run, &path);
        let lacking = forest.refresh(&path, tenant, epoch, holding) + rest.chars;
        let over = (holding.chars + lacking).saturating_sub(self.limits.max_tree_size);
        if over > 0 {
            let evicted = evict(&mut self.forests, over, tenant, holding, &mut leaves);
            self.evicted_chars += evicted;
            // More than the run has if a bound was lowered: then nothing fits.
            let lack = over.saturating_sub(evicted);
            let fits =
                if lack == 0 { run } else { run.until(S::head(run, S::chars(run).saturating_sub(lack))) };
            // Nodes may have been joined. What is on the path stays: it is the newest, or another worker's.
            let forest = S::forest_mut(&mut self.forests);
            path = forest.walk(scope, fits);
            forest.cut(&mut path);
            if lack > 0 {
                rest = Rest::of(fits, &path);
            }
        }
        S::forest_mut(&mut self.forests).grant(scope, &path, &rest, tenant, epoch, holding);
        self.holdings.settle(tenant);
        let shrinking = self.shrinking.is_some();
        debug_assert!(shrinking || self.bytes() as u64 <= self.limits.max_tree_bytes);
        debug_assert!(shrinking || self.chars_of(worker) <= self.limits.max_tree_size);
        Some((tenant, epoch))
    }

    /// Frees memory until the rest of the run can be added; returns the path of the run. What the worker owns of it
    /// goes last. `None` if there is nothing left to free, or no more of it may be freed in one go.
    fn make_room<S: Symbol>(
        &mut self,
        scope: ScopeId,
        run: S::Run<'_>,
        tenant: Tenant,
        epoch: u64,
        leaves: &mut usize,
    ) -> Option<Path> {
        let mut refreshed = false;
        loop {
            let forest = S::forest_mut(&mut self.forests);
            let path = forest.walk(scope, run);
            let room = forest.room_for(&path, run, tenant) + self.overhead();
            let short = (self.bytes() + room).saturating_sub(self.limits.max_tree_bytes as usize);
            if short == 0 {
                return Some(path);
            }
            if !refreshed {
                // A newcomer owns nothing that could be refreshed.
                if let Some(holding) = self.holdings.get_mut(tenant) {
                    S::forest_mut(&mut self.forests).refresh(&path, tenant, epoch, holding);
                    self.holdings.settle(tenant);
                }
                refreshed = true;
            }
            if !self.free_memory(short, leaves) {
                return None;
            }
        }
    }

    /// Takes away up to so many leaves, those of gone tenants first, then the oldest, until `wanted` bytes are free or
    /// none is left; false if it took none.
    fn free_memory(&mut self, wanted: usize, leaves: &mut usize) -> bool {
        let target = self.bytes().saturating_sub(wanted);
        let mut any = false;
        while *leaves > 0 && (!any || self.bytes() > target) {
            if !self.clear_one_row() {
                let Some((tenant, holding)) = self.holdings.eldest() else { return any };
                self.evicted_chars += evict_leaf(&mut self.forests, u64::MAX, tenant, holding);
                self.holdings.settle(tenant);
            }
            *leaves -= 1;
            any = true;
        }
        any
    }

    /// Clears one row of a gone tenant; false if there is none.
    pub(super) fn clear_one_row(&mut self) -> bool {
        let Some((tenant, holding)) = self.holdings.grave() else { return false };
        evict_leaf(&mut self.forests, u64::MAX, tenant, holding);
        self.holdings.settle(tenant);
        true
    }

    /// What a credit may cost besides the symbols, the rows along its path and the places in its own arena.
    fn overhead(&self) -> usize {
        let other_arena = self.forests.growth();
        // The row list of a node that is split to shorten a leaf has at most a row for each tenant.
        let shortened = heap(2 * size_of::<Owner>() * (self.holdings.len() + 1));
        MOST_NEW_NODES * NODE_OVERHEAD + self.holdings.growth() + other_arena + shortened
    }

    /// The longest run that an otherwise empty index could hold.
    fn most_symbols<S: Symbol>(&self) -> usize {
        let empty = Self::new(self.limits);
        let arena = S::forest(&empty.forests).arena.growth(MOST_NEW_NODES);
        let fixed = arena + empty.overhead() + self.holdings.bytes();
        (self.limits.max_tree_bytes as usize).saturating_sub(fixed) / size_of::<S>()
    }
}

/// At most this much for a node besides edge, rows and place: children of its own, a child more for its parent (which
/// may turn one B-tree node into three), rounding, and what the split of an edge costs.
const NODE_OVERHEAD: usize = 672 + SPLIT_BYTES;

/// Most leaves that one credit evicts, so that no request waits long for another one's: well under a millisecond.
///
/// It matters where many short prompts are followed by a long one. Of that, what finds room is credited; without
/// memory for it, nothing. The next one finds the room that was made.
const MOST_EVICTED: usize = 1024;

/// Takes `chars` characters from the worker, oldest first, as far as so many leaves go; returns how many it took.
fn evict(
    forests: &mut Forests,
    chars: u64,
    tenant: Tenant,
    holding: &mut Holding,
    leaves: &mut usize,
) -> u64 {
    let mut taken = 0;
    while taken < chars && *leaves > 0 && !holding.leaves.is_empty() {
        taken += evict_leaf(forests, chars - taken, tenant, holding);
        *leaves -= 1;
    }
    taken
}

/// Takes up to `chars` characters from the end of the worker's oldest leaf.
pub(super) fn evict_leaf(forests: &mut Forests, chars: u64, tenant: Tenant, holding: &mut Holding) -> u64 {
    match holding.leaves.values().next() {
        Some(&Leaf::Text(node)) => forests.text.shrink(node, chars, tenant, holding),
        Some(&Leaf::Tokens(node)) => forests.tokens.shrink(node, chars, tenant, holding),
        Some(&Leaf::Generated(node)) => forests.generated.shrink(node, chars, tenant, holding),
        None => 0,
    }
}
