//! Numbers that stand for names.

use protocol::tokenizer::mix;

/// A number for a text, another one for each seed.
pub(super) fn hash(seed: u64, text: &str) -> u64 {
    text.bytes().fold(mix(seed), |hash, byte| mix(hash ^ u64::from(byte)))
}
