//! From one form to another, and to a form that tells nothing of what was said.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};

use sha2::{Digest, Sha256};

use super::write::{Writer, written_block_tokens};
use super::{Counts, Format, Rows, TraceError};
use crate::scenario::ScenarioError;

/// A format that can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in `Format`")]
pub enum Written {
    Mooncake,
    Aiperf,
    Bailian,
    Azure,
    BurstGpt,
}

impl Written {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::Mooncake, Self::Aiperf, Self::Bailian, Self::Azure, Self::BurstGpt];

    /// The format that reads it.
    #[must_use]
    pub fn format(self) -> Format {
        match self {
            Self::Mooncake => Format::Mooncake,
            Self::Aiperf => Format::Aiperf,
            Self::Bailian => Format::Bailian,
            Self::Azure => Format::Azure,
            Self::BurstGpt => Format::BurstGpt,
        }
    }
}

impl Format {
    /// The format that an anonymous copy is written in: its own where that can be written and tells no more than the copy
    /// has.
    #[must_use]
    pub fn of_anonymous(self) -> Written {
        match self {
            Self::Mooncake => Written::Mooncake,
            Self::Bailian => Written::Bailian,
            Self::Azure => Written::Azure,
            Self::BurstGpt => Written::BurstGpt,
            Self::Aiperf | Self::ShareGpt | Self::Weka | Self::Router => Written::Aiperf,
        }
    }

    /// Whether it says what prompts share.
    #[must_use]
    pub fn tells_blocks(self) -> bool {
        !matches!(self, Self::Azure | Self::BurstGpt)
    }
}

/// What blocks are called in the copy.
pub struct Names(Naming);

enum Naming {
    /// Numbers in the order in which blocks first come.
    Numbered(HashMap<u64, u64>),
    /// Hashes with a key.
    Hashed([u8; 32]),
}

impl Names {
    /// Numbers in the order in which blocks first come, as Mooncake's traces have them.
    #[must_use]
    pub fn numbered() -> Self {
        Self(Naming::Numbered(HashMap::new()))
    }

    /// Hashes that nobody can invert or recompute without `salt`; the same salt gives a block the same name in every file.
    #[must_use]
    pub fn salted(salt: &[u8]) -> Self {
        let key = Sha256::new().chain_update(b"trace block names\0").chain_update(salt).finalize();
        Self(Naming::Hashed(key.into()))
    }

    pub(super) fn of(&mut self, block: u64) -> u64 {
        match &mut self.0 {
            Naming::Numbered(names) => {
                let next = names.len() as u64;
                *names.entry(block).or_insert(next)
            }
            Naming::Hashed(key) => {
                let hash = Sha256::new().chain_update(*key).chain_update(block.to_be_bytes()).finalize();
                // 63 bits: many tools read signed numbers.
                hash.iter().take(8).fold(0, |name, byte| name << 8 | u64::from(*byte)) >> 1
            }
        }
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A key is not printed, not even by mistake.
        f.write_str("Names")
    }
}

/// Why there is no copy.
#[derive(Debug)]
pub enum ConvertError {
    /// The trace.
    Trace(TraceError),
    /// The copy cannot be written.
    Output(io::Error),
}

impl From<io::Error> for ConvertError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    /// What was met on the way.
    pub counts: Counts,
    /// The first bad row that was passed over, and what is wrong with it.
    pub first_skipped: Option<String>,
    /// Whether the rows had times; without, the copy says 0 where the format needs one.
    pub timed: bool,
}

impl Converted {
    fn of(rows: &Rows) -> Self {
        let first_skipped = rows.first_skipped().map(str::to_owned);
        Self { counts: rows.counts(), first_skipped, timed: rows.timed() }
    }
}

/// Writes `rows` to `to` in `format`; `progress` is called now and then with the bytes read so far.
///
/// # Errors
/// The rows, the output, or blocks that cannot be cut to the size that the format has.
pub fn convert(
    mut rows: Rows,
    to: impl Write,
    format: Written,
    names: Names,
    progress: impl Fn(u64),
) -> Result<Converted, ConvertError> {
    let Some(first) = rows.next().transpose().map_err(ConvertError::Trace)? else {
        return Ok(Converted::of(&rows));
    };
    let (block_tokens, timed) = (rows.block_tokens(), rows.timed());
    check_blocks(format, block_tokens).map_err(|e| ConvertError::Trace(TraceError::Row(e)))?;
    let mut writer = Writer::new(to, format, block_tokens, timed, names)?;
    writer.row(&first)?;
    while let Some(row) = rows.next().transpose().map_err(ConvertError::Trace)? {
        writer.row(&row)?;
        progress(rows.bytes_read());
    }
    writer.finish()?;
    Ok(Converted::of(&rows))
}

fn check_blocks(format: Written, block_tokens: u32) -> Result<(), ScenarioError> {
    let written = written_block_tokens(format, block_tokens);
    if written.is_multiple_of(block_tokens) || block_tokens.is_multiple_of(written) {
        return Ok(());
    }
    let problem = format!("blocks of {block_tokens} tokens cannot become blocks of {written}");
    Err(ScenarioError::at(
        format_args!("--to {}", format.format().label()),
        problem,
        "use --to aiperf, which keeps their size",
    ))
}
