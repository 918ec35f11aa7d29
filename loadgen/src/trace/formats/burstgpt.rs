//! BurstGPT: CSV with `Timestamp` (seconds), `Request tokens`, `Response tokens` and, in newer files, `Session ID`. By the
//! data set's own description a request without response tokens failed; it is left out and counted.

use std::collections::HashMap;

use super::mooncake::BLOCK_TOKENS;
use super::table::{Column, Table, whole};
use crate::trace::Row;
use crate::trace::error::{Fault, Mistake};
use crate::trace::fields;
use crate::trace::rows::{Place, Reader};
use crate::trace::source::Source;
use crate::trace::stamp::{self, SECOND_NS, shortened};

/// Reads BurstGPT's tables.
pub(super) struct BurstGpt {
    table: Table<4>,
    failed: u64,
    /// The latest row of each session.
    latest: HashMap<u64, u32>,
}

impl BurstGpt {
    pub(super) fn new(source: Source) -> Self {
        let columns =
            [("Timestamp", true), ("Request tokens", true), ("Response tokens", true), ("Session ID", false)];
        let table = Table::new(source, columns.map(|(name, required)| Column { name, required }));
        Self { table, failed: 0, latest: HashMap::new() }
    }
}

impl Reader for BurstGpt {
    fn next(&mut self, place: &Place) -> Result<Option<Row>, Fault> {
        loop {
            let latest = &mut self.latest;
            match self.table.next(|fields| row(fields, place, latest))? {
                Some(None) => self.failed += 1,
                Some(Some(row)) => return Ok(Some(row)),
                None => return Ok(None),
            }
        }
    }

    fn block_tokens(&self) -> u32 {
        BLOCK_TOKENS
    }

    fn left_out(&self) -> u64 {
        self.failed
    }
}

/// The row, or nothing if the request failed.
fn row(
    [at, input, output, session]: [&str; 4],
    place: &Place,
    latest: &mut HashMap<u64, u32>,
) -> Result<Option<Row>, Mistake> {
    let seconds: f64 = at.parse().map_err(|_| {
        (
            format!("Timestamp \"{}\" is not a number", shortened(at)),
            "times are seconds from the first day's midnight",
        )
    })?;
    let at_ns = fields::since_start_ns("Timestamp", seconds, SECOND_NS)?;
    let output_tokens = fields::output("Response tokens", whole("Response tokens", output)?)?;
    if whole("Response tokens", output)? == 0 {
        return Ok(None);
    }
    let input_tokens = fields::input("Request tokens", whole("Request tokens", input)?)?;
    let at_ns = place.in_order(at_ns, |ns| stamp::decimal(ns, SECOND_NS))?;
    let session = (!session.is_empty()).then(|| fields::hash(session));
    let parent = session.and_then(|session| latest.insert(session, place.seq));
    Ok(Some(Row { at_ns, input_tokens, output_tokens, session, parent, ..Row::default() }))
}
