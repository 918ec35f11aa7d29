//! What is recorded of a prompt: how long it is, and sixteen bits for each piece of it.

use std::collections::BTreeMap;

use router_core::prompt::{CHARS_PER_TOKEN, PromptView, starts_char, text_chars};

use super::line::{Kind, Look, Pieces, Roles};
use super::salt::{Chain, Salt};

/// The look of a prompt, with this salt; [`Look::share`] adds what it shares.
pub fn look_of(salt: [u8; 16], n: u64, scopes: Roles<Option<u32>>, prompt: PromptView<'_>) -> Look {
    look(Salt::of(salt), n, scopes, prompt)
}

/// The look of a prompt.
pub(super) fn look(salt: Salt, n: u64, scopes: Roles<Option<u32>>, prompt: PromptView<'_>) -> Look {
    let look = |kind, size| Look {
        n,
        scopes,
        kind,
        size,
        chars: None,
        tags: Box::default(),
        starts: None,
        shared: BTreeMap::new(),
    };
    match prompt {
        // No client sends generated prompts.
        PromptView::Unreadable | PromptView::Generated(_) => look(Kind::None, 0),
        PromptView::Tokens(ids) => {
            let indexed = indexed_ids(prompt);
            Look { tags: tags_of_ids(salt, indexed), ..look(Kind::Ids, ids.len() as u64) }
        }
        PromptView::Text(text) => {
            let indexed = indexed_text(prompt);
            let tags = tags(salt, Alphabet::Text, indexed.len(), |range| &indexed[range]);
            let chars = Some(text_chars(text)).filter(|chars| *chars != text.len() as u64);
            let starts = chars.map(|_| starts(indexed));
            Look { tags, chars, starts, ..look(Kind::Text, text.len() as u64) }
        }
    }
}

/// Text and ids of the same bytes are not the same.
#[derive(Clone, Copy)]
enum Alphabet {
    Text,
    Ids,
}

fn indexed_text(prompt: PromptView<'_>) -> &[u8] {
    if let PromptView::Text(text) = prompt.indexed() { text } else { &[] }
}

fn indexed_ids(prompt: PromptView<'_>) -> &[u32] {
    if let PromptView::Tokens(ids) = prompt.indexed() { ids } else { &[] }
}

fn tags_of_ids(salt: Salt, ids: &[u32]) -> Box<str> {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    debug_assert_eq!(CHARS_PER_TOKEN, 4, "an id is four bytes and four characters");
    tags(salt, Alphabet::Ids, bytes.len(), |range| &bytes[range])
}

fn tags<'a>(
    salt: Salt,
    alphabet: Alphabet,
    size: usize,
    piece: impl Fn(std::ops::Range<usize>) -> &'a [u8],
) -> Box<str> {
    let mut chain = Chain::new(salt);
    chain.feed(&(alphabet as u64).to_le_bytes());
    let mut tags = String::with_capacity(size / Pieces::WRITTEN.short as usize * 4 + 4);
    let mut at = 0;
    for length in Pieces::WRITTEN.lengths(size as u64) {
        let tag = chain.feed(piece(at..at + length)) as u16;
        at += length;
        push_hex(&mut tags, tag);
    }
    tags.into()
}

/// Where characters start: four bytes to a digit.
fn starts(text: &[u8]) -> Box<str> {
    let digit = |bytes: &[u8]| {
        let bits = bytes.iter().enumerate().filter(|(_, byte)| starts_char(**byte));
        DIGITS[bits.map(|(at, _)| 8 >> at).sum::<usize>()]
    };
    text.chunks(4).map(digit).collect()
}

const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];

fn push_hex(to: &mut String, tag: u16) {
    to.extend([12, 8, 4, 0].map(|shift| DIGITS[usize::from(tag >> shift & 15)]));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str) -> Look {
        look(Salt::of([7; 16]), 1, Roles::default(), PromptView::Text(text.as_bytes()))
    }

    #[test]
    fn equal_beginnings_have_equal_tags_and_differ_from_where_the_text_does() {
        let text = "all happy families are alike; every unhappy family is unhappy in its own way";
        let (one, other) = (seen(text), seen(&text.replace("own way", "way")));
        assert_eq!(one.tags.len(), 4 * text.len().div_ceil(16));
        assert_eq!(one.tags[..16], other.tags[..16]);
        assert_ne!(one.tags[16..], other.tags[16..]);
        let later = seen(&format!("x{text}"));
        assert!(one.tags.as_bytes().chunks(4).zip(later.tags.as_bytes().chunks(4)).all(|(a, b)| a != b));
        let salted = look(Salt::of([8; 16]), 1, Roles::default(), PromptView::Text(text.as_bytes()));
        assert_ne!(one.tags[..4], salted.tags[..4]);
    }

    #[test]
    fn pieces_are_longer_behind_the_head_and_end_where_the_index_does() {
        let long = "x".repeat(300_000);
        let look = seen(&long);
        assert_eq!(look.tags.len() / 4, 16_384 / 16 + (262_144 - 16_384) / 64);
        assert_eq!((look.size, look.chars), (300_000, None));
        let ids = vec![5; 9];
        let look = super::look(Salt::of([7; 16]), 1, Roles::default(), PromptView::Tokens(&ids));
        assert_eq!((look.tags.len() / 4, look.size), (3, 9));
    }

    #[test]
    fn it_is_told_where_wide_characters_start() {
        let look = seen("aé日本 b");
        assert_eq!((look.size, look.chars), (11, Some(6)));
        assert_eq!(look.starts.as_deref(), Some("d26"), "1101 0010 011");
        assert_eq!(seen("plain").starts, None);
    }
}
