//! Writing rows in the forms that other tools read. Times count from the first row.

use std::collections::HashMap;
use std::io::{self, Write};

use super::convert::{Names, Written};
use super::formats::{BAILIAN_BLOCK_TOKENS, MOONCAKE_BLOCK_TOKENS};
use super::stamp::{MS_NS, SECOND_NS};
use super::{Row, blocks, stamp};

/// Writes rows.
pub(super) struct Writer<W> {
    to: W,
    format: Written,
    /// Tokens per block, read and written.
    block_tokens: (u32, u32),
    timed: bool,
    first_ns: Option<u64>,
    names: Names,
    sessions: HashMap<u64, u64>,
    /// For each row, which turn of its session it is.
    turns: Vec<u32>,
}

impl<W: Write> Writer<W> {
    /// Writes in `format` what has blocks of `block_tokens` and times if it is `timed`.
    pub(super) fn new(
        mut to: W,
        format: Written,
        block_tokens: u32,
        timed: bool,
        names: Names,
    ) -> io::Result<Self> {
        match format {
            Written::Azure => to.write_all(b"TIMESTAMP,ContextTokens,GeneratedTokens\n")?,
            Written::BurstGpt => to.write_all(b"Timestamp,Session ID,Request tokens,Response tokens\n")?,
            Written::Mooncake | Written::Aiperf | Written::Bailian => {}
        }
        Ok(Self {
            to,
            format,
            block_tokens: (block_tokens, written_block_tokens(format, block_tokens)),
            timed,
            first_ns: None,
            names,
            sessions: HashMap::new(),
            turns: Vec::new(),
        })
    }

    /// Writes the next row.
    pub(super) fn row(&mut self, row: &Row) -> io::Result<()> {
        let at_ns = row.at_ns - *self.first_ns.get_or_insert(row.at_ns);
        let seq = self.turns.len();
        let former = row.parent.and_then(|parent| self.turns.get(parent as usize));
        let turn = former.map_or(1, |turn| turn + 1);
        self.turns.push(turn);
        let (input, output) = (row.input_tokens, row.output_tokens);
        match self.format {
            Written::Azure => writeln!(self.to, "{},{input},{output}", stamp::show(at_ns)),
            Written::BurstGpt => {
                let at = stamp::decimal(at_ns, SECOND_NS);
                let session = self.session(row).map_or_else(String::new, |session| session.to_string());
                writeln!(self.to, "{at},{session},{input},{output}")
            }
            Written::Bailian => {
                let (at, ids) = (stamp::decimal(at_ns, SECOND_NS), self.ids(row, seq));
                let parent = row.parent.map_or(-1, i64::from);
                writeln!(
                    self.to,
                    "{{\"chat_id\": {seq}, \"parent_chat_id\": {parent}, \"timestamp\": {at}, \
                     \"input_length\": {input}, \"output_length\": {output}, \"type\": \"text\", \"turn\": {turn}, \
                     \"hash_ids\": {ids:?}}}"
                )
            }
            Written::Aiperf => self.aiperf(row, at_ns, seq),
            Written::Mooncake => {
                let (at, ids) = (stamp::decimal(at_ns, MS_NS), self.ids(row, seq));
                writeln!(
                    self.to,
                    "{{\"timestamp\": {at}, \"input_length\": {input}, \"output_length\": {output}, \
                     \"hash_ids\": {ids:?}}}"
                )
            }
        }
    }

    /// All that is written is with the file.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.to.flush()
    }

    fn aiperf(&mut self, row: &Row, at_ns: u64, seq: usize) -> io::Result<()> {
        let mut fields = Vec::new();
        if let Some(session) = self.session(row) {
            fields.push(format!("\"session_id\": \"{session}\""));
        }
        if self.timed {
            fields.push(format!("\"timestamp\": {}", stamp::decimal(at_ns, MS_NS)));
        }
        if let Some(think_ns) = row.think_ns {
            fields.push(format!("\"delay\": {}", stamp::decimal(think_ns, MS_NS)));
        }
        let (input, output) = (row.input_tokens, row.output_tokens);
        fields.push(format!("\"input_length\": {input}, \"output_length\": {output}"));
        if !row.blocks.is_empty() {
            fields.push(format!("\"hash_ids\": {:?}", self.ids(row, seq)));
        }
        if self.block_tokens.1 != MOONCAKE_BLOCK_TOKENS {
            fields.push(format!("\"block_size\": {}", self.block_tokens.1));
        }
        writeln!(self.to, "{{{}}}", fields.join(", "))
    }

    /// A number for the session, in the order in which sessions begin.
    fn session(&mut self, row: &Row) -> Option<u64> {
        let next = self.sessions.len() as u64;
        Some(*self.sessions.entry(row.session?).or_insert(next))
    }

    /// The ids of the row's blocks, one for every block that its prompt has in this format.
    fn ids(&mut self, row: &Row, seq: usize) -> Vec<u64> {
        let (from, to) = self.block_tokens;
        let named = blocks::resized(&row.blocks, row.input_tokens, from, to);
        let own = blocks::own(seq as u64, named.len());
        let all = named.iter().copied().chain(own).take(row.input_tokens.div_ceil(to) as usize);
        all.map(|id| self.names.of(id)).collect()
    }
}

/// Tokens per block in `format` of what has blocks of `given`.
pub(super) fn written_block_tokens(format: Written, given: u32) -> u32 {
    match format {
        Written::Mooncake => MOONCAKE_BLOCK_TOKENS,
        Written::Bailian => BAILIAN_BLOCK_TOKENS,
        Written::Aiperf | Written::Azure | Written::BurstGpt => given,
    }
}
