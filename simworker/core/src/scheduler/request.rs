//! A request as the scheduler carries it, from the queue to its end.

use std::sync::Arc;

use protocol::tokenizer::Token;

use crate::cache::{Sequence, Spelling};
use crate::namespace::CacheNames;
use crate::prompt::{Prompt, Spelled};
use crate::request::{Event, FinishReason, RequestId, Submit};

/// SGLang counts no more than this of a reply that is still to come when it admits requests.
const MOST_RESERVED: u32 = 4096;

/// A request between two steps; where it is kept says what state it is in.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: RequestId,
    pub(crate) prompt: Prompt,
    /// The most that the reply may have, by which it is reserved for.
    pub(crate) max_new: u32,
    /// What it will have: less if it ends by itself.
    pub(crate) length: u32,
    pub(crate) ignore_eos: bool,
    pub(crate) priority: Option<i64>,
    pub(crate) namespace: u64,
    pub(crate) routing_key: Option<u64>,
    /// No more of it than this is looked up in the cache.
    pub(super) match_limit: Option<u32>,
    pub(crate) names: Option<Arc<CacheNames>>,
    pub(crate) arrived_ns: u64,
    /// When it came to the queue, for the last time.
    pub(crate) waits_since_ns: u64,
    /// When it was admitted, for the last time.
    pub(crate) admitted_ns: u64,
    /// Its number among all that have entered the queue, and the tokens that prefill steps had computed by then.
    pub(crate) entered: u64,
    pub(crate) processed_before: u64,
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
    /// Those of them that were on the host.
    pub(crate) host: u32,
    pub(crate) queue_ns: u64,
}

impl Request {
    /// `max_new` is the most that the reply may have.
    pub(crate) fn new(submit: Submit, max_new: u32, arrived_ns: u64) -> Self {
        let Submit { id, prompt, ignore_eos, priority, namespace, names, room, .. } = submit;
        let Submit { routing_key, match_limit, .. } = submit;
        Self {
            id,
            prompt,
            max_new,
            length: submit.ends_after.map_or(max_new, |after| after.clamp(max_new.min(1), max_new)),
            ignore_eos,
            priority,
            namespace,
            routing_key,
            match_limit,
            names,
            arrived_ns,
            waits_since_ns: arrived_ns,
            admitted_ns: 0,
            entered: 0,
            processed_before: 0,
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

    /// Prompt and outputs so far, spelled for the cache.
    pub(crate) fn spelled(&self, spelling: Spelling) -> Spelled<'_> {
        self.prompt.spelled(self.produced, spelling)
    }

    /// The prompt and so much of the reply that `kv_len` tokens are covered. The last output has no KV as it was never fed
    /// back, unless its end came as a surprise.
    pub(crate) fn spelled_with_kv(&self, kv_len: usize, spelling: Spelling) -> Spelled<'_> {
        self.prompt.spelled(kv_len.saturating_sub(self.prompt.len()) as u32, spelling)
    }

    /// The part of what is spelled that a match may look at: the last token of it is left to be computed.
    pub(crate) fn to_match<'a>(&self, spelled: &'a Spelled<'_>) -> Sequence<'a> {
        spelled.first(self.match_limit.map_or(usize::MAX, |limit| limit as usize + 1))
    }

    /// The first `count` tokens of prompt and outputs so far, if there are so many.
    pub(crate) fn head(&self, count: usize) -> Option<Vec<Token>> {
        self.prompt.head(count, self.produced)
    }

    /// Whether log probabilities of the prompt are asked for: only that limits what is looked up.
    pub(crate) fn wants_logprobs(&self) -> bool {
        self.match_limit.is_some()
    }

    /// Whether it must end with `produced` tokens. Any other end, an abort too, SGLang sees only with the result.
    pub(crate) fn must_end(&self, produced: u32) -> bool {
        produced >= self.max_new
    }

    /// Tokens that a prefill has to compute after what was last found in the cache.
    pub(crate) fn prefill_work(&self) -> u64 {
        (self.len() as u64).saturating_sub(self.matched).max(1)
    }

    /// Prompt tokens found in the cache when it was first scheduled; 0 before.
    pub(crate) fn cached_tokens(&self) -> u32 {
        self.first_run.map_or(0, |run| run.cached)
    }

    /// Those of them that were on the host.
    pub(crate) fn host_tokens(&self) -> u32 {
        self.first_run.map_or(0, |run| run.host)
    }

    /// Output tokens that admission reserves for a request that has made `produced`.
    pub(crate) fn reserve(&self, produced: u32) -> u64 {
        u64::from((self.max_new - produced).min(MOST_RESERVED))
    }

    /// Why it ends, now that it does.
    pub(crate) fn reason(&self) -> FinishReason {
        let by_itself = if self.length < self.max_new { FinishReason::Stop } else { FinishReason::Length };
        self.stop.unwrap_or(by_itself)
    }

    pub(crate) fn finish(&self, at_ns: u64, reason: FinishReason) -> Event {
        let never = FirstRun { cached: 0, host: 0, queue_ns: at_ns.saturating_sub(self.arrived_ns) };
        let first_run = self.first_run.unwrap_or(never);
        Event::Finish {
            id: self.id,
            at_ns,
            reason,
            prompt_tokens: u32::try_from(self.prompt.len()).unwrap_or(u32::MAX),
            cached_tokens: first_run.cached,
            host_tokens: first_run.host,
            output_tokens: self.produced,
            retractions: self.retractions,
            queue_ns: first_run.queue_ns,
        }
    }
}
