//! What a decision may read of a prompt, and how its length is counted.
//!
//! Lengths are in *characters*, the gateway's unit: Unicode scalars of text, and [`CHARS_PER_TOKEN`] for each
//! token id, so that a run over ids decides as the same run over text of four-character tokens does.

use crate::generated::Generated;

/// Characters that one token id stands for.
pub const CHARS_PER_TOKEN: u64 = 4;

/// Only this much of a prompt is indexed: 256 KB of text or as many characters of token ids.
pub const INDEXED_BYTES: usize = 256 * 1024;

/// The prompt of one request as the router could read it, borrowed from the request's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptView<'a> {
    /// Text. Usually UTF-8, but nothing breaks when it is not.
    Text(&'a [u8]),
    /// Token ids.
    Tokens(&'a [u32]),
    /// Token ids, known by the blocks of generated text that they come from. Everything is as with the ids themselves.
    Generated(Generated<'a>),
    /// Nothing the router understands: it matches nothing and teaches nothing.
    Unreadable,
}

impl<'a> PromptView<'a> {
    /// The part that is indexed. A cut through a character is harmless: see [`text_chars`].
    pub fn indexed(self) -> PromptView<'a> {
        match self {
            Self::Text(text) => Self::Text(&text[..text.len().min(INDEXED_BYTES)]),
            Self::Tokens(ids) => {
                Self::Tokens(&ids[..ids.len().min(INDEXED_BYTES / CHARS_PER_TOKEN as usize)])
            }
            Self::Generated(run) => {
                Self::Generated(run.until(run.len().min(INDEXED_BYTES / CHARS_PER_TOKEN as usize)))
            }
            Self::Unreadable => Self::Unreadable,
        }
    }

    /// Length of the whole prompt in characters.
    pub fn chars(self) -> u64 {
        match self {
            Self::Text(text) => text_chars(text),
            Self::Tokens(ids) => ids.len() as u64 * CHARS_PER_TOKEN,
            Self::Generated(run) => run.len() as u64 * CHARS_PER_TOKEN,
            Self::Unreadable => 0,
        }
    }
}

/// Unicode scalars in UTF-8 text: the bytes that do not continue a character.
///
/// Counted by bytes, so that the counts of the two parts of any cut add up to the count of the whole, also when
/// the cut goes through a character, and bytes that are no UTF-8 are counted the same way every time.
pub fn text_chars(text: &[u8]) -> u64 {
    // Blocks of 255 keep the partial sums in bytes, which lets the compiler use full vector width.
    text.chunks(255)
        .map(|block| u64::from(block.iter().map(|&byte| u8::from(starts_char(byte))).sum::<u8>()))
        .sum()
}

/// Whether this byte of UTF-8 text begins a character.
pub fn starts_char(byte: u8) -> bool {
    byte & 0xC0 != 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_unicode_scalars() {
        for text in ["", "plain", "naïve", "日本語", "🦀🦀", &"é".repeat(1000)] {
            assert_eq!(text_chars(text.as_bytes()), text.chars().count() as u64, "{text:?}");
        }
    }

    #[test]
    fn any_cut_of_text_adds_up() {
        let text = "aé日🦀".as_bytes();
        for cut in 0..=text.len() {
            assert_eq!(text_chars(&text[..cut]) + text_chars(&text[cut..]), 4, "cut at {cut}");
        }
    }

    #[test]
    fn both_kinds_are_indexed_to_the_same_number_of_characters() {
        let text = vec![b'x'; 300_000];
        let ids = vec![7_u32; 80_000];
        assert_eq!(PromptView::Text(&text).indexed().chars(), 262_144);
        assert_eq!(PromptView::Tokens(&ids).indexed().chars(), 262_144);
        assert_eq!(PromptView::Tokens(&ids).chars(), 320_000);
    }
}
