//! What each worker owns, seen from the worker: how many characters, and its leaves by age.
//!
//! The trees know workers as tenants. A worker that is cleared loses its tenant and gets a new one with its next
//! credit: whatever the trees still hold of the old one is nobody's, at once and without being visited, and cannot be
//! taken for what the worker is credited with afterwards.

use std::collections::{BTreeMap, BTreeSet};

use super::memory::btree;
use super::node::NodeId;
use crate::ids::WorkerId;

/// A node of one of the forests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaf {
    Text(NodeId),
    Tokens(NodeId),
    Generated(NodeId),
}

/// A worker between two clearings. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tenant(u32);

impl Tenant {
    pub(super) const FIRST: Tenant = Tenant(0);
}

/// One tenant's share of the index.
#[derive(Debug)]
pub(super) struct Holding {
    pub(super) worker: WorkerId,
    pub(super) chars: u64,
    /// The tenant's leaves by the epoch of their last credit; no two share one, because the rows of one epoch lie
    /// on one path.
    pub(super) leaves: BTreeMap<u64, Leaf>,
    /// As of the last [`Holdings::settle`]: the heap of `leaves`, and the key in `oldest`.
    counted_bytes: usize,
    listed: Option<u64>,
}

impl Holding {
    fn new(worker: WorkerId) -> Self {
        Self { worker, chars: 0, leaves: BTreeMap::new(), counted_bytes: 0, listed: None }
    }

    fn is_dead(&self) -> bool {
        self.listed == Some(DEAD)
    }

    fn leaf_bytes(leaves: usize) -> usize {
        btree(leaves, size_of::<(u64, Leaf)>())
    }
}

/// All holdings.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    /// With those of gone tenants, until their last row has been cleared away.
    table: BTreeMap<Tenant, Holding>,
    /// The tenants of the workers that were credited since they were last cleared.
    current: BTreeMap<WorkerId, Tenant>,
    next_tenant: u32,
    /// The oldest leaf of each tenant that has one. A gone tenant stands at [`DEAD`], before all others, so that its
    /// memory is the first to be taken back.
    oldest: BTreeSet<(u64, Tenant)>,
    /// What keeps a late credit from bringing a removed worker back.
    forgotten: BTreeSet<WorkerId>,
    /// Heap of the leaves of all holdings.
    leaf_bytes: usize,
}

/// No credit has this epoch.
const DEAD: u64 = 0;

impl Holdings {
    /// The tenant that a credit to this worker goes to, the next one if it has none; `None` if it is forgotten.
    pub(super) fn tenant(&self, worker: WorkerId) -> Option<Tenant> {
        if self.forgotten.contains(&worker) {
            return None;
        }
        Some(self.current.get(&worker).copied().unwrap_or(Tenant(self.next_tenant)))
    }

    /// The holding of a tenant that is not gone.
    pub(super) fn get(&self, tenant: Tenant) -> Option<&Holding> {
        self.table.get(&tenant).filter(|holding| !holding.is_dead())
    }

    /// Mutable [`Self::get`]; [`Self::settle`] afterwards.
    pub(super) fn get_mut(&mut self, tenant: Tenant) -> Option<&mut Holding> {
        self.table.get_mut(&tenant).filter(|holding| !holding.is_dead())
    }

    /// The holding of a worker's [`Self::tenant`], new if need be; [`Self::settle`] afterwards.
    pub(super) fn entry(&mut self, worker: WorkerId, tenant: Tenant) -> &mut Holding {
        let next_tenant = &mut self.next_tenant;
        self.current.entry(worker).or_insert_with(|| {
            *next_tenant += 1;
            tenant
        });
        self.table.entry(tenant).or_insert_with(|| Holding::new(worker))
    }

    /// All holdings, those of gone tenants too.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Tenant, &Holding)> {
        self.table.iter().map(|(&tenant, holding)| (tenant, holding))
    }

    /// The leaf that was last credited in this epoch, of a tenant that is not gone.
    pub(super) fn leaf(&self, epoch: u64) -> Option<Leaf> {
        let live = self.table.values().filter(|holding| !holding.is_dead());
        live.filter_map(|holding| holding.leaves.get(&epoch)).next().copied()
    }

    /// Characters of each worker that has a tenant, in order of worker id.
    pub(super) fn chars(&self) -> impl Iterator<Item = (WorkerId, u64)> {
        self.current
            .iter()
            .map(|(&worker, tenant)| (worker, self.table.get(tenant).map_or(0, |own| own.chars)))
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// The tenant whose oldest leaf is the oldest of all, and its holding; [`Self::settle`] afterwards.
    pub(super) fn eldest(&mut self) -> Option<(Tenant, &mut Holding)> {
        let &(epoch, tenant) = self.oldest.first()?;
        debug_assert_ne!(epoch, DEAD, "the gone are cleared first");
        Some((tenant, self.table.get_mut(&tenant)?))
    }

    /// A gone tenant with rows left, and its holding; [`Self::settle`] afterwards.
    pub(super) fn grave(&mut self) -> Option<(Tenant, &mut Holding)> {
        let &(epoch, tenant) = self.oldest.first()?;
        if epoch == DEAD { Some((tenant, self.table.get_mut(&tenant)?)) } else { None }
    }

    /// The first tenant from `from` on that is not gone and has more characters than `max_chars`, and its holding;
    /// [`Self::settle`] afterwards.
    pub(super) fn first_above(&mut self, from: Tenant, max_chars: u64) -> Option<(Tenant, &mut Holding)> {
        let mut rest = self.table.range_mut(from..);
        let above = rest.find(|(_, holding)| !holding.is_dead() && holding.chars > max_chars);
        above.map(|(&tenant, holding)| (tenant, holding))
    }

    /// Brings the books up to date after a tenant's leaves have changed.
    pub(super) fn settle(&mut self, tenant: Tenant) {
        let Some(holding) = self.table.get_mut(&tenant) else { return };
        let bytes = Holding::leaf_bytes(holding.leaves.len());
        self.leaf_bytes = self.leaf_bytes - holding.counted_bytes + bytes;
        holding.counted_bytes = bytes;
        let dead = holding.is_dead();
        let oldest = holding.leaves.keys().next().copied();
        self.list(tenant, if dead { oldest.and(Some(DEAD)) } else { oldest });
        if dead && oldest.is_none() {
            self.table.remove(&tenant);
        }
    }

    /// Parts a worker from its tenant: it owns nothing from now on.
    pub(super) fn clear(&mut self, worker: WorkerId) {
        let Some(tenant) = self.current.remove(&worker) else { return };
        if self.table.get(&tenant).is_some_and(|holding| !holding.leaves.is_empty()) {
            self.list(tenant, Some(DEAD));
        } else {
            self.table.remove(&tenant);
        }
    }

    /// [`Self::clear`], and it never gets another one.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.clear(worker);
        self.forgotten.insert(worker);
    }

    fn list(&mut self, tenant: Tenant, epoch: Option<u64>) {
        let Some(holding) = self.table.get_mut(&tenant) else { return };
        if holding.listed == epoch {
            return;
        }
        if let Some(before) = holding.listed {
            self.oldest.remove(&(before, tenant));
        }
        holding.listed = epoch;
        self.oldest.extend(epoch.map(|epoch| (epoch, tenant)));
    }

    /// Heap of all holdings. The ids of the forgotten are left out: four bytes for a worker that once was.
    pub(super) fn bytes(&self) -> usize {
        Self::table_bytes(self.table.len()) + self.leaf_bytes
    }

    /// At most this many bytes more for one credit: a tenant and a leaf.
    pub(super) fn growth(&self) -> usize {
        let tables = Self::table_bytes(self.table.len() + 1) - Self::table_bytes(self.table.len());
        // The eleventh leaf turns one node into three.
        tables + Holding::leaf_bytes(11)
    }

    /// `table`, `current` and `oldest` with this many tenants.
    fn table_bytes(tenants: usize) -> usize {
        btree(tenants, size_of::<(Tenant, Holding)>())
            + btree(tenants, size_of::<(WorkerId, Tenant)>())
            + btree(tenants, size_of::<(u64, Tenant)>())
    }

    /// Checks the books against the holdings themselves.
    pub(super) fn check(&self) -> Result<(), String> {
        let (mut bytes, mut listed, mut live) = (0, 0, 0);
        for (tenant, holding) in self.iter() {
            let dead = holding.is_dead();
            bytes += Holding::leaf_bytes(holding.leaves.len());
            let oldest = holding.leaves.keys().next().copied();
            let expected = if dead { Some(DEAD) } else { oldest };
            if holding.listed != expected
                || expected.is_some_and(|epoch| !self.oldest.contains(&(epoch, tenant)))
            {
                return Err(format!(
                    "{tenant:?}: the oldest leaf is {oldest:?}, listed {:?}",
                    holding.listed
                ));
            }
            let is_current = self.current.get(&holding.worker) == Some(&tenant);
            if dead == is_current || dead && holding.leaves.is_empty() || tenant.0 >= self.next_tenant {
                return Err(format!("{tenant:?}: dead {dead}, {} leaves", holding.leaves.len()));
            }
            live += usize::from(!dead);
            listed += usize::from(expected.is_some());
        }
        let found = (listed, bytes, live);
        let booked = (self.oldest.len(), self.leaf_bytes, self.current.len());
        if found != booked {
            return Err(format!("(listed, bytes, live): found {found:?}, booked {booked:?}"));
        }
        Ok(())
    }
}
