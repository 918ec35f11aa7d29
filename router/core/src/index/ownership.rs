//! Who owns which run: granting, refreshing and taking away.
//!
//! Every change of a row goes through here, together with the same change in the tenant's [`Holding`]: the number
//! of its characters and its leaves in order of age.

use super::edge::Stretch;
use super::forest::{Forest, Path, Rest};
use super::holdings::{Holding, Tenant};
use super::memory::heap;
use super::node::{NodeId, Owner, Stamp};
use super::symbol::{Run, Symbol};
use crate::ids::ScopeId;

impl<S: Symbol> Forest<S> {
    /// Makes the tenant's rows along the path the newest; returns the characters on it that it does not own.
    pub(super) fn refresh(&mut self, path: &Path, tenant: Tenant, epoch: u64, holding: &mut Holding) -> u64 {
        let mut lacking = 0;
        for &id in &path.nodes {
            let node = self.arena.node_mut(id);
            let Some(owner) = node.owners.get_mut(tenant) else {
                lacking += u64::from(node.chars);
                continue;
            };
            if owner.kids == 0 {
                holding.leaves.remove(&owner.stamp.epoch());
                holding.leaves.insert(epoch, S::leaf(id));
            }
            owner.stamp = Stamp::refreshed(epoch);
        }
        lacking
    }

    /// Gives the tenant the whole of a refreshed path and `rest` below it.
    pub(super) fn grant(
        &mut self,
        scope: ScopeId,
        path: &Path,
        rest: &Rest<'_, S>,
        tenant: Tenant,
        epoch: u64,
        holding: &mut Holding,
    ) {
        for &id in &path.nodes {
            if self.arena.node(id).owners.get(tenant).is_none() {
                self.own(id, tenant, epoch, holding);
            }
        }
        if !rest.run.is_empty() {
            let leaf = self.hang(scope, path, rest);
            self.own(leaf, tenant, epoch, holding);
        }
        // From below, because a fused node leaves its id to nobody.
        for &id in path.nodes.iter().rev() {
            self.fuse(id);
        }
    }

    /// Adds the tenant's row to a node whose parent has one of the same epoch.
    fn own(&mut self, id: NodeId, tenant: Tenant, epoch: u64, holding: &mut Holding) {
        let stamp = Stamp::created(epoch);
        let (parent, chars) = self.edit(id, |node| {
            debug_assert!(!node.edge.run().is_empty(), "nobody owns a root or a vacant place");
            node.owners.insert(Owner { tenant, kids: 0, stamp });
            (node.parent, node.chars)
        });
        if let Some(above) = self.arena.node_mut(parent).owners.get_mut(tenant) {
            above.kids += 1;
        }
        holding.chars += u64::from(chars);
        // Takes the place of the parent, which had the same epoch if it was a leaf.
        holding.leaves.insert(epoch, S::leaf(id));
    }

    /// Takes a leaf from its tenant; returns how many characters that was.
    pub(super) fn disown(&mut self, id: NodeId, tenant: Tenant, holding: &mut Holding) -> u64 {
        let Some(owner) = self.edit(id, |node| node.owners.remove(tenant)) else { return 0 };
        debug_assert_eq!(owner.kids, 0, "ownership is closed upwards: only leaves are taken away");
        let node = self.arena.node(id);
        let (parent, chars, orphaned) =
            (node.parent, u64::from(node.chars), node.owners.as_slice().is_empty());
        holding.chars -= chars;
        holding.leaves.remove(&owner.stamp.epoch());
        if let Some(above) = self.arena.node_mut(parent).owners.get_mut(tenant) {
            above.kids -= 1;
            if above.kids == 0 {
                holding.leaves.insert(above.stamp.epoch(), S::leaf(parent));
            }
        }
        if orphaned {
            self.unhang(id);
            if self.node_count() > 0 {
                self.fuse(parent);
            }
        } else {
            self.fuse(id);
        }
        chars
    }

    /// Takes at least `chars` characters, and no whole character more, from the end of a leaf, or all of it if it
    /// has fewer; returns how many it took.
    pub(super) fn shrink(&mut self, id: NodeId, chars: u64, tenant: Tenant, holding: &mut Holding) -> u64 {
        let node = self.arena.node(id);
        let all = u64::from(node.chars);
        // Bytes that continue the last character of the parent stay with it, wherever the edges are cut.
        let keep = if chars <= all { S::tail(node.edge.run(), all, chars) } else { 0 };
        if keep == 0 {
            return self.disown(id, tenant, holding);
        }
        if node.owners.as_slice().len() > 1 {
            self.split(id, keep);
            return self.disown(id, tenant, holding);
        }
        // The tenant's alone, hence childless: cut in place.
        let taken = all - S::chars_before(node.edge.run(), all, keep);
        self.edit(id, |node| {
            node.edge.truncate(keep);
            node.chars -= taken as u32;
        });
        holding.chars -= taken;
        taken
    }

    /// Takes from the tenant what the credit of `epoch` created along the run and no later one refreshed.
    pub(super) fn withdraw(
        &mut self,
        scope: ScopeId,
        run: S::Run<'_>,
        tenant: Tenant,
        epoch: u64,
        holding: &mut Holding,
    ) {
        for &id in self.walk(scope, run).nodes.iter().rev() {
            let owner = self.arena.node(id).owners.get(tenant);
            if owner.is_some_and(|owner| owner.stamp == Stamp::created(epoch) && owner.kids == 0) {
                self.disown(id, tenant, holding);
            }
        }
    }

    /// At most this many bytes more when the tenant is granted the whole path and the rest of the run.
    pub(super) fn room_for(&self, path: &Path, run: S::Run<'_>, tenant: Tenant) -> usize {
        let joined: usize = path.nodes.iter().map(|&id| self.arena.node(id).owners.growth(tenant)).sum();
        let split = path.inside.map_or(0, |(id, _)| self.arena.node(id).owners.copy_bytes());
        let rest = heap((run.len() - path.matched) * size_of::<S>());
        joined + split + rest + self.arena.growth(MOST_NEW_NODES)
    }
}

/// One credit makes at most four nodes: a root, one for each of the two splits (where the prompt leaves the tree and
/// where the oldest leaf is shortened) and the new leaf.
pub(super) const MOST_NEW_NODES: usize = 4;
