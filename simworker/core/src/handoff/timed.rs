//! A map whose entries have deadlines.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// Values by key, each until its deadline.
#[derive(Debug)]
pub(crate) struct Timed<K, V> {
    values: HashMap<K, (u64, V)>,
    deadlines: BTreeSet<(u64, K)>,
}

impl<K: Copy + Ord + Hash, V> Timed<K, V> {
    pub(crate) fn new() -> Self {
        Self { values: HashMap::new(), deadlines: BTreeSet::new() }
    }

    /// Takes in a value; its key must be new.
    pub(crate) fn insert(&mut self, key: K, deadline_ns: u64, value: V) {
        let former = self.values.insert(key, (deadline_ns, value));
        debug_assert!(former.is_none(), "a key is in use once");
        self.deadlines.insert((deadline_ns, key));
    }

    pub(crate) fn take(&mut self, key: K) -> Option<V> {
        let (deadline_ns, value) = self.values.remove(&key)?;
        self.deadlines.remove(&(deadline_ns, key));
        Some(value)
    }

    pub(crate) fn contains(&self, key: K) -> bool {
        self.values.contains_key(&key)
    }

    /// The earliest deadline.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline_ns, _)| *deadline_ns)
    }

    /// Takes out the entry with the earliest deadline if that is `now_ns` or before.
    pub(crate) fn take_expired(&mut self, now_ns: u64) -> Option<V> {
        let (deadline_ns, key) = *self.deadlines.first()?;
        if deadline_ns > now_ns {
            return None;
        }
        self.take(key)
    }

    /// Takes out the entry with the earliest deadline.
    pub(crate) fn take_first(&mut self) -> Option<V> {
        self.take_expired(u64::MAX)
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// The values in the order of their deadlines.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &V> {
        self.deadlines.iter().filter_map(|(_, key)| self.values.get(key)).map(|(_, value)| value)
    }

    /// Proves that each value has one deadline.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.values.len() == self.deadlines.len() && self.iter().count() == self.values.len() {
            return Ok(());
        }
        Err(format!("{} deadlines for {} values", self.deadlines.len(), self.values.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_go_at_their_deadlines_in_order() {
        let mut timed = Timed::new();
        for (key, deadline_ns) in [(1, 30), (2, 10), (3, 20)] {
            timed.insert(key, deadline_ns, key * 100);
        }
        assert_eq!(timed.next_ns(), Some(10));
        assert_eq!(timed.take_expired(9), None);
        assert_eq!(timed.take_expired(25), Some(200));
        assert_eq!(timed.take(3), Some(300));
        assert_eq!((timed.take_expired(25), timed.take(3), timed.contains(1)), (None, None, true));
        timed.check().unwrap();
        assert_eq!((timed.take_first(), timed.len(), timed.next_ns()), (Some(100), 0, None));
    }
}
