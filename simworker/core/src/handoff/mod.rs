//! Prefill and decode on different engines: what both sides of a hand-off have in common.
//!
//! A request is given to a prefill engine and to a decode engine, and both know it by the same *room*. The decode
//! engine takes slots for the whole prompt and asks for the KV ([`Event::KvWanted`](crate::Event::KvWanted)); the
//! prefill engine computes it, sends it and is done ([`Event::KvSent`](crate::Event::KvSent)); the decode engine
//! goes on. Engines know nothing of each other: the world carries what one says to the other.

mod failure;
mod line;
mod timed;
mod transfers;
mod wanted;

pub(crate) use failure::{Cause, Stage};
pub(crate) use line::Line;
pub(crate) use timed::Timed;
pub(crate) use transfers::{Arrival, Transfers};
pub(crate) use wanted::Wanted;

use crate::link::Link;
use crate::preset::Preset;

/// What an engine does of the work on a request (`--disaggregation-mode`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum EngineRole {
    /// All of it.
    #[default]
    Whole,
    /// It computes the KV of prompts and sends it on.
    Prefill,
    /// It gets KV and makes the reply.
    Decode,
}

impl EngineRole {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Whole, Self::Prefill, Self::Decode];

    /// SGLang's word for it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Whole => "null",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }

    /// The one with that [label](Self::label).
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.label() == label)
    }
}

/// How engines hand KV over. Only looked at in the roles [`EngineRole::Prefill`] and [`EngineRole::Decode`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HandoffConfig {
    /// What leaves a prefill engine, and how fast.
    pub link: Link,
    /// Bytes of KV per token over the whole model.
    pub kv_bytes_per_token: f64,
    /// How long a prefill engine waits for the decode side to ask for a request's KV, in nanoseconds
    /// (`SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT`).
    pub bootstrap_timeout_ns: u64,
    /// How long a decode engine waits for KV that it has asked for, in nanoseconds
    /// (`SGLANG_DISAGGREGATION_WAITING_TIMEOUT`).
    pub transfer_timeout_ns: u64,
    /// Tokens that a decode engine keeps free for each request that holds KV (`--num-reserved-decode-tokens`).
    pub num_reserved_decode_tokens: u32,
    /// A decode engine keeps KV of requests that have ended and finds it again
    /// (`--disaggregation-decode-enable-radix-cache`). Prefill engines send whole prompts all the same.
    pub decode_radix_cache: bool,
}

impl HandoffConfig {
    /// SGLang's defaults for a preset.
    #[must_use]
    pub fn of(preset: &Preset) -> Self {
        const TIMEOUT_NS: u64 = 300_000_000_000;
        Self {
            link: Link::default(),
            kv_bytes_per_token: preset.model.kv_bytes_per_token,
            bootstrap_timeout_ns: TIMEOUT_NS,
            transfer_timeout_ns: TIMEOUT_NS,
            num_reserved_decode_tokens: 512,
            decode_radix_cache: false,
        }
    }
}

/// What went wrong between two engines, as the world tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HandoffFault {
    /// The KV of one request did not get through.
    Transfer,
    /// The other engine is gone.
    PeerLost,
    /// The other engine was never found.
    Unreached,
}

/// The requests of a hand-off by what they wait for: the figures of `/v1/loads` under `disaggregation` and of the
/// gauges. All are 0 in the role [`EngineRole::Whole`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HandoffLoads {
    /// Prefill: requests that the decode side has not asked for (`prefill_bootstrap_queue_reqs`).
    pub bootstrap: u64,
    /// Prefill: requests that are computed and whose KV is on its way (`prefill_inflight_queue_reqs`).
    pub inflight: u64,
    /// Decode: requests that hold no KV yet (`decode_prealloc_queue_reqs`).
    pub prealloc: u64,
    /// Decode: requests whose KV has not arrived (`decode_transfer_queue_reqs`).
    pub transfer: u64,
    /// Decode: requests on the host for lack of KV (`decode_retracted_queue_reqs`).
    pub retracted: u64,
    /// Decode: requests whose KV has arrived, and that have not joined the batch (`queues.prealloc_ready`).
    pub ready: u64,
    /// Their tokens (`num_prealloc_ready_tokens`).
    pub ready_tokens: u64,
    /// Prompt tokens of the requests counted in `prealloc` as a share of all KV (`pending_prealloc_token_usage`).
    pub pending_usage: f64,
    /// Prefill: speed of the last transfer that was completed, in 2³⁰ bytes per second as SGLang counts GB; 0 before
    /// (`kv_transfer_speed_gb_s`).
    pub transfer_gb_s: f64,
    /// Prefill: how long that transfer took from its first send on, in milliseconds (`kv_transfer_latency_ms`).
    pub transfer_ms: f64,
}
