//! Plans: the workers that one request goes to, one or two.
//!
//! A request is served by a regular worker alone, or by a pair: a prefill worker computes the prompt, a decode worker
//! streams the answer. The upstream call to each is a leg, with a lease of its own.

use crate::fleet::{PerRole, Role};
use crate::index::Matches;
use crate::request::{Assignment, RouteRequest, RoutingKeys, Unroutable};
use crate::router::Proposal;
use crate::{PromptView, ScopeId, WorkerId};

/// Which workers of each role may serve a request; `None` where nobody of the role serves its model. See
/// [`crate::Router::scopes`].
pub type Scopes = PerRole<Option<ScopeId>>;

/// The index's answers for a request's prompt in each of its scopes; empty where the policy of the role follows no
/// prefixes.
pub type PlanMatches = PerRole<Matches>;

/// A request, as far as a plan for it looks at it.
#[derive(Debug, Clone, Copy)]
pub struct PlanRequest<'a> {
    /// The workers that may serve it.
    pub scopes: Scopes,
    /// Its prompt.
    pub prompt: PromptView<'a>,
    /// Length of the prompt in tokens, as an estimate.
    pub prompt_tokens: u64,
    /// Most output tokens it may give, if it says so.
    pub output_budget: Option<u64>,
    /// What its headers say about where it wants to go. A target that is a prefill or a decode worker is that of this leg
    /// alone; the other keys are those of both.
    pub keys: RoutingKeys<'a>,
    /// Workers that it has been tried on, of any role.
    pub exclude: &'a [WorkerId],
    /// Whether its client prefers a pair, if it says so.
    pub prefers_pair: Option<bool>,
}

/// Where a request goes, booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Who computes the prompt; `None` where the worker that answers does.
    pub prefill: Option<Assignment>,
    /// Who answers: a decode worker, or a regular one where there is no prefill leg.
    pub decode: Assignment,
}

/// What would be booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanProposal {
    /// As [`Plan::prefill`].
    pub prefill: Option<Proposal>,
    /// As [`Plan::decode`].
    pub decode: Proposal,
}

/// One of a request's upstream calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leg {
    /// The only one.
    Whole,
    /// That which computes the prompt.
    Prefill,
    /// That which answers.
    Decode,
}

/// A request for which there is no plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} leg: {why}", .leg.label())]
pub struct NoPlan {
    /// The leg that nobody can have.
    pub leg: Leg,
    /// Why.
    pub why: Unroutable,
}

/// Pair or regular worker: decides where a model is served by both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairPreference {
    /// Pairs are preferred, unless a request says otherwise.
    pub prefer: bool,
    /// A request goes to a regular worker nevertheless if the chosen prefill worker would have to compute fewer tokens of
    /// its prompt than this: handing over the cache costs more than it gives. 0 is never.
    pub least_uncached_tokens: u64,
}

// === impl PlanRequest ===

impl<'a> PlanRequest<'a> {
    /// Its leg on the workers of `scope`.
    pub(crate) fn leg(&self, scope: ScopeId) -> RouteRequest<'a> {
        let Self { prompt, prompt_tokens, output_budget, keys, exclude, .. } = *self;
        RouteRequest { scope, prompt, prompt_tokens, output_budget, keys, exclude }
    }
}

// === impl Leg ===

impl Leg {
    /// The word used in metrics and answers: that of its worker's role.
    #[must_use]
    pub fn label(self) -> &'static str {
        self.role().label()
    }

    /// The role of its worker.
    #[must_use]
    pub fn role(self) -> Role {
        match self {
            Leg::Whole => Role::Regular,
            Leg::Prefill => Role::Prefill,
            Leg::Decode => Role::Decode,
        }
    }
}

// === impl PairPreference ===

impl Default for PairPreference {
    fn default() -> Self {
        Self { prefer: true, least_uncached_tokens: 0 }
    }
}
