//! A request as the scheduler carries it, from the queue to its end.

use std::borrow::Cow;
use std::sync::Arc;

use protocol::tokenizer::{Token, block_token, reply_block};

use crate::request::{Event, FinishReason, RequestId, Submit};

/// SGLang counts no more than this of a reply that is still to come when it admits requests.
const MOST_RESERVED: u32 = 4096;

/// A request between two steps; where it is kept says what state it is in.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: RequestId,
    pub(crate) prompt: Arc<[Token]>,
    pub(crate) max_new: u32,
    pub(crate) ignore_eos: bool,
    pub(crate) priority: i64,
    pub(crate) namespace: u64,
    pub(crate) arrived_ns: u64,
    /// Output tokens so far; while it is in the running batch, those at the time it joined.
    pub(crate) produced: u32,
    /// When the newest of them came; 0 before the first.
    pub(crate) token_ns: u64,
    pub(crate) first_run: Option<FirstRun>,
    pub(crate) retractions: u32,
    /// What joins it to the same request in another engine, if that has a part in it.
    pub(crate) room: Option<u64>,
    /// It ends at the next result, for this reason.
    pub(crate) stop: Option<FinishReason>,
    /// The order of the queue puts it last, as another one is about to compute what it needs.
    pub(crate) waits_for_prefix: bool,
    /// What the queue's order last found in the cache for it.
    pub(crate) matched: u64,
}

/// What became known when a request was scheduled for the first time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FirstRun {
    pub(crate) cached: u32,
    pub(crate) queue_ns: u64,
}

impl Request {
    /// `max_new` is the length that the reply will have.
    pub(crate) fn new(submit: Submit, max_new: u32, arrived_ns: u64) -> Self {
        let Submit { id, prompt, ignore_eos, priority, namespace, room, .. } = submit;
        Self {
            id,
            prompt,
            max_new,
            ignore_eos,
            priority,
            namespace,
            arrived_ns,
            produced: 0,
            token_ns: 0,
            first_run: None,
            retractions: 0,
            room,
            stop: None,
            waits_for_prefix: false,
            matched: 0,
        }
    }

    /// Prompt and outputs so far: what a prefill has to cover.
    pub(crate) fn len(&self) -> usize {
        self.prompt.len() + self.produced as usize
    }

    /// The tokens of prompt and outputs so far.
    pub(crate) fn tokens(&self) -> Cow<'_, [Token]> {
        self.tokens_with(self.produced)
    }

    /// The tokens that have KV when the request ends: the last output was never fed back.
    pub(crate) fn tokens_with_kv(&self) -> Cow<'_, [Token]> {
        self.tokens_with(self.produced.saturating_sub(1))
    }

    fn tokens_with(&self, outputs: u32) -> Cow<'_, [Token]> {
        if outputs == 0 {
            return Cow::Borrowed(&self.prompt);
        }
        let reply = reply_block(&self.prompt);
        let mut tokens = Vec::with_capacity(self.prompt.len() + outputs as usize);
        tokens.extend_from_slice(&self.prompt);
        tokens.extend((0..outputs).map(|i| block_token(reply, i)));
        Cow::Owned(tokens)
    }

    /// Prompt tokens found in the cache when it was first scheduled; 0 before.
    pub(crate) fn cached_tokens(&self) -> u32 {
        self.first_run.map_or(0, |run| run.cached)
    }

    /// Output tokens that admission reserves for a request that has made `produced`.
    pub(crate) fn reserve(&self, produced: u32) -> u64 {
        u64::from((self.max_new - produced).min(MOST_RESERVED))
    }

    /// Why it ends, now that it does.
    pub(crate) fn reason(&self) -> FinishReason {
        self.stop.unwrap_or(FinishReason::Length)
    }

    pub(crate) fn finish(&self, at_ns: u64, reason: FinishReason) -> Event {
        let never = FirstRun { cached: 0, queue_ns: at_ns.saturating_sub(self.arrived_ns) };
        let first_run = self.first_run.unwrap_or(never);
        Event::Finish {
            id: self.id,
            at_ns,
            reason,
            prompt_tokens: u32::try_from(self.prompt.len()).unwrap_or(u32::MAX),
            cached_tokens: first_run.cached,
            output_tokens: self.produced,
            retractions: self.retractions,
            queue_ns: first_run.queue_ns,
        }
    }
}
