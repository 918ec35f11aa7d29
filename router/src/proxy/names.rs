//! The names (`rid`) that clients have given to the requests that pairs have.
//!
//! SGLang's scheduler aborts all requests whose names begin with the one that it is told. So a request is called off by its
//! name only while no other one has a name that begins so.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;

/// How many requests under way have each name.
type Counts = Mutex<BTreeMap<String, usize>>;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Names(Arc<Counts>);

/// The names of one request, until it is over: how many of its parts have each.
#[derive(Debug)]
pub(super) struct Named {
    own: BTreeMap<String, usize>,
    counts: Arc<Counts>,
}

impl Names {
    /// A request has these names; none is empty.
    pub(super) fn enter(&self, rids: Vec<String>) -> Named {
        let mut own = BTreeMap::new();
        for rid in rids {
            *own.entry(rid).or_default() += 1;
        }
        if !own.is_empty() {
            let mut counts = self.0.lock();
            for (rid, count) in &own {
                *counts.entry(rid.clone()).or_default() += count;
            }
        }
        Named { own, counts: Arc::clone(&self.0) }
    }
}

impl Named {
    /// Whether the client has given none.
    pub(super) fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// Those by which all of its parts can be called off that can be, and nothing else.
    pub(super) fn callable(&self) -> impl Iterator<Item = &str> {
        let mut last: Option<&str> = None;
        let names = self.own.keys().map(String::as_str);
        names.filter(move |rid| {
            // One that begins with another comes behind it, and is meant by it.
            if last.is_some_and(|last| rid.starts_with(last)) || !self.is_alone(rid) {
                return false;
            }
            last = Some(rid);
            true
        })
    }

    /// Whether no other request would be meant by this name of its.
    fn is_alone(&self, rid: &str) -> bool {
        let from = (Bound::Included(rid), Bound::Unbounded);
        let counts = self.counts.lock();
        let mut meant = counts.range::<str, _>(from).take_while(|(other, _)| other.starts_with(rid));
        // Both are in order, and what is its own is among all.
        let mut own = self.own.range::<str, _>(from);
        meant.all(|all| own.next() == Some(all))
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if self.own.is_empty() {
            return;
        }
        let mut counts = self.counts.lock();
        for (rid, own) in std::mem::take(&mut self.own) {
            if let Entry::Occupied(mut entry) = counts.entry(rid) {
                *entry.get_mut() -= own;
                if *entry.get() == 0 {
                    entry.remove();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_alone_while_no_other_request_has_one_that_begins_so() {
        let names = Names::default();
        let enter = |rids: &[&str]| names.enter(rids.iter().map(|rid| (*rid).to_owned()).collect());
        let one = enter(&["1"]);
        assert!(one.is_alone("1"));
        let ten = enter(&["10", "2"]);
        assert!(!one.is_alone("1") && ten.is_alone("10"));
        drop(ten);
        assert!(one.is_alone("1"));
        let twin = enter(&["1"]);
        assert!(!one.is_alone("1") && !twin.is_alone("1"));
        drop(twin);
        let batch = enter(&["a", "ab", "ab"]);
        assert!(batch.is_alone("a") && batch.is_alone("ab"), "they are all its own");
        assert_eq!(batch.callable().collect::<Vec<_>>(), ["a"], "the engine takes it for the others as well");
        let other = enter(&["aa"]);
        assert_eq!(batch.callable().collect::<Vec<_>>(), ["ab"]);
        drop(other);
        drop((one, batch));
        assert!(names.0.lock().is_empty());
    }
}
