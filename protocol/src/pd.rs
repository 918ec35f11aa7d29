//! Requests with two legs: one engine computes the prompt (prefill), another one generates (decode).
//!
//! Both get the client's body at once, with the same members added by which they find each other: where the prefill
//! engine's bootstrap server is, and a room, which is a number that no other request of that engine has at the time. An
//! engine takes a batch apart into requests of their own, so a batch has a list of rooms.
//!
//! The answer is decode's. What only the prefill engine knows, the log-probabilities of the prompt, is merged into it.

mod aborted;
mod frames;
mod lists;

pub use aborted::{Failed, HandOff, failure, hand_off, is_duplicate};
pub use frames::Frames;
pub use lists::InputLists;
pub(crate) use lists::each_frame;

use crate::splice::Member;
use crate::view::Dialect;
use crate::view::cursor::{Cursor, Value};
use crate::view::fields::{Sampling, fields, number};

/// The host of the prefill engine's bootstrap server.
pub const BOOTSTRAP_HOST: &str = "bootstrap_host";
/// Its port; `null` if nobody knows it.
pub const BOOTSTRAP_PORT: &str = "bootstrap_port";
/// The request's number at the prefill engine.
pub const BOOTSTRAP_ROOM: &str = "bootstrap_room";
/// Tells the decode engine which data-parallel rank of the prefill engine computes the prompt.
pub const PREFILL_DP_RANK: &str = "disagg_prefill_dp_rank";

/// Most rooms that one body may take. `n` is a number of any size, and each room takes space in the body.
pub const MAX_ITEMS: usize = 1 << 14;

/// How many rooms a body takes: one for each prompt of a list, or one for each answer to a single prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Items {
    /// One, whose members are plain values.
    Single,
    /// A batch, whose members are lists of this length.
    Batch(usize),
}

/// A body takes more than [`MAX_ITEMS`] rooms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the body asks for more than {MAX_ITEMS} answers")]
pub struct TooMany;

/// What a body says that matters to a request with two legs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What it takes of rooms.
    pub items: Items,
    /// Whether it asks for log-probabilities in the form that has those of the prompt.
    pub input_logprobs: bool,
    /// The ids under which an engine knows its requests, if it says any.
    pub rids: Vec<String>,
    /// The data-parallel rank that it names, if it is one: by its newer name, or else by its older one.
    pub dp_rank: Option<u64>,
}

fields! {
    /// The fields of interest.
    Fields {
        text, input_ids, input_embeds, prompt, n, sampling_params, return_logprob, rid, data_parallel_rank, routed_dp_rank,
    }
}

// === impl Items ===

impl Items {
    fn batch(items: usize) -> Result<Self, TooMany> {
        if items <= MAX_ITEMS { Ok(Self::Batch(items)) } else { Err(TooMany) }
    }

    /// How many rooms it takes.
    #[must_use]
    pub fn rooms(self) -> usize {
        match self {
            Self::Single => 1,
            Self::Batch(items) => items,
        }
    }

    /// A value for each of them, as JSON: plain for a single one, otherwise a list.
    fn each(self, mut value: impl FnMut(usize, &mut String)) -> String {
        let mut text = String::new();
        match self {
            Self::Single => value(0, &mut text),
            Self::Batch(items) => {
                text.push('[');
                for at in 0..items {
                    if at > 0 {
                        text.push(',');
                    }
                    value(at, &mut text);
                }
                text.push(']');
            }
        }
        text
    }

    /// The members by which the two engines find each other. `rooms` holds as many rooms as there are items.
    #[must_use]
    pub fn bootstrap(self, host: &str, port: Option<u16>, rooms: &[u64]) -> [Member<'static>; 3] {
        let host = serde_json::Value::from(host).to_string();
        let port = port.map_or_else(|| "null".to_owned(), |port| port.to_string());
        let room = |at: usize, text: &mut String| text.push_str(&rooms[at].to_string());
        [
            Member::new(BOOTSTRAP_HOST, self.each(|_, text| text.push_str(&host))),
            Member::new(BOOTSTRAP_PORT, self.each(|_, text| text.push_str(&port))),
            Member::new(BOOTSTRAP_ROOM, self.each(room)),
        ]
    }
}

// === impl Asked ===

impl Asked {
    /// Reads `body`, which was sent to an endpoint of the form `dialect`. What cannot be understood asks for nothing.
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn read(dialect: Dialect, body: &[u8]) -> Result<Self, TooMany> {
        let mut fields = Fields::default();
        // As far as it can be read.
        let _ =
            fields.read(&mut Cursor::new(body.strip_prefix(crate::view::BYTE_ORDER_MARK).unwrap_or(body)));
        let prompts = match dialect {
            Dialect::Generate => match (fields.text, fields.input_ids, fields.input_embeds) {
                (Some(text), ..) => batch(text, 1),
                (None, Some(ids), _) => batch(ids, 2),
                (None, None, embeds) => embeds.and_then(|embeds| batch(embeds, 3)),
            },
            Dialect::Completions => {
                fields.prompt.and_then(|prompt| batch(prompt, 1).filter(|_| !is_flat(prompt)))
            }
            _ => None,
        };
        let n = match dialect {
            Dialect::Generate => fields.sampling_params.and_then(sampling_n),
            _ => number(fields.n),
        };
        // Of several prompts each has one room, however many answers it gets: an engine repeats such a list.
        let items = match (prompts, n) {
            (Some(prompts), _) => Items::batch(prompts)?,
            (None, Some(n @ 2..)) => Items::batch(usize::try_from(n).map_err(|_| TooMany)?)?,
            (None, _) => Items::Single,
        };
        let input_logprobs = dialect == Dialect::Generate && fields.return_logprob.is_some_and(says_true);
        let dp_rank = number(fields.routed_dp_rank.or(fields.data_parallel_rank));
        Ok(Self { items, input_logprobs, rids: fields.rid.map_or_else(Vec::new, rids), dp_rank })
    }
}

/// The length of a list whose first element is a list and so on, this many lists deep; an empty one is no batch.
fn batch(value: Value<'_>, depth: u32) -> Option<usize> {
    let Value::Array(list) = value else { return None };
    let mut first = list;
    for _ in 1..depth {
        let Some(Value::Array(inner)) = Cursor::new(&first[1..]).value() else { return None };
        first = inner;
    }
    Some(elements(list, |_| ())).filter(|length| *length > 0)
}

/// Whether a list is one of token ids, which are one prompt together.
fn is_flat(value: Value<'_>) -> bool {
    let Value::Array(list) = value else { return true };
    !matches!(Cursor::new(&list[1..]).value(), Some(Value::String(_) | Value::Array(_)))
}

/// How many elements a list has, as far as it can be read; each of them is shown.
fn elements<'a>(list: &'a [u8], mut show: impl FnMut(Value<'a>)) -> usize {
    let mut count = 0;
    let _ = Cursor::new(list).elements(|cursor| {
        show(cursor.value()?);
        count += 1;
        Some(())
    });
    count
}

/// How many answers to each prompt. A list of parameters has the same number throughout, or is refused by the engine.
fn sampling_n(value: Value<'_>) -> Option<u64> {
    let object = match value {
        Value::Array(list) => Cursor::new(&list[1..]).value()?,
        other => other,
    };
    let Value::Object(raw) = object else { return None };
    let mut sampling = Sampling::default();
    let _ = sampling.read(&mut Cursor::new(raw));
    number(sampling.n)
}

/// `true`, or a list with one.
fn says_true(value: Value<'_>) -> bool {
    match value {
        Value::Scalar(raw) => raw == b"true",
        Value::Array(list) => {
            let mut any = false;
            elements(list, |element| any |= says_true(element));
            any
        }
        _ => false,
    }
}

/// An engine takes an empty id for the beginning of every other one, so it is none.
fn rids(value: Value<'_>) -> Vec<String> {
    let mut ids = Vec::new();
    let mut add = |value: Value<'_>| ids.extend(value.string().map(|id| id.text().into_owned()));
    match value {
        Value::Array(list) => drop(elements(list, add)),
        other => add(other),
    }
    ids.retain(|id| !id.is_empty());
    ids
}

#[cfg(test)]
mod tests;
