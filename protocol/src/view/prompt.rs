//! The prompt of a body, in the forms that the endpoints allow.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::scan::{RawMessage, RawPart, Text, read};
use crate::chat;

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

/// The rendering of a chat's messages; `None` if one of them is of a form that cannot be rendered.
pub(super) fn chat<'a>(messages: &'a RawValue) -> Option<Prompt<'a>> {
    let messages: Vec<RawMessage<'a>> = read(Some(messages))?;
    if messages.is_empty() {
        return None;
    }
    let parts = messages.iter().map(|m| Some((read::<Text<'a>>(m.role)?.0, content(m.content)?)));
    let parts: Vec<_> = parts.collect::<Option<_>>()?;
    Some(Prompt::Text(Cow::Owned(chat::render(parts))))
}

/// The text of one message: a string, or the text parts of a list joined by blanks. Messages without content
/// (tool calls) are empty.
fn content(raw: Option<&RawValue>) -> Option<Cow<'_, str>> {
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Some(Cow::Borrowed("")) };
    if let Some(text) = read::<Text<'_>>(Some(raw)) {
        return Some(text.0);
    }
    let parts: Vec<RawPart<'_>> = read(Some(raw))?;
    let texts: Vec<_> = parts.iter().filter_map(|part| read::<Text<'_>>(part.text)).map(|t| t.0).collect();
    Some(Cow::Owned(texts.join(" ")))
}

impl<'de: 'a, 'a> Deserialize<'de> for Prompt<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Prompt<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a list of strings, a list of token ids or a list of such lists")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Prompt::Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Prompt::Text(Cow::Owned(text.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                batch(seq)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// The first element of a list decides what the list is; the others must be like it.
fn batch<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<Prompt<'de>, A::Error> {
    Ok(match seq.next_element::<Element<'de>>()? {
        Some(Element::Id(id)) => Prompt::Tokens(rest(id, seq)?),
        Some(Element::Text(text)) => {
            let texts: Vec<Text<'de>> = rest(Text(text), seq)?;
            Prompt::Texts(texts.into_iter().map(|text| text.0).collect())
        }
        Some(Element::Ids(ids)) => Prompt::TokenLists(rest(ids, seq)?),
        None => return Err(A::Error::custom("an empty list is no prompt")),
    })
}

fn rest<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(first: T, mut seq: A) -> Result<Vec<T>, A::Error> {
    let mut all = vec![first];
    while let Some(next) = seq.next_element()? {
        all.push(next);
    }
    Ok(all)
}

/// The first element of a list of prompts or of token ids.
enum Element<'a> {
    Id(u32),
    Text(Cow<'a, str>),
    Ids(Vec<u32>),
}

impl<'de: 'a, 'a> Deserialize<'de> for Element<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Element<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a token id or a list of token ids")
            }

            fn visit_u64<E: Error>(self, id: u64) -> Result<Self::Value, E> {
                u32::try_from(id).map(Element::Id).map_err(|_| E::custom("a token id has at most 32 bits"))
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Element::Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Element::Text(Cow::Owned(text.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut ids = Vec::new();
                while let Some(id) = seq.next_element()? {
                    ids.push(id);
                }
                Ok(Element::Ids(ids))
            }
        }
        deserializer.deserialize_any(Any)
    }
}
