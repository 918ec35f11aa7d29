//! The alphabets of a prompt: bytes of text, token ids, and token ids that are known by where they come from.

use std::fmt::Debug;

use super::edge::{Edge, Stretch};
use super::forest::Forest;
use super::generated::GeneratedToken;
use super::holdings::Leaf;
use super::node::NodeId;
use crate::prompt::{CHARS_PER_TOKEN, starts_char, text_chars};

/// Bytes whose characters are counted at once where a character is looked for.
const COUNTED_BYTES: usize = 255;

/// Symbols that are compared at once where two runs part.
const COMPARED_SYMBOLS: usize = 32;

/// A forest per alphabet.
#[derive(Debug, Default)]
pub(super) struct Forests {
    pub(super) text: Forest<u8>,
    pub(super) tokens: Forest<u32>,
    pub(super) generated: Forest<GeneratedToken>,
}

impl Forests {
    /// Nodes of all of them.
    pub(super) fn node_count(&self) -> usize {
        self.text.node_count() + self.tokens.node_count() + self.generated.node_count()
    }

    /// Heap of all of them.
    pub(super) fn bytes(&self) -> usize {
        self.text.bytes() + self.tokens.bytes() + self.generated.bytes()
    }

    /// At most this many bytes more for a node of any alphabet in use.
    pub(super) fn growth(&self) -> usize {
        let of_generated = if self.generated.roots.is_empty() { 0 } else { self.generated.arena.growth(1) };
        self.text.arena.growth(1).max(self.tokens.arena.growth(1)).max(of_generated)
    }
}

/// A run of symbols of a prompt or of an edge, borrowed.
pub(super) trait Run: Copy + Debug {
    type Symbol;
    fn len(self) -> usize;
    fn is_empty(self) -> bool {
        self.len() == 0
    }
    fn first(self) -> Option<Self::Symbol>;
    /// All but the first `at` symbols, of which it has at least so many.
    fn after(self, at: usize) -> Self;
    /// The first `at` symbols, of which it has at least so many.
    fn until(self, at: usize) -> Self;
}

impl<S: Copy + Debug> Run for &[S] {
    type Symbol = S;

    fn len(self) -> usize {
        <[S]>::len(self)
    }

    fn first(self) -> Option<S> {
        <[S]>::first(self).copied()
    }

    fn after(self, at: usize) -> Self {
        &self[at..]
    }

    fn until(self, at: usize) -> Self {
        &self[..at]
    }
}

/// A symbol of an edge, and how runs of it are measured in characters.
pub(super) trait Symbol: Copy + Ord + Debug {
    /// Symbols as prompts and edges hand them out.
    type Run<'a>: Run<Symbol = Self>;
    /// Symbols as a node keeps them.
    type Edge: Stretch<Self>;
    /// How many symbols `a` and `b` have in common at their beginnings.
    fn common_prefix(a: Self::Run<'_>, b: Self::Run<'_>) -> usize;
    /// Characters in `run`; additive over any cut.
    fn chars(run: Self::Run<'_>) -> u64;
    /// Length of the longest head of `run` with at most `chars` characters.
    fn head(run: Self::Run<'_>, chars: u64) -> usize;
    /// Where the shortest tail of `run` with at least `chars` characters begins (0 if the whole has fewer).
    /// `all` is the number of characters in `run`.
    fn tail(run: Self::Run<'_>, all: u64, chars: u64) -> usize;
    /// Characters in the first `at` symbols of `run`, of which the whole has `all`.
    fn chars_before(run: Self::Run<'_>, all: u64, at: usize) -> u64;
    fn forest(forests: &Forests) -> &Forest<Self>;
    fn forest_mut(forests: &mut Forests) -> &mut Forest<Self>;
    /// A reference to a node of this alphabet's forest.
    fn leaf(node: NodeId) -> Leaf;
}

impl Symbol for u8 {
    type Run<'a> = &'a [u8];
    type Edge = Edge<u8>;

    fn common_prefix(a: &[u8], b: &[u8]) -> usize {
        common_prefix(a, b)
    }

    fn chars(run: &[u8]) -> u64 {
        text_chars(run)
    }

    fn head(run: &[u8], chars: u64) -> usize {
        if run.len() as u64 <= chars {
            return run.len();
        }
        let (mut from, mut left) = (0, chars);
        for block in run.chunks(COUNTED_BYTES) {
            match left.checked_sub(text_chars(block)) {
                Some(rest) => left = rest,
                None => break,
            }
            from += block.len();
        }
        let mut starts = (from..run.len()).filter(|&at| starts_char(run[at]));
        // The first character too many; bytes that continue the last one that fits stay with it.
        starts.nth(left as usize).unwrap_or(run.len())
    }

    fn tail(run: &[u8], all: u64, chars: u64) -> usize {
        if is_ascii(run, all) {
            return run.len().saturating_sub(usize::try_from(chars).unwrap_or(usize::MAX));
        }
        let Some(mut last) = chars.checked_sub(1) else { return run.len() };
        let mut to = run.len();
        for block in run.rchunks(COUNTED_BYTES) {
            match last.checked_sub(text_chars(block)) {
                Some(rest) => last = rest,
                None => break,
            }
            to -= block.len();
        }
        let mut starts = (0..to).rev().filter(|&at| starts_char(run[at]));
        starts.nth(last as usize).unwrap_or(0)
    }

    fn chars_before(run: &[u8], all: u64, at: usize) -> u64 {
        if is_ascii(run, all) { at as u64 } else { text_chars(&run[..at]) }
    }

    fn forest(forests: &Forests) -> &Forest<u8> {
        &forests.text
    }

    fn forest_mut(forests: &mut Forests) -> &mut Forest<u8> {
        &mut forests.text
    }

    fn leaf(node: NodeId) -> Leaf {
        Leaf::Text(node)
    }
}

impl Symbol for u32 {
    type Run<'a> = &'a [u32];
    type Edge = Edge<u32>;

    fn common_prefix(a: &[u32], b: &[u32]) -> usize {
        common_prefix(a, b)
    }

    fn chars(run: &[u32]) -> u64 {
        chars_of(run.len())
    }

    fn head(run: &[u32], chars: u64) -> usize {
        head_of(run.len(), chars)
    }

    fn tail(run: &[u32], _all: u64, chars: u64) -> usize {
        tail_of(run.len(), chars)
    }

    fn chars_before(_run: &[u32], _all: u64, at: usize) -> u64 {
        chars_of(at)
    }

    fn forest(forests: &Forests) -> &Forest<u32> {
        &forests.tokens
    }

    fn forest_mut(forests: &mut Forests) -> &mut Forest<u32> {
        &mut forests.tokens
    }

    fn leaf(node: NodeId) -> Leaf {
        Leaf::Tokens(node)
    }
}

/// Characters that so many tokens stand for.
pub(super) fn chars_of(tokens: usize) -> u64 {
    tokens as u64 * CHARS_PER_TOKEN
}

/// [`Symbol::head`] of so many tokens.
pub(super) fn head_of(tokens: usize, chars: u64) -> usize {
    usize::try_from(chars / CHARS_PER_TOKEN).unwrap_or(usize::MAX).min(tokens)
}

/// [`Symbol::tail`] of so many tokens.
pub(super) fn tail_of(tokens: usize, chars: u64) -> usize {
    tokens.saturating_sub(usize::try_from(chars.div_ceil(CHARS_PER_TOKEN)).unwrap_or(usize::MAX))
}

/// Whether each byte of text with `all` characters is one: then positions need no counting.
fn is_ascii(text: &[u8], all: u64) -> bool {
    text.len() as u64 == all
}

/// How many symbols `a` and `b` have in common at their beginnings.
fn common_prefix<S: Copy + Eq>(a: &[S], b: &[S]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    // The usual case on a path is that the whole edge agrees: one memcmp.
    if a == b {
        return len;
    }
    let blocks = a
        .chunks_exact(COMPARED_SYMBOLS)
        .zip(b.chunks_exact(COMPARED_SYMBOLS))
        .take_while(|(x, y)| x == y)
        .count();
    let start = blocks * COMPARED_SYMBOLS;
    start + a[start..].iter().zip(&b[start..]).take_while(|(x, y)| x == y).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_prefix_finds_every_position() {
        let a: Vec<u8> = (0..100).collect();
        for at in 0..100 {
            let mut b = a.clone();
            b[at] = 255;
            assert_eq!(common_prefix(&a, &b), at);
            assert_eq!(common_prefix(&a, &a[..at]), at);
        }
    }

    #[test]
    fn heads_and_tails_keep_characters_whole() {
        let text = "aé日".as_bytes(); // 1 + 2 + 3 bytes
        assert_eq!([0, 1, 2, 3, 9].map(|n| u8::head(text, n)), [0, 1, 3, 6, 6]);
        assert_eq!([0, 1, 2, 3, 9].map(|n| u8::tail(text, 3, n)), [6, 3, 1, 0, 0]);
        assert_eq!([0, 3, 4, 9, 99].map(|n| u32::head(&[1, 2, 3], n)), [0, 0, 1, 2, 3]);
        assert_eq!([0, 1, 4, 5, 99].map(|n| u32::tail(&[1, 2, 3], 12, n)), [3, 2, 2, 1, 0]);
    }

    #[test]
    fn positions_in_long_text_are_those_of_a_walk_byte_by_byte() {
        let ascii = "x".repeat(700);
        let mixed: String = (0..900).map(|n| ["a", "é", "日"][n * n % 7 % 3]).collect();
        // A cut through a character, at both ends.
        for text in [ascii.as_bytes(), mixed.as_bytes(), &"日".repeat(300).as_bytes()[1..899]] {
            let starts: Vec<usize> = (0..text.len()).filter(|&at| starts_char(text[at])).collect();
            let all = u8::chars(text);
            assert_eq!(all, starts.len() as u64);
            for n in 0..starts.len() + 2 {
                let head = starts.get(n).copied().unwrap_or(text.len());
                assert_eq!(u8::head(text, n as u64), if n >= text.len() { text.len() } else { head }, "{n}");
                let tail = match n {
                    0 => text.len(),
                    n => starts.len().checked_sub(n).map_or(0, |nth| starts[nth]),
                };
                assert_eq!(u8::tail(text, all, n as u64), tail, "{n}");
                assert_eq!(u8::chars_before(text, all, head), u8::chars(&text[..head]), "{n}");
            }
        }
    }
}
