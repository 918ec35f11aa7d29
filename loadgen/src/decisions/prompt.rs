//! Prompts that stand in for recorded ones: as long, and equal from their beginnings on to where these were, up to a piece.

use protocol::tokenizer::mix;
use router::record::line::{Kind, Look, Pieces};
use router_core::prompt::{CHARS_PER_TOKEN, INDEXED_BYTES, PromptView, text_chars};

/// See the module's description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Prompt {
    Text(Vec<u8>),
    Ids(Vec<u32>),
    None,
}

/// Longest prompt that is believed, in bytes or ids.
const LONGEST: u64 = 1 << 28;

impl Prompt {
    /// That of a look.
    pub(super) fn of(look: &Look, pieces: Pieces) -> Self {
        let size = look.size.min(LONGEST);
        match look.kind {
            Kind::None => Self::None,
            Kind::Ids => Self::Ids(ids(look, size, pieces)),
            Kind::Text => Self::Text(text(look, size, pieces)),
        }
    }

    pub(super) fn view(&self) -> PromptView<'_> {
        match self {
            Self::Text(text) => PromptView::Text(text),
            Self::Ids(ids) => PromptView::Tokens(ids),
            Self::None => PromptView::Unreadable,
        }
    }
}

/// What each piece is made from: all tags so far.
pub(super) fn chain(look: &Look) -> impl Iterator<Item = u64> {
    let tags = look.tags.as_bytes().chunks(4).map(hex);
    tags.scan(0, |state, tag| {
        *state = mix(*state ^ tag);
        Some(*state)
    })
}

fn hex(digits: &[u8]) -> u64 {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).unwrap_or(0);
    digits.iter().fold(0, |number, byte| number << 4 | u64::from(digit(byte)))
}

fn text(look: &Look, size: u64, pieces: Pieces) -> Vec<u8> {
    let mut text = Vec::with_capacity(size as usize);
    let mut wide = look.wide.iter().flat_map(|wide| wide.as_bytes().chunks(2).map(hex));
    let lengths = pieces.lengths(size.min(INDEXED_BYTES as u64));
    for (length, seed) in lengths.zip(chain(look)) {
        let chars = wide.next().map_or(length, |chars| (chars as usize).min(length));
        fill(&mut text, seed, chars, length);
    }
    // Behind what is indexed only the length counts.
    let rest = size as usize - text.len().min(size as usize);
    let lacking = look.chars.map_or(rest, |chars| chars.saturating_sub(text_chars(&text)) as usize);
    fill(&mut text, 0, lacking.min(rest), rest);
    text
}

/// `length` bytes that begin `chars` characters.
fn fill(text: &mut Vec<u8>, mut seed: u64, chars: usize, length: usize) {
    for at in 0..length {
        seed = mix(seed);
        let byte = (seed >> 32) as u8;
        text.push(if at < chars { byte & 0x7f } else { 0x80 | byte & 0x3f });
    }
}

fn ids(look: &Look, size: u64, pieces: Pieces) -> Vec<u32> {
    let mut ids = Vec::with_capacity(size as usize);
    let lengths = pieces.lengths((size * CHARS_PER_TOKEN).min(INDEXED_BYTES as u64));
    for (length, mut seed) in lengths.zip(chain(look)) {
        for _ in 0..length / CHARS_PER_TOKEN as usize {
            seed = mix(seed);
            ids.push((seed >> 32) as u32);
        }
    }
    ids.resize(size as usize, 0);
    ids
}
