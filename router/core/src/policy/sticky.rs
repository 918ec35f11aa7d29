//! Where keys stick: a bounded table that forgets keys which were not used for long.

use std::collections::{BTreeMap, HashMap};

use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::{ScopeId, WorkerId};

/// Most keys that are kept. Above it the one that was not used for longest is forgotten.
const MAX_KEYS: usize = 1 << 20;

/// A routing key in its scope. Its hash, so that what clients send does not decide how much memory an entry takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key(u128);

impl Key {
    pub(super) fn new(scope: ScopeId, key: &str) -> Self {
        Self(xxh3_128_with_seed(key.as_bytes(), u64::from(scope.0)))
    }
}

/// The workers that a key has been assigned to, in the order of assignment.
#[derive(Debug, Clone, Copy)]
struct Entry {
    first: WorkerId,
    second: Option<WorkerId>,
    /// The one that served it last; the key counts as a member of its group.
    current: WorkerId,
    used: (u64, u64),
}

/// Keys, and the workers that they stick to.
#[derive(Debug)]
pub(super) struct StickyTable {
    max_idle_ns: u64,
    entries: HashMap<Key, Entry>,
    /// Keys by the time of their last use; the second number tells uses of the same time apart.
    by_use: BTreeMap<(u64, u64), Key>,
    uses: u64,
    /// How many keys stick to each worker.
    groups: BTreeMap<WorkerId, u64>,
}

impl Entry {
    fn workers(&self) -> impl Iterator<Item = WorkerId> {
        [Some(self.first), self.second].into_iter().flatten()
    }

    /// Adds a worker behind the others; of two the older one goes.
    fn append(&mut self, worker: WorkerId) {
        if let Some(second) = self.second.replace(worker) {
            self.first = second;
        }
    }
}

impl StickyTable {
    pub(super) fn new(max_idle_ns: u64) -> Self {
        Self {
            max_idle_ns,
            entries: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            groups: BTreeMap::new(),
        }
    }

    /// Says how long a key may be idle, those that are there too.
    pub(super) fn set_max_idle_ns(&mut self, max_idle_ns: u64) {
        self.max_idle_ns = max_idle_ns;
    }

    /// The workers of a key, the first one first; `None` if the key is not known (any more).
    pub(super) fn workers(&self, now_ns: u64, key: Key) -> Option<impl Iterator<Item = WorkerId>> {
        let entry = self.entries.get(&key)?;
        (now_ns < self.expiry(entry.used.0)).then(|| entry.workers())
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many keys stick to a worker.
    pub(super) fn group(&self, worker: WorkerId) -> u64 {
        self.groups.get(&worker).copied().unwrap_or(0)
    }

    /// A key was served by `worker`, and sticks to it from now on.
    pub(super) fn used(&mut self, now_ns: u64, key: Key, worker: WorkerId) {
        self.expire(now_ns);
        self.uses += 1;
        let used = (now_ns, self.uses);
        let former = self.remove(key);
        let mut entry = former.unwrap_or(Entry { first: worker, second: None, current: worker, used });
        if !entry.workers().any(|known| known == worker) {
            entry.append(worker);
        }
        (entry.current, entry.used) = (worker, used);
        if self.entries.len() >= MAX_KEYS
            && let Some((_, oldest)) = self.by_use.first_key_value()
        {
            self.remove(*oldest);
        }
        *self.groups.entry(worker).or_default() += 1;
        self.by_use.insert(used, key);
        self.entries.insert(key, entry);
    }

    /// A worker is gone for good. Its keys learn of it when they come up next.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.groups.remove(&worker);
    }

    /// Drops keys that were idle for too long.
    pub(super) fn expire(&mut self, now_ns: u64) {
        while let Some((used, key)) = self.by_use.first_key_value()
            && self.expiry(used.0) <= now_ns
        {
            self.remove(*key);
        }
    }

    /// When the next key has been idle for too long.
    pub(super) fn next_expiry(&self) -> Option<u64> {
        self.by_use.first_key_value().map(|(used, _)| self.expiry(used.0))
    }

    fn expiry(&self, used_ns: u64) -> u64 {
        used_ns.saturating_add(self.max_idle_ns)
    }

    fn remove(&mut self, key: Key) -> Option<Entry> {
        let entry = self.entries.remove(&key)?;
        self.by_use.remove(&entry.used);
        if let Some(group) = self.groups.get_mut(&entry.current) {
            *group -= 1;
            if *group == 0 {
                self.groups.remove(&entry.current);
            }
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: WorkerId = WorkerId(0);
    const B: WorkerId = WorkerId(1);
    const C: WorkerId = WorkerId(2);

    fn workers(table: &StickyTable, now_ns: u64, key: Key) -> Vec<WorkerId> {
        table.workers(now_ns, key).into_iter().flatten().collect()
    }

    #[test]
    fn two_workers_are_kept_and_the_older_one_goes() {
        let mut table = StickyTable::new(100);
        let key = Key::new(ScopeId(0), "k");
        for (worker, kept) in [(A, vec![A]), (B, vec![A, B]), (A, vec![A, B]), (C, vec![B, C])] {
            table.used(0, key, worker);
            assert_eq!(workers(&table, 0, key), kept);
        }
        assert_eq!([A, B, C].map(|worker| table.group(worker)), [0, 0, 1], "a key is in one group only");
    }

    #[test]
    fn an_idle_key_is_forgotten_and_a_used_one_is_not() {
        let mut table = StickyTable::new(100);
        let (k, l) = (Key::new(ScopeId(0), "k"), Key::new(ScopeId(0), "l"));
        table.used(0, k, A);
        table.used(10, l, A);
        table.used(50, k, A);
        assert_eq!(table.next_expiry(), Some(110));
        assert_eq!(workers(&table, 109, l), [A]);
        assert_eq!(workers(&table, 110, l), [], "also before the table was swept");
        table.expire(110);
        assert_eq!((table.entries.len(), table.by_use.len(), table.group(A)), (1, 1, 1));
        assert_eq!(workers(&table, 149, k), [A]);
        table.expire(150);
        assert_eq!((table.entries.len(), table.next_expiry(), table.group(A)), (0, None, 0));
    }

    #[test]
    fn keys_of_different_scopes_are_different() {
        assert_ne!(Key::new(ScopeId(0), "k"), Key::new(ScopeId(1), "k"));
    }

    #[test]
    fn a_worker_that_is_gone_has_no_group_and_does_no_harm() {
        let mut table = StickyTable::new(100);
        let key = Key::new(ScopeId(0), "k");
        table.used(0, key, A);
        table.forget(A);
        assert_eq!(table.group(A), 0);
        table.used(1, key, B);
        assert_eq!((table.group(A), table.group(B)), (0, 1));
    }
}
