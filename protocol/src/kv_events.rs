//! KV events: what an engine tells about the blocks in its prefix cache, so that others can mirror it.
//!
//! A batch is a msgpack array `[seconds, events, rank]`. Events have had two shapes ([`Shape`]); [`decode`] takes
//! both. The wire around a batch (topic, sequence number, replay) is not here.

mod hash;
mod pack;
mod record;
#[cfg(test)]
mod tests;
mod unpack;

use std::sync::Arc;

use crate::tokenizer::Token;

pub use hash::{BlockHash, Digest, NamespaceSeed, chain, salt_seed};
pub use pack::encode;
pub use record::append;
pub use unpack::{DecodeError, decode};

/// Where a block is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Medium {
    /// GPU memory.
    Gpu,
    /// Pinned memory of the host.
    CpuPinned,
    /// A disk.
    Disk,
    /// A store outside the machine.
    External,
}

impl Medium {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Gpu, Self::CpuPinned, Self::Disk, Self::External];

    /// SGLang's word for it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Gpu => "GPU",
            Self::CpuPinned => "CPU_PINNED",
            Self::Disk => "DISK",
            Self::External => "EXTERNAL",
        }
    }

    /// The one with that [label](Self::label).
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|medium| medium.label() == label)
    }
}

/// Something that happened to blocks of a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvEvent {
    /// Blocks are there that were not.
    Stored(Stored),
    /// Blocks are gone.
    Removed(Removed),
    /// Everything is gone.
    Cleared,
}

/// Consecutive blocks of one sequence that have been stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// One for each block.
    pub hashes: Vec<BlockHash>,
    /// The block before the first of them; none at the beginning of a sequence.
    pub parent: Option<BlockHash>,
    /// The tokens of all blocks.
    pub tokens: Vec<Token>,
    /// Tokens per block.
    pub block_size: u32,
    /// A number of a LoRA adapter. SGLang leaves it out.
    pub lora_id: Option<i64>,
    /// Where they are.
    pub medium: Option<Medium>,
    /// The salt of the request that stored them.
    pub cache_salt: Option<Arc<str>>,
    /// The session of the request that stored them.
    pub session_id: Option<Arc<str>>,
    /// The name of the LoRA adapter that they are of.
    pub lora_name: Option<Arc<str>>,
}

/// Blocks that have been removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// Which.
    pub hashes: Vec<BlockHash>,
    /// Where they were.
    pub medium: Option<Medium>,
}

/// Events of one cache, in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// When they were published, in seconds since the epoch.
    pub ts: f64,
    /// What happened.
    pub events: Vec<KvEvent>,
    /// The data-parallel rank whose cache it is.
    pub rank: Option<u32>,
}

/// How events are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Shape {
    /// As maps with a `type`, as SGLang does since 2026.
    #[default]
    Map,
    /// As arrays that begin with the type, as SGLang did before.
    Array,
}
