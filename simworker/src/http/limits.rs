//! What one body may ask for at most. SGLang is bound by its memory and by its model; a mock that serves all its workers
//! from one thread says what it takes, and refuses the rest with 400.

use super::failure::Failure;

/// Longest request body, in bytes: a full context as token ids takes about 1.5 MB.
pub(super) const MAX_BODY_BYTES: usize = 64 << 20;
/// Longest body, in bytes, that is read to its end though it is refused.
pub(super) const MAX_DROPPED_BYTES: u64 = 1 << 30;
/// Answers to each prompt.
pub(super) const MAX_N: u64 = 128;
/// Requests of a body: prompts times answers to each.
pub(super) const MAX_REQUESTS: u64 = 8192;
/// Tokens of all pairs of a query and a text.
pub(super) const MAX_PAIRED_TOKENS: u64 = 64 << 20;
/// Alternatives, or given tokens, at each place.
pub(super) const MAX_ALTERNATIVES: u64 = 1024;
/// Log-probabilities in all answers to a body.
pub(super) const MAX_LOGPROBS: u64 = 4 << 20;
/// Stop strings, as in SGLang.
pub(super) const MAX_STOPS: u64 = 32;
/// Bytes of a stop string.
pub(super) const MAX_STOP_BYTES: u64 = 4096;
/// Tokens of all replies to a body in which stops are looked for.
pub(super) const MAX_SEARCHED_TOKENS: u64 = 4 << 20;

/// Refuses more than there may be; `what` names it in the plural.
pub(super) fn check(what: &str, asked: u64, most: u64) -> Result<(), Failure> {
    if asked <= most {
        return Ok(());
    }
    Err(Failure::bad_request(format!("at most {most} {what} are allowed, got {asked}")))
}
