//! What goes into an engine and what comes out: requests, events, refusals.

use std::sync::Arc;

use protocol::kv_events::KvEvent;
use protocol::tokenizer::Token;
use thiserror::Error;

use crate::namespace::CacheNames;
use crate::prompt::Prompt;

/// A request's name, chosen by the caller; unique among those that have not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A request to generate. Token `i` of the reply is `block_token(reply_block(prompt), i)`; replies run to their full
/// length unless [`ends_after`](Self::ends_after) says when they end.
#[derive(Debug, Clone)]
pub struct Submit {
    /// Its name.
    pub id: RequestId,
    /// The prompt, at least one token.
    pub prompt: Prompt,
    /// Length of the reply; cut down to what fits, and never below one token.
    pub max_new_tokens: u32,
    /// Whether the client said that the reply will not end early: its whole length is reserved at admission then,
    /// not only the usual share.
    pub ignore_eos: bool,
    /// Its priority, for priority scheduling and for [`Eviction::Priority`](crate::cache::Eviction::Priority); a request
    /// without one comes last.
    pub priority: Option<i64>,
    /// Requests of different namespaces share no KV; 0 is the common one.
    pub namespace: u64,
    /// What the namespace is called in events about KV.
    pub names: Option<Arc<CacheNames>>,
    /// What joins it to the same request in another engine: needed in the roles
    /// [`Prefill`](crate::EngineRole::Prefill) and [`Decode`](crate::EngineRole::Decode), and unique there among those
    /// that have not ended.
    pub room: Option<u64>,
    /// Output tokens after which the reply ends by itself ([`FinishReason::Stop`]), though more were allowed.
    pub ends_after: Option<u32>,
    /// No more of the prompt than this is looked up in the cache.
    pub match_limit: Option<u32>,
    /// Hash of the routing key, for the schedule that keeps equal keys together.
    pub routing_key: Option<u64>,
    /// It ends with its prefill and makes no token: an embedding, a score.
    pub is_prefill_only: bool,
}

impl Submit {
    /// A request whose reply has just this length and that shares KV with all others.
    #[must_use]
    pub fn new(id: RequestId, prompt: Arc<[Token]>, max_new_tokens: u32) -> Self {
        Self::of_prompt(id, prompt.into(), max_new_tokens)
    }

    /// As [`Submit::new`], for a prompt that may be known by its runs alone.
    #[must_use]
    pub fn of_prompt(id: RequestId, prompt: Prompt, max_new_tokens: u32) -> Self {
        Self {
            id,
            prompt,
            max_new_tokens,
            ignore_eos: true,
            priority: None,
            namespace: 0,
            names: None,
            room: None,
            ends_after: None,
            match_limit: None,
            routing_key: None,
            is_prefill_only: false,
        }
    }
}

/// What happened in an engine. Times never go back from one event to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A request's prefill is complete and with it its first token.
    FirstToken {
        /// Whose.
        id: RequestId,
        /// When.
        at_ns: u64,
        /// Prompt tokens found in the cache when it was first scheduled.
        cached_tokens: u32,
        /// Those of them that were on the host.
        host_tokens: u32,
        /// From its arrival until it was first scheduled.
        queue_ns: u64,
    },
    /// Output tokens other than first ones. A decode step gives one of these for all requests that were in the
    /// former step too, and one for each group that has joined since.
    Step {
        /// When.
        at_ns: u64,
        /// How long after the former token of the same request.
        gap_ns: u64,
        /// How many, at most one per request.
        tokens: u32,
    },
    /// A decode engine has slots for the whole prompt of a request: the world tells the prefill engine
    /// ([`Engine::kv_wanted`](crate::Engine::kv_wanted)).
    KvWanted {
        /// Whose.
        id: RequestId,
        /// Its room.
        room: u64,
        /// When.
        at_ns: u64,
        /// Tokens of KV that it lacks.
        tokens: u32,
    },
    /// The last byte of a request's KV has left a prefill engine and arrived: the world tells the decode engine
    /// ([`Engine::kv_arrived`](crate::Engine::kv_arrived)). The request's end comes next.
    KvSent {
        /// Whose.
        id: RequestId,
        /// Its room.
        room: u64,
        /// When.
        at_ns: u64,
        /// Prompt tokens found in the cache when it was first scheduled.
        cached_tokens: u32,
        /// Tokens whose KV was sent.
        tokens: u64,
        /// From the first send to the arrival of the last byte.
        span_ns: u64,
    },
    /// What has become of blocks of KV, if the engine [tells](crate::EngineConfig::kv_events). It is told when SGLang
    /// publishes it, which may be much later than it happened.
    Kv {
        /// The rank whose cache it is.
        rank: u32,
        /// When it is told.
        at_ns: u64,
        /// What, in its order; something at least.
        events: Vec<KvEvent>,
    },
    /// The end of a request; every accepted one has exactly one.
    Finish {
        /// Whose.
        id: RequestId,
        /// When.
        at_ns: u64,
        /// Why.
        reason: FinishReason,
        /// Length of the prompt.
        prompt_tokens: u32,
        /// Prompt tokens found in the cache when it was first scheduled; 0 if it never was.
        cached_tokens: u32,
        /// Those of them that were on the host.
        host_tokens: u32,
        /// Length of the reply.
        output_tokens: u32,
        /// How often it was thrown out of the batch for lack of KV.
        retractions: u32,
        /// From its arrival until it was first scheduled, or until its end if it never was.
        queue_ns: u64,
    },
}

impl Event {
    /// When it happened.
    #[must_use]
    pub fn at_ns(&self) -> u64 {
        match self {
            Self::FirstToken { at_ns, .. }
            | Self::Step { at_ns, .. }
            | Self::KvWanted { at_ns, .. }
            | Self::KvSent { at_ns, .. }
            | Self::Kv { at_ns, .. }
            | Self::Finish { at_ns, .. } => *at_ns,
        }
    }
}

/// Why a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The reply has the length that was asked for, or the most that fits.
    Length,
    /// The reply has ended by itself.
    Stop,
    /// It was aborted.
    Abort {
        /// For the client.
        message: &'static str,
    },
    /// The engine could not go on with it.
    Error {
        /// The HTTP status of it.
        status: u16,
        /// For the client.
        message: &'static str,
    },
}

/// Why a request was not accepted. Its text is for the client.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// There is nothing to compute.
    #[error("The prompt is empty.")]
    EmptyPrompt,
    /// A request of that name has not ended yet.
    #[error("Duplicate request ID detected.")]
    DuplicateId,
    /// The prompt alone fills the context.
    #[error("The input ({input} tokens) is longer than the model's context length ({context} tokens).")]
    InputTooLong {
        /// Tokens in the prompt.
        input: u64,
        /// Tokens that the model can see.
        context: u64,
    },
    /// Prompt and reply together exceed the context.
    #[error(
        "Requested token count exceeds the model's maximum context length of {context} tokens. You requested a total \
         of {total} tokens: {input} tokens from the input messages and {output} tokens for the completion. Please \
         reduce the number of tokens in the input messages or the completion to fit within the limit."
    )]
    TotalTooLong {
        /// Tokens in the prompt.
        input: u64,
        /// Tokens asked for.
        output: u64,
        /// Their sum.
        total: u64,
        /// Tokens that the model can see.
        context: u64,
    },
    /// The prompt does not fit into the KV pool, or leaves no room for a reply.
    #[error(
        "Input length ({input} tokens) exceeds the maximum allowed length ({most} tokens). Use a shorter input or \
         enable --allow-auto-truncate."
    )]
    InputOverLimit {
        /// Tokens in the prompt.
        input: u64,
        /// The limit that it reached.
        most: u64,
    },
    /// An engine that hands KV over, or gets it, would not know whose it is.
    #[error("Disaggregated request received without bootstrap room id.")]
    NoRoom,
    /// Another request of that room has not ended.
    #[error("Bootstrap room {room} is in use by another request. Use a new one for each request.")]
    RoomTaken {
        /// The room.
        room: u64,
    },
    /// There is no such data-parallel rank.
    #[error("routed_dp_rank={rank} out of range [0, {size})")]
    NoSuchRank {
        /// The rank that was named.
        rank: u32,
        /// How many there are.
        size: u32,
    },
    /// A rank was named that is not the one of the room, by which the decode side will look for it.
    #[error(
        "follow_bootstrap_room conflict: routed_dp_rank is {rank}, but room {room} belongs to rank {expected}. \
         Leave the rank out, or choose a room that is {rank} modulo the number of ranks."
    )]
    RankAgainstRoom {
        /// The rank that was named.
        rank: u32,
        /// The room.
        room: u64,
        /// The rank of the room.
        expected: u32,
    },
    /// It has a priority, which counts for nothing here.
    #[error("Using priority is disabled for this server. Please send a new request without a priority.")]
    PrioritiesDisabled,
    /// Too many wait already.
    #[error("The request queue is full.")]
    QueueFull,
}

impl Refusal {
    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::QueueFull | Self::PrioritiesDisabled => 503,
            _ => 400,
        }
    }

    /// Whether SGLang's scheduler says this, so that the client of a stream gets it as a frame with
    /// `finish_reason.type = "abort"` inside a 200 response; other refusals come before there is a response.
    #[must_use]
    pub fn is_scheduler_abort(&self) -> bool {
        matches!(
            self,
            Self::InputOverLimit { .. }
                | Self::QueueFull
                | Self::PrioritiesDisabled
                | Self::NoRoom
                | Self::RoomTaken { .. }
        )
    }
}
