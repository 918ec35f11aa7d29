//! The alphabet of generated text: the ids of tokens that nobody writes down.
//!
//! Guarantees: an index answers, evicts and counts its memory as if it held the ids. Memory is charged as [`Edge`] would be
//! for the same history, so bounds in bytes mean the same. What is really used is a small part of it.
//!
//! [`Edge`]: super::edge::Edge

use super::edge::{MOST_SKIPPED_BYTES, Stretch};
use super::forest::Forest;
use super::holdings::Leaf;
use super::memory::heap;
use super::node::NodeId;
use super::symbol::{Forests, Run, Symbol, chars_of, head_of, tail_of};
use crate::generated::{Generated, Part};

/// A token of generated text, by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GeneratedToken(u32);

impl Run for Generated<'_> {
    type Symbol = GeneratedToken;

    fn len(self) -> usize {
        Generated::len(self)
    }

    fn first(self) -> Option<GeneratedToken> {
        Generated::first(self).map(GeneratedToken)
    }

    fn after(self, at: usize) -> Self {
        Generated::after(self, at)
    }

    fn until(self, at: usize) -> Self {
        Generated::until(self, at)
    }
}

impl Symbol for GeneratedToken {
    type Run<'a> = Generated<'a>;
    type Edge = GeneratedEdge;

    fn common_prefix(a: Generated<'_>, b: Generated<'_>) -> usize {
        a.common_prefix(b)
    }

    fn chars(run: Generated<'_>) -> u64 {
        chars_of(run.len())
    }

    fn head(run: Generated<'_>, chars: u64) -> usize {
        head_of(run.len(), chars)
    }

    fn tail(run: Generated<'_>, _all: u64, chars: u64) -> usize {
        tail_of(run.len(), chars)
    }

    fn chars_before(_run: Generated<'_>, _all: u64, at: usize) -> u64 {
        chars_of(at)
    }

    fn forest(forests: &Forests) -> &Forest<Self> {
        &forests.generated
    }

    fn forest_mut(forests: &mut Forests) -> &mut Forest<Self> {
        &mut forests.generated
    }

    fn leaf(node: NodeId) -> Leaf {
        Leaf::Generated(node)
    }
}

/// The parts of a node.
#[derive(Debug, Default)]
pub(super) struct GeneratedEdge {
    parts: Box<[Part]>,
    len: u32,
    /// Symbols that an edge of ids would hold idle at its beginning.
    skipped: u8,
}

impl GeneratedEdge {
    /// A copy of a run, for which just so much is allocated.
    fn copy(run: Generated<'_>) -> Self {
        Self { parts: run.parts().collect(), len: run.len() as u32, skipped: 0 }
    }

    fn held_bytes(symbols: usize) -> usize {
        symbols * size_of::<GeneratedToken>()
    }
}

// Each way out follows the one of `Edge`, which says why it is taken.
impl Stretch<GeneratedToken> for GeneratedEdge {
    fn of(run: Generated<'_>) -> Self {
        Self::copy(run)
    }

    fn run(&self) -> Generated<'_> {
        Generated::of(&self.parts, self.len as usize)
    }

    fn split_head(&mut self, at: usize) -> Self {
        let (head, tail) = (self.run().until(at), self.run().after(at));
        let begin = usize::from(self.skipped) + at;
        let (mut head, mut tail) = (Self::copy(head), Self::copy(tail));
        if Self::held_bytes(begin) <= MOST_SKIPPED_BYTES {
            tail.skipped = begin as u8;
        } else if at > self.len as usize / 2 {
            head.skipped = self.skipped;
        }
        *self = tail;
        head
    }

    fn truncate(&mut self, len: usize) {
        let skipped = self.skipped;
        *self = Self { skipped, ..Self::copy(self.run().until(len)) };
    }

    fn prepend(&mut self, head: Self) {
        let skipped = usize::from(self.skipped).checked_sub(head.len as usize);
        let skipped = skipped.map_or(head.skipped, |left| left as u8);
        let parts = join(&head.parts, &self.parts);
        *self = Self { parts, len: head.len + self.len, skipped };
    }

    fn takes_gladly(&self, head: &Self, most: usize) -> bool {
        head.len <= u32::from(self.skipped) || Self::held_bytes((head.len + self.len) as usize) <= most
    }

    fn bytes(&self) -> usize {
        heap(Self::held_bytes(usize::from(self.skipped) + self.len as usize))
    }
}

/// The parts of both; the last of the one and the first of the other become one if they belong together.
fn join(head: &[Part], tail: &[Part]) -> Box<[Part]> {
    if let ([before @ .., last], [first, rest @ ..]) = (head, tail)
        && (last.block, last.start + last.tokens) == (first.block, first.start)
    {
        let joined = Part { tokens: last.tokens + first.tokens, ..*last };
        return before.iter().chain([&joined]).chain(rest).copied().collect();
    }
    [head, tail].concat().into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::edge::Edge;
    use super::*;

    fn ids(run: Generated<'_>) -> Vec<u32> {
        run.tokens().collect()
    }

    proptest! {
        #[test]
        fn an_edge_holds_and_costs_what_one_of_ids_does(
            lengths in prop::collection::vec(1..60u32, 1..6),
            cuts: [prop::sample::Index; 4],
        ) {
            let parts: Vec<Part> =
                (0..).zip(&lengths).map(|(block, tokens)| Part { block, start: 3, tokens: *tokens }).collect();
            let whole = Generated::new(&parts);
            let (mut one, mut two) = (GeneratedEdge::of(whole), Edge::from(&ids(whole)[..]));
            let mut heads = Vec::new();
            let same = |one: &GeneratedEdge, two: &Edge<u32>| {
                prop_assert_eq!((&ids(one.run())[..], one.bytes()), (&two[..], two.bytes()));
                Ok(())
            };
            for cut in cuts {
                let at = cut.index(two.len() + 1);
                let head = (one.split_head(at), two.split_head(at));
                same(&head.0, &head.1)?;
                same(&one, &two)?;
                heads.push(head);
            }
            for (head, head_of_ids) in heads.into_iter().rev() {
                for most in [0, 64, 300, 1 << 20] {
                    prop_assert_eq!(one.takes_gladly(&head, most), two.takes_gladly(&head_of_ids, most));
                }
                one.prepend(head);
                two.prepend(head_of_ids);
                same(&one, &two)?;
            }
            let len = cuts[0].index(two.len() + 1);
            one.truncate(len);
            two.truncate(len);
            same(&one, &two)?;
        }
    }
}
