//! Mooncake's form (USENIX FAST 2025): one JSON object per line with `timestamp` (ms), `input_length`, `output_length` and
//! `hash_ids`, one id for every block of 512 prompt tokens, the last block perhaps not full. Other fields and blank lines
//! are passed over.

use serde::Deserialize;

use crate::trace::Row;
use crate::trace::error::{Fault, Mistake, bad};
use crate::trace::fields::{self, Ids};
use crate::trace::rows::{Place, Reader};
use crate::trace::source::{Lines, Source};
use crate::trace::stamp::{self, MS_NS};

/// Prompt tokens per hash id.
pub(in crate::trace) const BLOCK_TOKENS: u32 = 512;

/// Reads Mooncake's form.
pub(super) struct Mooncake {
    lines: Lines,
}

/// A row as it is written.
#[derive(Deserialize)]
struct Raw {
    timestamp: f64,
    input_length: i64,
    output_length: i64,
    hash_ids: Vec<u64>,
}

impl Mooncake {
    pub(super) fn new(source: Source) -> Self {
        Self { lines: Lines::new(source) }
    }
}

impl Reader for Mooncake {
    fn next(&mut self, place: &Place) -> Result<Option<Row>, Fault> {
        let Some((line, text)) = self.lines.next()? else { return Ok(None) };
        row(text, place).map(Some).map_err(bad(line))
    }

    fn block_tokens(&self) -> u32 {
        BLOCK_TOKENS
    }
}

fn row(text: &[u8], place: &Place) -> Result<Row, Mistake> {
    let raw: Raw = fields::object(text)?;
    let at_ns = fields::since_start_ns("timestamp", raw.timestamp, MS_NS)?;
    let input_tokens = fields::input("input_length", raw.input_length)?;
    let output_tokens = fields::output("output_length", raw.output_length)?;
    let blocks = fields::ids(raw.hash_ids, input_tokens, BLOCK_TOKENS, Ids::All)?;
    let at_ns = place.in_order(at_ns, |ns| stamp::decimal(ns, MS_NS))?;
    Ok(Row { at_ns, input_tokens, output_tokens, blocks, ..Row::default() })
}
