//! The prompt of a body, in the forms that the endpoints allow.

use std::borrow::Cow;

use super::cursor::{Cursor, Value};

/// One prompt, or a batch of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt<'a> {
    /// A text; for a chat the rendering of its messages.
    Text(Cow<'a, str>),
    /// Token ids.
    Tokens(Vec<u32>),
    /// Several texts.
    Texts(Vec<Cow<'a, str>>),
    /// Several lists of token ids.
    TokenLists(Vec<Vec<u32>>),
    /// Absent, empty, or of a form this reader does not know.
    Unreadable,
}

/// The first prompt of a body, which stands for a batch: a batch goes to one worker as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First<'a> {
    /// A text.
    Text(&'a str),
    /// Token ids.
    Tokens(&'a [u32]),
    /// Nothing readable.
    Unreadable,
}

impl Prompt<'_> {
    /// The first or only prompt.
    #[must_use]
    pub fn first(&self) -> First<'_> {
        match self {
            Prompt::Text(text) => First::Text(text),
            Prompt::Tokens(ids) => First::Tokens(ids),
            Prompt::Texts(texts) => texts.first().map_or(First::Unreadable, |text| First::Text(text)),
            Prompt::TokenLists(lists) => lists.first().map_or(First::Unreadable, |ids| First::Tokens(ids)),
            Prompt::Unreadable => First::Unreadable,
        }
    }

    /// How many tokens all prompts together have, where a text counts one token for every four bytes.
    #[must_use]
    pub fn estimated_tokens(&self) -> u64 {
        let text = |text: &Cow<'_, str>| text.len().div_ceil(4) as u64;
        match self {
            Prompt::Text(one) => text(one),
            Prompt::Tokens(ids) => ids.len() as u64,
            Prompt::Texts(all) => all.iter().map(text).sum(),
            Prompt::TokenLists(all) => all.iter().map(|ids| ids.len() as u64).sum(),
            Prompt::Unreadable => 0,
        }
    }

    /// Whether this is text, single or in a batch.
    #[must_use]
    pub fn is_text(&self) -> bool {
        matches!(self, Prompt::Text(_) | Prompt::Texts(_))
    }
}

impl<'a> Prompt<'a> {
    /// A string, a list of strings, a list of token ids or a list of such lists. The first element of a list decides
    /// what it is, and the others must be like it.
    pub(super) fn of(value: Value<'a>) -> Option<Self> {
        let list = match value {
            Value::String(quoted) => return Some(Prompt::Text(quoted.text())),
            Value::Array(raw) => raw,
            Value::Object(_) | Value::Scalar(_) => return None,
        };
        match Cursor::new(&list[1..]).peek()? {
            b'"' => texts(list).map(Prompt::Texts),
            b'[' => id_lists(list).map(Prompt::TokenLists),
            b'0'..=b'9' => ids(&mut Cursor::new(list), list.len()).map(Prompt::Tokens),
            _ => None,
        }
    }

    /// A query that is scored with each of `others`: it comes first.
    pub(super) fn before(self, others: Option<Self>) -> Option<Self> {
        match (self, others) {
            (Prompt::Text(query), Some(Prompt::Text(item))) => Some(Prompt::Texts(vec![query, item])),
            (Prompt::Text(query), Some(Prompt::Texts(items))) => Some(Prompt::Texts(prepend(query, items))),
            (Prompt::Tokens(query), Some(Prompt::TokenLists(items))) => {
                Some(Prompt::TokenLists(prepend(query, items)))
            }
            (query @ (Prompt::Text(_) | Prompt::Tokens(_)), _) => Some(query),
            _ => None,
        }
    }
}

fn prepend<T>(first: T, mut rest: Vec<T>) -> Vec<T> {
    rest.insert(0, first);
    rest
}

fn texts(list: &[u8]) -> Option<Vec<Cow<'_, str>>> {
    let mut texts = Vec::new();
    Cursor::new(list).elements(|cursor| {
        texts.push(cursor.value()?.string()?.text());
        Some(())
    })?;
    Some(texts)
}

fn id_lists(list: &[u8]) -> Option<Vec<Vec<u32>>> {
    let mut lists = Vec::new();
    Cursor::new(list).elements(|cursor| {
        lists.push(ids(cursor, 0)?);
        Some(())
    })?;
    Some(lists)
}

/// A list of token ids that is `len` bytes long, as far as that is known.
fn ids(cursor: &mut Cursor<'_>, len: usize) -> Option<Vec<u32>> {
    // Ids of large vocabularies mostly have five digits.
    let mut ids = Vec::with_capacity(len / 6);
    cursor.elements(|cursor| {
        ids.push(cursor.token_id()?);
        Some(())
    })?;
    Some(ids)
}
