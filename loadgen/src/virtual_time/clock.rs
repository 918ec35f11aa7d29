//! The event heap: what happens next, and in which order when two things happen at once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events of type `E` by time; those of one moment come out in the order they were put in.
///
/// Background events (polls, ticks) put their successors on the heap themselves and so never run out. They do not
/// keep the clock going: it ends when only they are left.
#[derive(Debug)]
pub(super) struct Clock<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    pushed: u64,
    foreground: u64,
    now_ns: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at_ns: u64,
    order: u64,
    background: bool,
    event: E,
}

impl<E> Clock<E> {
    pub(super) fn new() -> Self {
        Self { heap: BinaryHeap::new(), pushed: 0, foreground: 0, now_ns: 0 }
    }

    /// Puts `event` at `at_ns`, or now if that is past.
    pub(super) fn at(&mut self, at_ns: u64, event: E) {
        self.foreground += 1;
        self.put(at_ns, event, false);
    }

    /// As [`Clock::at`], for an event that does not keep the clock going.
    pub(super) fn in_background(&mut self, at_ns: u64, event: E) {
        self.put(at_ns, event, true);
    }

    fn put(&mut self, at_ns: u64, event: E, background: bool) {
        let entry = Entry { at_ns: at_ns.max(self.now_ns), order: self.pushed, background, event };
        self.pushed += 1;
        self.heap.push(Reverse(entry));
    }

    /// When the first event happens that is one of some.
    pub(super) fn first(&self, is_one: impl Fn(&E) -> bool) -> Option<u64> {
        let those = self.heap.iter().filter(|Reverse(entry)| is_one(&entry.event));
        those.map(|Reverse(entry)| entry.at_ns).min()
    }

    /// Lets some events happen later.
    pub(super) fn postpone(&mut self, by_ns: u64, is_one: impl Fn(&E) -> bool) {
        let later = |Reverse(entry): Reverse<Entry<E>>| {
            let by_ns = if is_one(&entry.event) { by_ns } else { 0 };
            Reverse(Entry { at_ns: entry.at_ns + by_ns, ..entry })
        };
        self.heap = std::mem::take(&mut self.heap).into_iter().map(later).collect();
    }

    /// The next event and its time, which becomes now.
    pub(super) fn next(&mut self) -> Option<(u64, E)> {
        if self.foreground == 0 {
            return None;
        }
        let Reverse(entry) = self.heap.pop()?;
        self.foreground -= u64::from(!entry.background);
        self.now_ns = entry.at_ns;
        Some((entry.at_ns, entry.event))
    }
}

// === ordering: by time, then by the order of putting ===

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at_ns, self.order) == (other.at_ns, other.order)
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.order).cmp(&(other.at_ns, other.order))
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;

    #[test]
    fn events_come_by_time_and_then_by_order_of_putting() {
        let mut clock = Clock::new();
        for (at_ns, name) in [(5, 'c'), (1, 'a'), (5, 'd'), (1, 'b')] {
            clock.at(at_ns, name);
        }
        let order: String = std::iter::from_fn(|| clock.next()).map(|(_, name)| name).collect();
        assert_eq!(order, "abcd");
        clock.at(2, 'e');
        assert_eq!(clock.next(), Some((5, 'e')), "what is past happens now");
    }

    #[test]
    fn events_can_be_postponed() {
        let mut clock = Clock::new();
        for (at_ns, name) in [(1, 'a'), (2, 'b'), (9, 'c')] {
            clock.at(at_ns, name);
        }
        assert_eq!((clock.first(|name| *name != 'a'), clock.first(|name| *name == 'z')), (Some(2), None));
        clock.postpone(7, |name| *name == 'b');
        let order: Vec<(u64, char)> = std::iter::from_fn(|| clock.next()).collect();
        assert_eq!(order, [(1, 'a'), (9, 'b'), (9, 'c')], "it keeps its place among those of one moment");
    }

    #[test]
    fn background_events_happen_but_do_not_keep_the_clock_going() {
        let mut clock = Clock::new();
        clock.in_background(1, 'p');
        clock.at(2, 'r');
        clock.in_background(3, 'q');
        assert_eq!(clock.next(), Some((1, 'p')));
        assert_eq!(clock.next(), Some((2, 'r')));
        assert_eq!(clock.next(), None);
    }
}
