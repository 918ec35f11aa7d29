//! The names of blocks: a chain of SHA-256 digests along a sequence.

use sha2::{Digest as _, Sha256};

use crate::tokenizer::Token;

/// The name of a block in events: the first eight bytes of its [`Digest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockHash(pub i64);

/// SHA-256 over a block and, through the digest of the one before it, over the whole sequence up to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest([u8; 32]);

/// Makes the names of blocks of one namespace differ from those of all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamespaceSeed([u8; 32]);

impl Digest {
    /// The block's name.
    #[must_use]
    pub fn hash(self) -> BlockHash {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        BlockHash(i64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }
}

/// The digest of a block that follows the one with the digest `parent`. Tokens count as little-endian `u32`.
#[must_use]
pub fn chain(parent: Option<Digest>, block: &[Token]) -> Digest {
    let mut sha = Sha256::new();
    if let Some(Digest(bytes)) = parent {
        sha.update(bytes);
    }
    block.iter().for_each(|token| sha.update(token.to_le_bytes()));
    Digest(sha.finalize().into())
}

/// What stands before the first block of a sequence with a cache salt. It is the parent of no event.
#[must_use]
pub fn salt_seed(salt: &str) -> Digest {
    Digest(Sha256::new().chain_update(b"sglang-cache-salt-v1\0").chain_update(salt).finalize().into())
}

impl NamespaceSeed {
    /// The seed of a namespace; none for the common one.
    #[must_use]
    pub fn of(extra_key: Option<&str>, cache_salt: Option<&str>) -> Option<Self> {
        if extra_key.is_none() && cache_salt.is_none() {
            return None;
        }
        let mut sha = Sha256::new_with_prefix(b"sglang-kv-event-namespace-v1");
        for part in [extra_key, cache_salt] {
            let Some(part) = part else {
                sha.update([0]);
                continue;
            };
            sha.update([1]);
            sha.update((part.len() as u64).to_le_bytes());
            sha.update(part);
        }
        Some(Self(sha.finalize().into()))
    }

    /// The name of a block in this namespace.
    #[must_use]
    pub fn apply(self, hash: BlockHash) -> BlockHash {
        let sha = Sha256::new().chain_update(self.0).chain_update(hash.0.to_be_bytes());
        Digest(sha.finalize().into()).hash()
    }
}
