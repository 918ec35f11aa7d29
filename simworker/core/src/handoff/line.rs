//! A queue that anybody may leave at any time.

use std::collections::{BTreeMap, HashMap};

use crate::request::RequestId;

/// First come, first served; leaving costs no more in a long line than in a short one.
#[derive(Debug)]
pub(crate) struct Line<T> {
    items: BTreeMap<u64, (RequestId, T)>,
    places: HashMap<RequestId, u64>,
    /// The next place among those in sight.
    next_seen: u64,
    /// The next place among the others, which come after them.
    next_unseen: u64,
}

/// Places from here on are out of sight.
const UNSEEN: u64 = 1 << 63;

impl<T> Line<T> {
    pub(crate) fn new() -> Self {
        Self { items: BTreeMap::new(), places: HashMap::new(), next_seen: 0, next_unseen: UNSEEN }
    }

    /// Takes in an item as the last, out of sight until [`Line::receive`].
    pub(crate) fn push(&mut self, id: RequestId, item: T) {
        self.put(self.next_unseen, id, item);
        self.next_unseen += 1;
    }

    /// Takes in an item as the last of those in sight.
    pub(crate) fn push_seen(&mut self, id: RequestId, item: T) {
        self.put(self.next_seen, id, item);
        self.next_seen += 1;
    }

    /// All that are in the line come into sight.
    pub(crate) fn receive(&mut self) {
        for (_, (id, item)) in self.items.split_off(&UNSEEN) {
            self.push_seen(id, item);
        }
        self.next_unseen = UNSEEN;
    }

    fn put(&mut self, place: u64, id: RequestId, item: T) {
        self.items.insert(place, (id, item));
        self.places.insert(id, place);
    }

    /// The first, if it is in sight.
    pub(crate) fn front(&self) -> Option<&T> {
        let (place, (_, item)) = self.items.first_key_value()?;
        (*place < UNSEEN).then_some(item)
    }

    /// Takes out the first, if it is in sight.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.front()?;
        let (_, (id, item)) = self.items.pop_first()?;
        self.places.remove(&id);
        Some(item)
    }

    pub(crate) fn take(&mut self, id: RequestId) -> Option<T> {
        let place = self.places.remove(&id)?;
        self.items.remove(&place).map(|(_, item)| item)
    }

    /// Whether anything is out of sight.
    pub(crate) fn has_unseen(&self) -> bool {
        self.items.last_key_value().is_some_and(|(place, _)| *place >= UNSEEN)
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// All, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.values().map(|(_, item)| item)
    }

    /// Proves that each item has one place.
    pub(crate) fn check(&self) -> Result<(), String> {
        let placed = self.items.iter().filter(|(place, (id, _))| self.places.get(id) == Some(*place)).count();
        if placed == self.items.len() && placed == self.places.len() {
            return Ok(());
        }
        Err(format!("{} places for {} in line", self.places.len(), self.items.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_in_sight_goes_first() {
        let mut line = Line::new();
        line.push(RequestId(1), 'a');
        assert_eq!((line.front().copied(), line.pop(), line.has_unseen()), (None, None, true));
        line.receive();
        line.push(RequestId(2), 'b');
        line.push(RequestId(3), 'c');
        assert_eq!((line.pop(), line.pop(), line.has_unseen()), (Some('a'), None, true));
        assert_eq!((line.take(RequestId(2)), line.take(RequestId(2))), (Some('b'), None));
        line.receive();
        line.check().unwrap();
        assert_eq!((line.front(), line.has_unseen(), line.len()), (Some(&'c'), false, 1));
        assert_eq!((line.pop(), line.is_empty()), (Some('c'), true));
    }

    #[test]
    fn who_comes_in_sight_brings_nobody_else_there() {
        let mut line = Line::new();
        line.push(RequestId(1), 'a');
        line.push_seen(RequestId(2), 'b');
        assert_eq!((line.pop(), line.pop(), line.has_unseen()), (Some('b'), None, true));
        line.push_seen(RequestId(3), 'c');
        line.receive();
        line.push_seen(RequestId(4), 'd');
        line.check().unwrap();
        assert_eq!([line.pop(), line.pop(), line.pop()], [Some('c'), Some('a'), Some('d')]);
    }
}
