//! The symbols of a node: a run on the heap that can give away its beginning, and take it back, without being moved.
//!
//! Prompts that have nothing in common but a short head part soon below it. So most nodes that are split are long and
//! are split near their beginning, and most that are joined again have a short one above them. Neither is to cost a
//! copy of the long one.
//!
//! Trades away: up to [`MOST_SKIPPED_BYTES`] of each run are held and not used.

use std::fmt::Debug;
use std::ops::Deref;

use super::memory::heap;
use super::symbol::Symbol;

/// Most bytes at the beginning of a buffer that may lie idle.
pub(super) const MOST_SKIPPED_BYTES: usize = 64;

/// What a node keeps its symbols in.
pub(super) trait Stretch<S: Symbol>: Debug + Default {
    fn of(run: S::Run<'_>) -> Self;
    fn run(&self) -> S::Run<'_>;
    /// Takes the first `at` symbols out.
    fn split_head(&mut self, at: usize) -> Self;
    /// Keeps the first `len` symbols only.
    fn truncate(&mut self, len: usize);
    /// Puts `head` before it.
    fn prepend(&mut self, head: Self);
    /// Whether [`Self::prepend`] is cheap: both are short, or there is idle room for `head`.
    fn takes_gladly(&self, head: &Self, most: usize) -> bool;
    /// What it holds on the heap.
    fn bytes(&self) -> usize;
}

/// A run of symbols with some idle room before it.
#[derive(Debug)]
pub(super) struct Edge<S> {
    held: Box<[S]>,
    /// Idle symbols at the beginning of `held`.
    skipped: u8,
}

impl<S> Default for Edge<S> {
    fn default() -> Self {
        Self { held: Box::default(), skipped: 0 }
    }
}

impl<S> Deref for Edge<S> {
    type Target = [S];

    fn deref(&self) -> &[S] {
        &self.held[usize::from(self.skipped)..]
    }
}

impl<S: Copy> From<&[S]> for Edge<S> {
    fn from(run: &[S]) -> Self {
        Self { held: run.into(), skipped: 0 }
    }
}

impl<S> Stretch<S> for Edge<S>
where
    S: for<'a> Symbol<Run<'a> = &'a [S]>,
{
    fn of(run: &[S]) -> Self {
        run.into()
    }

    fn run(&self) -> &[S] {
        self
    }

    fn split_head(&mut self, at: usize) -> Self {
        let begin = usize::from(self.skipped) + at;
        if begin * size_of::<S>() <= MOST_SKIPPED_BYTES {
            let head = self[..at].into();
            self.skipped = begin as u8;
            return head;
        }
        if at > self.len() / 2 {
            let tail = self[at..].into();
            let mut head = std::mem::replace(self, tail);
            head.truncate(at);
            return head;
        }
        let head = self[..at].into();
        let mut held = std::mem::take(&mut self.held).into_vec();
        held.drain(..begin);
        *self = Self { held: held.into_boxed_slice(), skipped: 0 };
        head
    }

    fn truncate(&mut self, len: usize) {
        let mut held = std::mem::take(&mut self.held).into_vec();
        held.truncate(usize::from(self.skipped) + len);
        self.held = held.into_boxed_slice();
    }

    fn prepend(&mut self, head: Self) {
        if let Some(skipped) = usize::from(self.skipped).checked_sub(head.len()) {
            self.held[skipped..usize::from(self.skipped)].copy_from_slice(&head);
            self.skipped = skipped as u8;
            return;
        }
        let mut held = head.held.into_vec();
        held.reserve_exact(self.len());
        held.extend_from_slice(self);
        *self = Self { held: held.into_boxed_slice(), skipped: head.skipped };
    }

    fn takes_gladly(&self, head: &Self, most: usize) -> bool {
        head.len() <= usize::from(self.skipped) || size_of_val(&**head) + size_of_val(&**self) <= most
    }

    fn bytes(&self) -> usize {
        heap(size_of_val(&*self.held))
    }
}

/// How much more [`Edge::split_head`] may hold than the whole did: idle room and the rounding of one more allocation.
pub(super) const SPLIT_BYTES: usize = MOST_SKIPPED_BYTES + 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_and_join_gives_the_same_run_within_the_bounds() {
        let run: Vec<u32> = (0..200).collect();
        for first in 0..=run.len() {
            for second in [0, 1, 7, 15, 16, 17, 100, 199] {
                let mut edge = Edge::from(&run[..]);
                let head = edge.split_head(first);
                assert_eq!((&*head, &*edge), (&run[..first], &run[first..]));
                assert!(head.bytes() + edge.bytes() <= heap(800) + SPLIT_BYTES, "cut at {first}");
                if second > edge.len() {
                    continue;
                }
                let middle = edge.split_head(second);
                assert_eq!((&*middle, &*edge), (&run[first..first + second], &run[first + second..]));
                let before = middle.bytes() + edge.bytes();
                edge.prepend(middle);
                assert!(edge.bytes() <= before);
                edge.prepend(head);
                assert_eq!(*edge, run);
                edge.truncate(first);
                assert_eq!(*edge, run[..first]);
            }
        }
    }

    #[test]
    fn a_short_head_comes_and_goes_without_a_copy_of_the_rest() {
        let mut edge = Edge::from(&[7_u8; 1000][..]);
        let place = edge.last().map(std::ptr::from_ref);
        let head = edge.split_head(40);
        edge.prepend(head);
        assert_eq!((edge.len(), edge.last().map(std::ptr::from_ref)), (1000, place));
    }
}
