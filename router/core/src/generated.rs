//! Prompts of generated text, known by where each token comes from.
//!
//! A virtual run's prompts are made of named blocks. Which tokens these are is a function of the name, so nobody needs to write
//! them down: what is compared are names and places, and only where these differ the tokens themselves, one by one until two
//! differ. The results are those of the ids, accidental matches included, at a cost that does not depend on how long blocks are.

use protocol::tokenizer::{Token, block_token};

/// A stretch of a block of generated text: token `i` is `block_token(block, start + i)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The block's name.
    pub block: u64,
    /// Where in it the stretch begins.
    pub start: u32,
    /// How many tokens it has.
    pub tokens: u32,
}

impl Part {
    /// The part without its first `at` tokens.
    pub(crate) fn after(self, at: u32) -> Self {
        Self { start: self.start + at, tokens: self.tokens - at, ..self }
    }
}

/// Tokens of generated text, borrowed: a part of a list of parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generated<'a> {
    /// The first one has more than `skipped` tokens, unless nothing is left.
    parts: &'a [Part],
    skipped: u32,
    len: usize,
}

impl<'a> Generated<'a> {
    /// All tokens of these parts.
    #[must_use]
    pub fn new(parts: &'a [Part]) -> Self {
        let len = parts.iter().map(|part| part.tokens as usize).sum();
        Self::of(parts, len)
    }

    /// The tokens of these parts, which are `len` in number.
    pub(crate) fn of(parts: &'a [Part], len: usize) -> Self {
        Self { parts, skipped: 0, len }.after(0)
    }

    /// How many tokens.
    #[must_use]
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The parts, cut to what is left.
    pub fn parts(self) -> impl Iterator<Item = Part> + 'a {
        let (mut skipped, mut left) = (self.skipped, self.len);
        self.parts.iter().map_while(move |part| {
            let part = part.after(std::mem::take(&mut skipped));
            let tokens = left.min(part.tokens as usize);
            left -= tokens;
            (tokens > 0 || left > 0).then_some(Part { tokens: tokens as u32, ..part })
        })
    }

    /// The tokens.
    pub fn tokens(self) -> impl Iterator<Item = Token> + 'a {
        self.parts().flat_map(|part| (0..part.tokens).map(move |i| block_token(part.block, part.start + i)))
    }

    /// All but the first `at` tokens.
    pub(crate) fn after(self, at: usize) -> Self {
        debug_assert!(at <= self.len, "{at} of {}", self.len);
        let (mut parts, mut skip) = (self.parts, self.skipped as usize + at);
        while let [first, rest @ ..] = parts
            && skip >= first.tokens as usize
        {
            skip -= first.tokens as usize;
            parts = rest;
        }
        Self { parts, skipped: skip as u32, len: self.len - at }
    }

    /// The first `at` tokens.
    pub(crate) fn until(self, at: usize) -> Self {
        debug_assert!(at <= self.len, "{at} of {}", self.len);
        Self { len: at, ..self }
    }

    /// The first token.
    pub(crate) fn first(self) -> Option<Token> {
        let part = self.parts.first().filter(|_| self.len > 0)?;
        Some(block_token(part.block, part.start + self.skipped))
    }

    /// How many tokens both have in common at their beginnings.
    pub(crate) fn common_prefix(self, other: Generated<'_>) -> usize {
        let (mut ours, mut theirs) = (self.parts(), other.parts());
        let (mut one, mut two) = (ours.next(), theirs.next());
        let mut common = 0;
        while let (Some(a), Some(b)) = (one, two) {
            let both = a.tokens.min(b.tokens);
            let same = common_tokens(a, b, both);
            common += same as usize;
            if same < both {
                break;
            }
            let rest = |part: Part, of: &mut dyn Iterator<Item = Part>| {
                if part.tokens > both { Some(part.after(both)) } else { of.next() }
            };
            (one, two) = (rest(a, &mut ours), rest(b, &mut theirs));
        }
        common
    }
}

/// How many of the first `most` tokens of two parts are the same.
fn common_tokens(a: Part, b: Part, most: u32) -> u32 {
    if (a.block, a.start) == (b.block, b.start) {
        return most;
    }
    let token = |part: Part, i: u32| block_token(part.block, part.start + i);
    (0..most).take_while(|i| token(a, *i) == token(b, *i)).count() as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts() -> impl Strategy<Value = Vec<Part>> {
        let part =
            (0..3u64, 0..4u32, 0..6u32).prop_map(|(block, start, tokens)| Part { block, start, tokens });
        prop::collection::vec(part, 0..5)
    }

    fn ids(run: Generated<'_>) -> Vec<Token> {
        run.tokens().collect()
    }

    proptest! {
        #[test]
        fn a_run_is_its_tokens(one in parts(), two in parts(), cut: [prop::sample::Index; 2]) {
            let whole = Generated::new(&one);
            let all = ids(whole);
            prop_assert_eq!((whole.len(), whole.is_empty()), (all.len(), all.is_empty()));
            let end = cut[0].index(all.len() + 1);
            let begin = cut[1].index(end + 1);
            let run = whole.until(end).after(begin);
            let expected = &all[begin..end];
            prop_assert_eq!(&ids(run)[..], expected);
            prop_assert_eq!((run.len(), run.first()), (expected.len(), expected.first().copied()));
            prop_assert_eq!(ids(Generated::of(&run.parts().collect::<Vec<_>>(), run.len())), expected);
            for other in [Generated::new(&two), whole] {
                let common = expected.iter().zip(ids(other)).take_while(|(a, b)| **a == *b).count();
                prop_assert_eq!((run.common_prefix(other), other.common_prefix(run)), (common, common));
            }
        }
    }
}
