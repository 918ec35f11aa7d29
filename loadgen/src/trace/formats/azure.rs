//! The Azure LLM inference traces: CSV with `TIMESTAMP`, `ContextTokens` and `GeneratedTokens`. In 2023 a time stamp is
//! `2023-11-16 18:17:03.9799600`, in 2024 `2024-05-12 00:00:00.001163+00:00`, sometimes without the fraction. Lines may end
//! in CR LF, and the last one in nothing. There is nothing about what the prompts say.

use super::mooncake::BLOCK_TOKENS;
use super::table::{Column, Table, whole};
use crate::trace::Row;
use crate::trace::error::Fault;
use crate::trace::rows::{Place, Reader};
use crate::trace::source::Source;
use crate::trace::{fields, stamp};

/// Reads the Azure traces.
pub(super) struct Azure {
    table: Table<3>,
}

impl Azure {
    pub(super) fn new(source: Source) -> Self {
        let columns = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"];
        let table = Table::new(source, columns.map(|name| Column { name, required: true }));
        Self { table }
    }
}

impl Reader for Azure {
    fn next(&mut self, place: &Place) -> Result<Option<Row>, Fault> {
        self.table.next(|[at, input, output]| {
            let at_ns = place.in_order(stamp::parse(at)?, stamp::show)?;
            let input_tokens = fields::input("ContextTokens", whole("ContextTokens", input)?)?;
            let output_tokens = fields::output("GeneratedTokens", whole("GeneratedTokens", output)?)?;
            Ok(Row { at_ns, input_tokens, output_tokens, ..Row::default() })
        })
    }

    fn block_tokens(&self) -> u32 {
        BLOCK_TOKENS
    }
}
