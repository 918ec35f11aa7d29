//! Prompts that stand in for recorded ones: as long, with characters at the same places, and made of the tags, so that two are
//! equal as far as all pieces were.

use protocol::tokenizer::mix;
use router::record::line::{Kind, Look, Pieces};
use router_core::index::Held;
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

    /// Takes over the first `symbols` of what is held; false if there are not so many.
    pub(super) fn begin(&mut self, held: &Held, symbols: usize) -> bool {
        fn take<S: Copy>(own: &mut [S], held: &[S], symbols: usize) -> bool {
            let (Some(own), Some(held)) = (own.get_mut(..symbols), held.get(..symbols)) else { return false };
            own.copy_from_slice(held);
            true
        }
        match (self, held) {
            (Self::Text(own), Held::Text(held)) => take(own, held, symbols),
            (Self::Ids(own), Held::Tokens(held)) => take(own, held, symbols),
            _ => false,
        }
    }

    /// Makes the symbol at this place the next one that begins, or continues, a character as it does.
    pub(super) fn change(&mut self, at: usize) {
        match self {
            Self::Text(text) => {
                if let Some(byte) = text.get_mut(at) {
                    *byte = match *byte {
                        0x7f => 0xc0,
                        0xbf => 0x80,
                        byte => byte.wrapping_add(1),
                    };
                }
            }
            Self::Ids(ids) => {
                if let Some(id) = ids.get_mut(at) {
                    *id = id.wrapping_add(1);
                }
            }
            Self::None => {}
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
    let mut starts = look.starts.iter().flat_map(|starts| starts.bytes()).flat_map(bits);
    for (length, mut seed) in pieces.lengths(size.min(INDEXED_BYTES as u64)).zip(chain(look)) {
        for _ in 0..length {
            seed = mix(seed);
            text.push(byte((seed >> 32) as u8, starts.next().unwrap_or(true)));
        }
    }
    // Behind what is indexed only the number of characters counts.
    let rest = (size as usize).saturating_sub(text.len());
    let lacking = look.chars.map_or(rest, |chars| chars.saturating_sub(text_chars(&text)) as usize);
    text.extend((0..rest).map(|at| byte(0, at < lacking)));
    text
}

/// One that starts a character, or does not.
fn byte(drawn: u8, starts: bool) -> u8 {
    if starts { drawn & 0x7f } else { 0x80 | drawn & 0x3f }
}

/// The bits of a hexadecimal digit, the highest first.
fn bits(digit: u8) -> impl Iterator<Item = bool> {
    let value = hex(&[digit]);
    [8, 4, 2, 1].into_iter().map(move |bit| value & bit != 0)
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
