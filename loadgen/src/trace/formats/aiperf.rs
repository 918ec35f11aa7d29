//! aiperf's relaxation of Mooncake's form: JSON lines with `input_length` (and perhaps `hash_ids`), or with the prompt
//! itself as `text_input` or `messages`. `timestamp` (ms), `output_length`, `session_id` and `delay` (ms after the turn before)
//! may be missing; one reply token is assumed where no length is given. `block_size`, which other readers pass over, is
//! written by `loadgen trace convert` where blocks do not have aiperf's 512 tokens.

use std::collections::HashMap;

use protocol::{chat, tokenizer};
use serde::Deserialize;

use super::mooncake::BLOCK_TOKENS;
use crate::trace::Row;
use crate::trace::blocks::{TEXT_BLOCK_TOKENS, of_text};
use crate::trace::error::{Fault, Mistake, bad};
use crate::trace::fields::{self, Ids, Name};
use crate::trace::rows::{Place, Reader};
use crate::trace::source::{Lines, Source};
use crate::trace::stamp::{self, MS_NS};

/// Reads aiperf's form.
pub(super) struct Aiperf {
    lines: Lines,
    state: State,
}

#[derive(Default)]
struct State {
    block_tokens: Option<u32>,
    timed: bool,
    /// The latest row of each session.
    latest: HashMap<u64, u32>,
}

#[derive(Deserialize)]
struct Raw {
    timestamp: Option<f64>,
    delay: Option<f64>,
    input_length: Option<i64>,
    text_input: Option<String>,
    messages: Option<Vec<Message>>,
    output_length: Option<i64>,
    hash_ids: Option<Vec<u64>>,
    session_id: Option<Name>,
    block_size: Option<u32>,
}

/// A message of a chat; what is not text (images, calls of tools) counts as its JSON.
#[derive(Deserialize)]
struct Message {
    role: String,
    #[serde(default)]
    content: serde_json::Value,
}

impl Aiperf {
    pub(super) fn new(source: Source) -> Self {
        Self { lines: Lines::new(source), state: State::default() }
    }
}

impl Reader for Aiperf {
    fn next(&mut self, place: &Place) -> Result<Option<Row>, Fault> {
        let Some((line, text)) = self.lines.next()? else { return Ok(None) };
        self.state.row(text, place).map(Some).map_err(bad(line))
    }

    fn block_tokens(&self) -> u32 {
        self.state.block_tokens.unwrap_or(BLOCK_TOKENS)
    }

    fn timed(&self) -> bool {
        self.state.timed
    }
}

impl State {
    fn row(&mut self, text: &[u8], place: &Place) -> Result<Row, Mistake> {
        let mut raw: Raw = fields::object(text)?;
        let ms = |key: &str, given: f64| fields::since_start_ns(key, given, MS_NS);
        let at_ns = raw.timestamp.map(|given| ms("timestamp", given)).transpose()?;
        let think_ns = raw.delay.map(|given| ms("delay", given)).transpose()?;
        let output_tokens = fields::output("output_length", raw.output_length.unwrap_or(1))?;
        let (block_tokens, input_tokens, blocks) = self.prompt(&mut raw)?;
        let at_ns = match at_ns {
            Some(at_ns) => place.in_order(at_ns, |ns| stamp::decimal(ns, MS_NS))?,
            // Without a time of its own it comes as soon as it may.
            None => place.former_ns,
        };
        self.timed |= raw.timestamp.is_some();
        self.block_tokens.get_or_insert(block_tokens);
        let session = raw.session_id.as_ref().map(Name::number);
        let parent = session.and_then(|session| self.latest.insert(session, place.seq));
        Ok(Row { at_ns, input_tokens, output_tokens, blocks, session, parent, think_ns })
    }

    /// Block size, length and blocks of the prompt.
    fn prompt(&self, raw: &mut Raw) -> Result<(u32, u32, Box<[u64]>), Mistake> {
        let text = match (&raw.text_input, &raw.messages) {
            (Some(text), _) => Some(text.clone()),
            (None, Some(messages)) => {
                Some(chat::render(messages.iter().map(|m| (&m.role, content(&m.content)))))
            }
            (None, None) => None,
        };
        let given = match (&text, raw.block_size) {
            (Some(_), _) => TEXT_BLOCK_TOKENS,
            (None, size) => size.unwrap_or(BLOCK_TOKENS),
        };
        if given == 0 || self.block_tokens.is_some_and(|known| known != given) {
            let problem =
                format!("its blocks have {given} tokens, those of the first row have {}", self.block());
            return Err((problem, "a trace has blocks of one size: do not mix rows with and without text"));
        }
        if let Some(text) = text {
            let tokens = tokenizer::encode(&text);
            return Ok((given, fields::counted("the length of the prompt", tokens.len())?, of_text(&tokens)));
        }
        let Some(input) = raw.input_length else {
            return Err((
                "the row has no input_length, text_input or messages".to_owned(),
                "see docs/traces.md",
            ));
        };
        let input = fields::input("input_length", input)?;
        let blocks = match raw.hash_ids.take() {
            Some(ids) => fields::ids(ids, input, given, Ids::All)?,
            None => Box::default(),
        };
        Ok((given, input, blocks))
    }

    fn block(&self) -> u32 {
        self.block_tokens.unwrap_or(BLOCK_TOKENS)
    }
}

fn content(content: &serde_json::Value) -> String {
    content.as_str().map_or_else(|| content.to_string(), str::to_owned)
}
