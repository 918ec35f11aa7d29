//! The mock tokenizer, used alike by workers, workload generator and virtual runs.
//!
//! A token is a piece of text of at most four UTF-8 bytes, cut at character boundaries, so about four ASCII
//! characters or one CJK character. A white-space character always begins a new piece; that alone makes
//! `encode(a + b) == encode(a) + encode(b)` whenever `b` starts with white space, so a reply that is fed back
//! in the next turn continues the cached sequence.
//!
//! The id *is* the piece: its bytes, big-endian, in a `u32`. There is no vocabulary to load, ids cannot
//! collide, and [`decode`] inverts [`encode`] exactly. For that a NUL at the beginning of a piece is all of it, as
//! leading zero bytes would not show in the id.

use std::ops::Range;

/// A token id: the bytes of its piece of text, big-endian.
pub type Token = u32;

/// Most bytes that a piece may have.
const PIECE_BYTES: usize = 4;

/// The 64 characters that generated words are made of; none needs escaping in JSON.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What spreads the places in a block over all bits.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// A token without its last letter: a blank and two letters, by twelve bits of which the lower six tell the first one.
static BEGINNINGS: [Token; 4096] = {
    let mut beginnings = [0; 4096];
    let mut bits = 0;
    while bits < beginnings.len() {
        beginnings[bits] = Token::from_be_bytes([b' ', LETTERS[bits & 63], LETTERS[bits >> 6], 0]);
        bits += 1;
    }
    beginnings
};

/// The tokens of `text`.
#[must_use]
pub fn encode(text: &str) -> Vec<Token> {
    let mut tokens = Vec::with_capacity(text.len() / 3);
    tokens.extend(Pieces { rest: text }.map(pack));
    tokens
}

/// How many tokens `text` has.
#[must_use]
pub fn count(text: &str) -> usize {
    Pieces { rest: text }.count()
}

/// The text of `tokens`. Ids that no piece has (bytes that are not UTF-8) come out as the replacement character.
#[must_use]
pub fn decode(tokens: &[Token]) -> String {
    let mut bytes = Vec::with_capacity(tokens.len() * PIECE_BYTES);
    for token in tokens {
        let piece = token.to_be_bytes();
        let unused = (token.leading_zeros() / 8).min(3) as usize;
        bytes.extend_from_slice(&piece[unused..]);
    }
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

/// Token `index` of the generated block of text named `block`: a blank and three letters, so exactly four
/// characters and one token. Blocks with different names share a token at a given place with probability 2⁻¹⁸.
#[must_use]
pub fn block_token(block: u64, index: u32) -> Token {
    let draw = mix(block ^ u64::from(index).wrapping_mul(SPREAD));
    let letter = |shift: u32| LETTERS[(draw >> shift & 63) as usize];
    u32::from_be_bytes([b' ', letter(40), letter(46), letter(52)])
}

/// Appends the tokens of a generated block that stand at `places`: the same as [`block_token`] gives one by one, in half the
/// time.
pub fn extend_with_block(tokens: &mut Vec<Token>, block: u64, places: Range<u32>) {
    tokens.extend(places.map(|index| {
        let draw = mix_without_its_end(block ^ u64::from(index).wrapping_mul(SPREAD));
        BEGINNINGS[(draw >> 40 & 0xFFF) as usize] | u32::from(LETTERS[(draw >> 52 & 63) as usize])
    }));
}

/// Of how many tokens at its end a prompt's reply is a function, beside its length: they tell prompts apart as well as the
/// whole does, and the cost does not grow.
pub const REPLY_DEPENDS_ON: usize = 256;

/// The name of the block of text that an engine answers `prompt` with: as with greedy decoding, the same prompt
/// has the same reply.
#[must_use]
pub fn reply_block(prompt: &[Token]) -> u64 {
    reply_block_after(prompt.len(), &prompt[prompt.len().saturating_sub(REPLY_DEPENDS_ON)..])
}

/// As [`reply_block`], of a prompt of `len` tokens that ends with `tail`: its last [`REPLY_DEPENDS_ON`], or all if there are
/// fewer.
#[must_use]
pub fn reply_block_after(len: usize, tail: &[Token]) -> u64 {
    tail.iter().fold(mix(len as u64), |hash, token| mix(hash ^ u64::from(*token)))
}

/// A 64-bit mixer with full avalanche (the finaliser of SplitMix64).
#[must_use]
pub fn mix(value: u64) -> u64 {
    let z = mix_without_its_end(value);
    z ^ (z >> 31)
}

/// [`mix`] but for its last step, which changes only the lower 33 bits: tokens are made of higher ones.
fn mix_without_its_end(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z
}

fn pack(piece: &str) -> Token {
    piece.bytes().fold(0, |id, byte| id << 8 | u32::from(byte))
}

/// The pieces of a text, in order.
struct Pieces<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let mut chars = self.rest.char_indices();
        let (_, first) = chars.next()?;
        let mut end = first.len_utf8();
        for (at, c) in chars {
            if first == '\0' || c.is_whitespace() || at + c.len_utf8() > PIECE_BYTES {
                break;
            }
            end = at + c.len_utf8();
        }
        let (piece, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pieces_have_four_ascii_characters_or_one_cjk_character() {
        assert_eq!(count("abcdefgh"), 2);
        assert_eq!(count("日本語"), 3);
        assert_eq!(count("a b"), 2, "a blank begins a piece and does not end one");
        assert_eq!(count(""), 0);
    }

    #[test]
    fn nul_is_kept_wherever_it_stands() {
        for text in ["\0a", "\0", "a\0", "\0\0b", "abcd\0e", "a\0b c"] {
            assert_eq!(decode(&encode(text)), text, "{text:?}");
        }
    }

    #[test]
    fn block_tokens_are_one_piece_each() {
        let tokens: Vec<Token> = (0..500).map(|i| block_token(7, i)).collect();
        let text = decode(&tokens);
        assert_eq!(text.len(), 2000);
        assert_eq!(encode(&text), tokens);
        assert_ne!(block_token(7, 0), block_token(8, 0));
    }

    #[test]
    fn a_block_is_its_tokens_one_by_one() {
        for (block, places) in [(7, 0..500), (u64::MAX, 3..4), (1 << 40, 511..1_024), (0, 5..5)] {
            let mut tokens = vec![1];
            extend_with_block(&mut tokens, block, places.clone());
            let one_by_one: Vec<Token> = places.map(|i| block_token(block, i)).collect();
            assert_eq!(tokens[1..], one_by_one);
        }
    }

    #[test]
    fn the_reply_depends_on_the_prompt() {
        assert_eq!(reply_block(&[1, 2, 3]), reply_block(&[1, 2, 3]));
        assert_ne!(reply_block(&[1, 2, 3]), reply_block(&[1, 2, 4]));
        assert_ne!(reply_block(&[1, 2, 3]), reply_block(&[2, 3]));
    }

    proptest! {
        #[test]
        fn decode_inverts_encode(text in "(\u{0}|[ab]|\u{e9}|\u{20}|\u{1F600})*|(?s).*") {
            prop_assert_eq!(decode(&encode(&text)), text);
        }

        #[test]
        fn a_continuation_that_starts_with_white_space_adds_up(a in "\\PC*", b in "[ \n\t]\\PC*") {
            let joined = encode(&format!("{a}{b}"));
            let mut parts = encode(&a);
            parts.extend(encode(&b));
            prop_assert_eq!(joined, parts);
        }
    }
}
