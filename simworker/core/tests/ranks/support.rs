//! A world with some ranks: arrivals in order of time, deadlines in between.

use std::sync::Arc;

use protocol::tokenizer::block_token;
use simworker_core::{DpConfig, EngineConfig, Event, LoadBalance, Ranks, RequestId, Submit, preset};

pub(crate) fn a100() -> EngineConfig {
    EngineConfig::of(preset("a100-80g-llama3-8b").unwrap())
}

pub(crate) fn dp(size: u32, balance: LoadBalance) -> DpConfig {
    DpConfig { size, balance, attention: false }
}

/// A request with a prompt of its own.
pub(crate) fn request(id: u64, prompt: u32, max_new_tokens: u32) -> Submit {
    shared(id, id + 1, prompt, max_new_tokens)
}

/// A request whose prompt is the beginning of a named block.
pub(crate) fn shared(id: u64, block: u64, prompt: u32, max_new_tokens: u32) -> Submit {
    let prompt: Arc<[u32]> = (0..prompt).map(|at| block_token(block, at)).collect();
    Submit::new(RequestId(id), prompt, max_new_tokens)
}

/// Does what is due before `now_ns`, as a world does.
pub(crate) fn run_to(ranks: &mut Ranks, now_ns: u64, events: &mut Vec<Event>) {
    while let Some(due) = ranks.next_deadline().filter(|due| *due < now_ns) {
        ranks.advance(due, events);
    }
}

/// Runs until nothing is left.
pub(crate) fn finish(ranks: &mut Ranks, events: &mut Vec<Event>) {
    while let Some(due) = ranks.next_deadline() {
        ranks.advance(due, events);
    }
    ranks.check().unwrap();
    assert!(ranks.is_idle());
}

/// When a request got its first token.
pub(crate) fn first_ns(events: &[Event], wanted: u64) -> u64 {
    let first = |event: &Event| match event {
        Event::FirstToken { id, at_ns, .. } if id.0 == wanted => Some(*at_ns),
        _ => None,
    };
    events.iter().find_map(first).unwrap()
}

/// When a request ended.
pub(crate) fn end_ns(events: &[Event], wanted: u64) -> u64 {
    let end = |event: &Event| match event {
        Event::Finish { id, at_ns, .. } if id.0 == wanted => Some(*at_ns),
        _ => None,
    };
    events.iter().find_map(end).unwrap()
}
