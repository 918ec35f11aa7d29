//! LRU caches of several sizes at once.
//!
//! What a small LRU cache holds, a larger one holds too: the cache of size C is the first C entries of one list, ordered by
//! last use. So there is one list, cut into segments at the sizes, and an entry knows its segment. When an entry comes to
//! the front, the last entry of every segment before its own moves over into the next one; that is one step per size and
//! touch, whatever the length of the list.

/// No entry.
const NONE: u32 = u32::MAX;

/// The list.
#[derive(Debug)]
pub(super) struct LruStack {
    /// The sizes, ascending.
    sizes: Vec<u32>,
    /// The last entry within each size, once there are so many.
    ends: Vec<u32>,
    entries: Vec<Entry>,
    head: u32,
    tail: u32,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    newer: u32,
    older: u32,
    segment: u32,
}

impl LruStack {
    /// Empty caches of `sizes`, which ascend.
    pub(super) fn new(sizes: Vec<u32>) -> Self {
        debug_assert!(sizes.is_sorted() && sizes.first().is_none_or(|size| *size > 0));
        Self { ends: vec![NONE; sizes.len()], sizes, entries: Vec::new(), head: NONE, tail: NONE }
    }

    /// The first of the sizes, by its place, whose cache holds `entry`; their number if none does.
    pub(super) fn segment(&self, entry: u32) -> usize {
        self.entries[entry as usize].segment as usize
    }

    /// Uses something for the first time; returns its entry.
    pub(super) fn insert(&mut self) -> u32 {
        let new = u32::try_from(self.entries.len()).unwrap_or(NONE);
        assert!(new != NONE, "a trace in memory has fewer than 2^32 distinct blocks");
        self.entries.push(Entry { newer: NONE, older: NONE, segment: 0 });
        self.shift(self.sizes.len(), new);
        self.push_front(new);
        for (end, size) in self.ends.iter_mut().zip(&self.sizes) {
            if self.entries.len() == *size as usize {
                *end = self.tail;
            }
        }
        new
    }

    /// Uses `entry` again.
    pub(super) fn touch(&mut self, entry: u32) {
        if entry == self.head {
            return;
        }
        let segment = self.segment(entry);
        self.shift(segment, entry);
        if self.ends.get(segment) == Some(&entry) {
            self.ends[segment] = self.entries[entry as usize].newer;
        }
        self.unlink(entry);
        self.push_front(entry);
        self.entries[entry as usize].segment = 0;
    }

    /// Moves the ends of the first `segments` by one, because `front` comes before them all.
    fn shift(&mut self, segments: usize, front: u32) {
        for (end, next) in self.ends[..segments].iter_mut().zip(1..) {
            if *end == NONE {
                // There is room in this size, and so in all that follow.
                break;
            }
            let moved = &mut self.entries[*end as usize];
            moved.segment = next;
            *end = if moved.newer == NONE { front } else { moved.newer };
        }
    }

    fn unlink(&mut self, entry: u32) {
        let Entry { newer, older, .. } = self.entries[entry as usize];
        match newer {
            NONE => self.head = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NONE => self.tail = newer,
            older => self.entries[older as usize].newer = newer,
        }
    }

    fn push_front(&mut self, entry: u32) {
        let head = std::mem::replace(&mut self.head, entry);
        let this = &mut self.entries[entry as usize];
        (this.newer, this.older) = (NONE, head);
        match head {
            NONE => self.tail = entry,
            head => self.entries[head as usize].newer = entry,
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::tokenizer::mix;

    use super::*;

    /// Against a list that is searched: after every use, every entry is where it must be.
    #[test]
    fn every_cache_is_what_a_list_says() {
        for sizes in [vec![1], vec![1, 1, 2], vec![2, 3, 7, 20], vec![5, 40, 1000], vec![]] {
            let mut stack = LruStack::new(sizes.clone());
            let mut list: Vec<u32> = Vec::new();
            for step in 0..4000 {
                let draw = mix(step);
                let used = if list.is_empty() || (draw.is_multiple_of(40) && list.len() < 60) {
                    stack.insert()
                } else {
                    // Mostly what was used lately.
                    let recent = (draw >> 8) as usize % list.len() % (1 + (draw >> 40) as usize % list.len());
                    let entry = list.remove(recent);
                    stack.touch(entry);
                    entry
                };
                list.insert(0, used);
                for (depth, entry) in (1..).zip(&list) {
                    let expected = sizes.iter().position(|size| depth <= *size).unwrap_or(sizes.len());
                    assert_eq!(stack.segment(*entry), expected, "{sizes:?}, step {step}, depth {depth}");
                }
            }
            assert!(list.len() > 25);
        }
    }
}
