//! What goes into a decision and what comes out of it.

use crate::ledger::LeaseId;
use crate::policy::{PolicyId, Reason};
use crate::{PromptView, ScopeId, WorkerId};

/// A request, as far as routing looks at it.
#[derive(Debug, Clone, Copy)]
pub struct RouteRequest<'a> {
    /// The workers that may serve it: see [`crate::Router::scope`].
    pub scope: ScopeId,
    /// Its prompt.
    pub prompt: PromptView<'a>,
    /// Length of the prompt in tokens, as an estimate.
    pub prompt_tokens: u64,
    /// Most output tokens it may give, if it says so.
    pub output_budget: Option<u64>,
    /// What its headers say about where it wants to go.
    pub keys: RoutingKeys<'a>,
    /// Workers that it has been tried on.
    pub exclude: &'a [WorkerId],
}

/// Routing keys of a request, from its headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RoutingKeys<'a> {
    /// The worker that it asks for: its index in the order of adding, or its URL.
    pub target_worker: Option<&'a str>,
    /// The key by which requests that belong together are known.
    pub routing_key: Option<&'a str>,
    /// What tells clients apart when they send no key: the first of Authorization, X-Forwarded-For and Cookie, without
    /// the router's own key.
    pub implicit: Option<&'a str>,
}

/// Where a request goes, booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    /// The chosen worker.
    pub worker: WorkerId,
    /// The booking; must be ended by [`crate::Router::finish`].
    pub lease: LeaseId,
    /// The policy that decided; another one may rule when the request ends.
    pub policy: PolicyId,
    /// Why that worker: one of the policy's reasons.
    pub reason: Reason,
    /// Characters of the prompt that the index believes to be in that worker's cache.
    pub matched_chars: u64,
    /// Characters of the prompt that the index looked at.
    pub prompt_chars: u64,
    /// Prompt tokens that the router believes to be in that worker's cache; `None` where the policy holds no such belief.
    pub predicted_cached_tokens: Option<u64>,
    /// What that rests on.
    pub grounds: Grounds,
}

/// What the belief in a worker's cache rested on when a request was booked there. Times are those of the index's clock,
/// which counts its credits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Grounds {
    /// When the prompt was looked up.
    pub looked: u64,
    /// When the worker was last credited with the head of what was matched.
    pub head_credited: u64,
    /// It had been credited with all that was matched before this router looked up any prompt that was still without a
    /// first token from that worker. So what was believed in was not still being computed.
    pub settled: bool,
}

/// Nobody serves the model that was asked for, and everybody says which one they serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no worker serves the model that was asked for")]
pub struct UnknownModel;

/// Why a request goes nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unroutable {
    /// Nobody serves this scope, or those who do are draining.
    #[error("no worker serves this model")]
    NoWorkers,
    /// There are workers, and none is healthy.
    #[error("no worker is available: all {workers} are unhealthy")]
    NoneHealthy {
        /// Workers in the scope.
        workers: usize,
    },
    /// There are healthy workers, none was tried, and their breakers let nobody through.
    #[error("no worker is available: the breakers of all healthy ones are open")]
    BreakersOpen {
        /// Nanoseconds until the first of them may be tried; 0 if one is on trial, as that may end at any time.
        retry_after_ns: u64,
    },
    /// Every healthy worker has been tried, or is kept out by its breaker.
    #[error("no worker is left to try: {tried} have been tried")]
    AllTried {
        /// Healthy workers in the scope that were excluded; at least 1.
        tried: usize,
    },
    /// Every prefill worker that could have it has as many decode streams running on what it computed as it may have. One
    /// of them will end.
    #[error("every prefill worker that could have it has reached its limit of decode streams")]
    DispatchLimit,
    /// The request asks for a worker that cannot have it.
    #[error("the target worker that was asked for is not available")]
    TargetUnavailable,
}
