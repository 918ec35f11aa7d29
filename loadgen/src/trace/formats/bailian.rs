//! The Qwen-Bailian usage traces: JSON lines with `chat_id`, `parent_chat_id` (-1 for the first turn), `timestamp`
//! (seconds), `input_length`, `output_length` and `hash_ids` of 16 tokens each. A turn need not begin with its parent's
//! blocks: the publishers say that thoughts may be left out of it and that a last block's hash changes as it fills.

use std::collections::HashMap;

use serde::Deserialize;

use crate::trace::Row;
use crate::trace::error::{Fault, Mistake, bad};
use crate::trace::fields::{self, Ids};
use crate::trace::rows::{Place, Reader};
use crate::trace::source::{Lines, Source};
use crate::trace::stamp::{self, SECOND_NS};

/// Prompt tokens per hash id.
pub(in crate::trace) const BLOCK_TOKENS: u32 = 16;

/// Reads the Bailian traces.
pub(super) struct Bailian {
    lines: Lines,
    /// The row and the session of each chat.
    chats: HashMap<i64, (u32, u64)>,
}

#[derive(Deserialize)]
struct Raw {
    chat_id: i64,
    #[serde(default = "none")]
    parent_chat_id: i64,
    timestamp: f64,
    input_length: i64,
    output_length: i64,
    hash_ids: Vec<u64>,
}

fn none() -> i64 {
    -1
}

impl Bailian {
    pub(super) fn new(source: Source) -> Self {
        Self { lines: Lines::new(source), chats: HashMap::new() }
    }
}

impl Reader for Bailian {
    fn next(&mut self, place: &Place) -> Result<Option<Row>, Fault> {
        let Some((line, text)) = self.lines.next()? else { return Ok(None) };
        row(text, place, &mut self.chats).map(Some).map_err(bad(line))
    }

    fn block_tokens(&self) -> u32 {
        BLOCK_TOKENS
    }
}

/// The row, which is remembered among `chats`.
fn row(text: &[u8], place: &Place, chats: &mut HashMap<i64, (u32, u64)>) -> Result<Row, Mistake> {
    let raw: Raw = fields::object(text)?;
    let at_ns = fields::since_start_ns("timestamp", raw.timestamp, SECOND_NS)?;
    let input_tokens = fields::input("input_length", raw.input_length)?;
    let output_tokens = fields::output("output_length", raw.output_length)?;
    let blocks = fields::ids(raw.hash_ids, input_tokens, BLOCK_TOKENS, Ids::All)?;
    let at_ns = place.in_order(at_ns, |ns| stamp::decimal(ns, SECOND_NS))?;
    let (parent, session) = match chats.get(&raw.parent_chat_id) {
        Some((parent, session)) => (Some(*parent), *session),
        // The parent was before the file began: what comes from it is still one session.
        None if raw.parent_chat_id >= 0 => (None, raw.parent_chat_id.cast_unsigned()),
        None => (None, raw.chat_id.cast_unsigned()),
    };
    chats.insert(raw.chat_id, (place.seq, session));
    Ok(Row { at_ns, input_tokens, output_tokens, blocks, session: Some(session), parent, think_ns: None })
}
