//! Values as they stand in files: wide types, so that what does not fit is seen and named.

use protocol::tokenizer::mix;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::Mistake;

/// Longest prompt or reply of a trace, in tokens.
const MOST_TOKENS: u32 = 1 << 24;
/// Latest time stamp of a trace that counts from a time of its own: about 31 years, in nanoseconds.
const LATEST_NS: f64 = 1e18;
/// Longest number that a message shows in full, in characters.
const MOST_DIGITS: usize = 24;
/// Longest message of the JSON parser that is shown in full, in characters.
const MOST_MESSAGE: usize = 120;

/// The object that `text` is.
pub(super) fn object<T: DeserializeOwned>(text: &[u8]) -> Result<T, Mistake> {
    // The fields of a list would be taken by their places, which no trace means.
    if text.starts_with(b"[") {
        return Err(("the row is a list".to_owned(), "write an object with named fields"));
    }
    serde_json::from_slice(text).map_err(|error| {
        // The parser counts lines within the row, which for most formats is only one.
        let message = error.to_string();
        let what = message.split(" at line ").next().unwrap_or(&message);
        let place = match (error.line(), error.column()) {
            (0, _) => String::new(),
            (1, column) => format!(" at column {column}"),
            (line, _) => format!(" on line {line} of the object"),
        };
        let remedy = if error.is_data() { "see docs/traces.md" } else { "the row is cut or not JSON" };
        (format!("{}{place}", brief(what)), remedy)
    })
}

/// A length of a prompt, in tokens.
pub(super) fn input(key: &str, given: i64) -> Result<u32, Mistake> {
    tokens(key, given, 1)
}

/// A length of a reply, in tokens: a recorded 0 is 1.
pub(super) fn output(key: &str, given: i64) -> Result<u32, Mistake> {
    tokens(key, given, 0).map(|tokens| tokens.max(1))
}

fn tokens(key: &str, given: i64, least: u32) -> Result<u32, Mistake> {
    let fits = u32::try_from(given).ok().filter(|tokens| (least..=MOST_TOKENS).contains(tokens));
    fits.ok_or_else(|| {
        let problem = format!("{key} {given} is out of range, {least} to {MOST_TOKENS}");
        (problem, "lengths are counts of tokens")
    })
}

/// The length of a text that is given itself.
pub(super) fn counted(what: &str, tokens: usize) -> Result<u32, Mistake> {
    input(what, i64::try_from(tokens).unwrap_or(i64::MAX))
}

/// A time in units of `unit_ns` nanoseconds, as nanoseconds.
pub(super) fn since_start_ns(key: &str, given: f64, unit_ns: u64) -> Result<u64, Mistake> {
    let at_ns = given * unit_ns as f64;
    if (0.0..=LATEST_NS).contains(&at_ns) {
        return Ok(at_ns.round() as u64);
    }
    let (given, latest) = (short(given), LATEST_NS / unit_ns as f64);
    let problem = format!("{key} {given} is out of range, 0 to {latest}");
    Err((problem, "times count from 0 and end after 31 years"))
}

/// A number for a message: not the 300 digits that it may have.
fn short(number: f64) -> String {
    let text = number.to_string();
    if text.len() > MOST_DIGITS { format!("{number:e}") } else { text }
}

/// `message` without the middle of a long value in it.
fn brief(message: &str) -> String {
    let length = message.chars().count();
    if length <= MOST_MESSAGE {
        return message.to_owned();
    }
    let (begin, end) =
        (message.chars().take(MOST_MESSAGE / 2), message.chars().skip(length - MOST_MESSAGE / 2));
    begin.chain(['…']).chain(end).collect()
}

/// Whether the number of ids fits the length of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ids {
    /// One for every block, also for the last one that is not full.
    All,
    /// Perhaps none for the end of the prompt.
    First,
}

/// `ids`, if they fit a prompt of `input` tokens.
pub(super) fn ids(ids: Vec<u64>, input: u32, block_tokens: u32, which: Ids) -> Result<Box<[u64]>, Mistake> {
    let blocks = input.div_ceil(block_tokens) as usize;
    if ids.len() == blocks || which == Ids::First && ids.len() < blocks {
        return Ok(ids.into());
    }
    let problem = format!(
        "{} hash_ids do not fit input_length {input}, which has {blocks} blocks of {block_tokens}",
        ids.len()
    );
    Err((problem, "give one hash id for every block, also for the last one that is not full"))
}

/// A name that is a number in some files and a text in others.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Name {
    Number(i64),
    Text(String),
}

impl Name {
    /// The same number for the same name.
    pub(super) fn number(&self) -> u64 {
        match self {
            Self::Number(number) => number.cast_unsigned(),
            Self::Text(text) => hash(text),
        }
    }
}

/// A number for a name.
pub(super) fn hash(text: &str) -> u64 {
    text.bytes().fold(mix(text.len() as u64), |hash, byte| mix(hash ^ u64::from(byte)))
}
