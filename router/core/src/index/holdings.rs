//! What each worker owns, seen from the worker: how many characters, and its leaves by age.

use std::collections::{BTreeMap, BTreeSet};

use super::memory::btree;
use super::node::NodeId;
use crate::ids::WorkerId;

/// A node of one of the two forests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaf {
    Text(NodeId),
    Tokens(NodeId),
}

/// One worker's share of the index.
#[derive(Debug, Default)]
pub(super) struct Holding {
    pub(super) chars: u64,
    /// The worker's leaves by the epoch of their last credit; no two share one, because the rows of one epoch lie
    /// on one path.
    pub(super) leaves: BTreeMap<u64, Leaf>,
    /// As of the last [`Holdings::settle`]: the heap of `leaves`, and the key in `oldest`.
    counted_bytes: usize,
    listed: Option<u64>,
}

impl Holding {
    fn leaf_bytes(leaves: usize) -> usize {
        btree(leaves, size_of::<(u64, Leaf)>())
    }
}

/// All holdings.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    /// With those of forgotten workers, until their last row has been cleared away.
    table: BTreeMap<WorkerId, Holding>,
    /// The oldest leaf of each worker that has one. A forgotten worker stands at [`DEAD`], before all others, so that
    /// its memory is the first to be taken back.
    oldest: BTreeSet<(u64, WorkerId)>,
    /// Ids are never used again, so this is also what keeps a late credit from bringing a worker back.
    forgotten: BTreeSet<WorkerId>,
    /// Heap of the leaves of all holdings.
    leaf_bytes: usize,
}

/// No credit has this epoch.
const DEAD: u64 = 0;

impl Holdings {
    pub(super) fn is_forgotten(&self, worker: WorkerId) -> bool {
        self.forgotten.contains(&worker)
    }

    pub(super) fn any_forgotten(&self) -> bool {
        !self.forgotten.is_empty()
    }

    /// The holding of a worker that is not forgotten.
    pub(super) fn get(&self, worker: WorkerId) -> Option<&Holding> {
        self.table.get(&worker).filter(|holding| holding.listed != Some(DEAD))
    }

    /// Mutable [`Self::get`]; [`Self::settle`] afterwards.
    pub(super) fn get_mut(&mut self, worker: WorkerId) -> Option<&mut Holding> {
        self.table.get_mut(&worker).filter(|holding| holding.listed != Some(DEAD))
    }

    /// The holding of a worker that is not forgotten, new if need be; [`Self::settle`] afterwards.
    pub(super) fn entry(&mut self, worker: WorkerId) -> &mut Holding {
        self.table.entry(worker).or_default()
    }

    /// Holdings, in order of worker id, and whether the worker is forgotten.
    pub(super) fn iter(&self) -> impl Iterator<Item = (WorkerId, &Holding, bool)> {
        self.table.iter().map(|(&worker, holding)| (worker, holding, holding.listed == Some(DEAD)))
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// The worker whose oldest leaf is the oldest of all, and its holding; [`Self::settle`] afterwards.
    pub(super) fn eldest(&mut self) -> Option<(WorkerId, &mut Holding)> {
        let &(epoch, worker) = self.oldest.first()?;
        debug_assert_ne!(epoch, DEAD, "the forgotten are cleared first");
        Some((worker, self.table.get_mut(&worker)?))
    }

    /// A forgotten worker with rows left, and its holding; [`Self::settle`] afterwards.
    pub(super) fn grave(&mut self) -> Option<(WorkerId, &mut Holding)> {
        let &(epoch, worker) = self.oldest.first()?;
        if epoch == DEAD { Some((worker, self.table.get_mut(&worker)?)) } else { None }
    }

    /// Brings the books up to date after a worker's leaves have changed.
    pub(super) fn settle(&mut self, worker: WorkerId) {
        let Some(holding) = self.table.get_mut(&worker) else { return };
        let bytes = Holding::leaf_bytes(holding.leaves.len());
        self.leaf_bytes = self.leaf_bytes - holding.counted_bytes + bytes;
        holding.counted_bytes = bytes;
        let dead = holding.listed == Some(DEAD);
        let oldest = holding.leaves.keys().next().copied();
        self.list(worker, if dead { oldest.and(Some(DEAD)) } else { oldest });
        if dead && oldest.is_none() {
            self.table.remove(&worker);
        }
    }

    /// Forgets a worker: it owns nothing from now on.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.forgotten.insert(worker);
        if self.table.get(&worker).is_some_and(|holding| !holding.leaves.is_empty()) {
            self.list(worker, Some(DEAD));
        } else {
            self.table.remove(&worker);
        }
    }

    fn list(&mut self, worker: WorkerId, epoch: Option<u64>) {
        let Some(holding) = self.table.get_mut(&worker) else { return };
        if holding.listed == epoch {
            return;
        }
        if let Some(before) = holding.listed {
            self.oldest.remove(&(before, worker));
        }
        holding.listed = epoch;
        self.oldest.extend(epoch.map(|epoch| (epoch, worker)));
    }

    /// Heap of all holdings. The ids of the forgotten are left out: four bytes for a worker that once was.
    pub(super) fn bytes(&self) -> usize {
        Self::table_bytes(self.table.len()) + self.leaf_bytes
    }

    /// At most this many bytes more for one credit: a worker and a leaf.
    pub(super) fn growth(&self) -> usize {
        let tables = Self::table_bytes(self.table.len() + 1) - Self::table_bytes(self.table.len());
        // The eleventh leaf turns one node into three.
        tables + Holding::leaf_bytes(11)
    }

    /// `table` and `oldest` with this many workers.
    fn table_bytes(workers: usize) -> usize {
        btree(workers, size_of::<(WorkerId, Holding)>()) + btree(workers, size_of::<(u64, WorkerId)>())
    }

    /// Checks the books against the holdings themselves.
    pub(super) fn check(&self) -> Result<(), String> {
        let (mut bytes, mut listed) = (0, 0);
        for (worker, holding, dead) in self.iter() {
            bytes += Holding::leaf_bytes(holding.leaves.len());
            let oldest = holding.leaves.keys().next().copied();
            let expected = if dead { Some(DEAD) } else { oldest };
            if holding.listed != expected
                || expected.is_some_and(|epoch| !self.oldest.contains(&(epoch, worker)))
            {
                return Err(format!(
                    "{worker:?}: the oldest leaf is {oldest:?}, listed {:?}",
                    holding.listed
                ));
            }
            if dead != self.is_forgotten(worker) || dead && holding.leaves.is_empty() {
                return Err(format!("{worker:?}: dead {dead}, {} leaves", holding.leaves.len()));
            }
            listed += usize::from(expected.is_some());
        }
        if (listed, bytes) != (self.oldest.len(), self.leaf_bytes) {
            return Err(format!(
                "{listed} listed, {bytes} B; booked {}, {} B",
                self.oldest.len(),
                self.leaf_bytes
            ));
        }
        Ok(())
    }
}
