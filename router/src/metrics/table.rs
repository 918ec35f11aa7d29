//! Counters of label sets that are not known beforehand, and rare.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Counts by key. For what happens seldom: it takes a lock.
#[derive(Debug)]
pub(super) struct Table<K>(Mutex<BTreeMap<K, u64>>);

impl<K> Default for Table<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord + Clone> Table<K> {
    pub(super) fn add(&self, key: K) {
        *self.0.lock().entry(key).or_default() += 1;
    }

    /// All keys with their counts, in order.
    pub(super) fn rows(&self) -> Vec<(K, u64)> {
        self.0.lock().iter().map(|(key, count)| (key.clone(), *count)).collect()
    }
}
