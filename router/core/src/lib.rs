//! Pure routing decisions: policies, prefix index, ledger, breakers, retries and admission.
//!
//! [`Router`] decides which worker gets a request and keeps the books about it. It reads no clock, no socket and no
//! hidden source of randomness: time comes in as nanoseconds, draws are a function of the seed and of the bookings so far.
//! So the same instance works behind the HTTP shell and in virtual time, and decides alike in both.
//!
//! The order of calls for one request: [`index::PrefixIndex::lookup`] outside the lock, [`Router::plan`] under it, then for
//! each leg the credit to the index, [`Router::first_token`], [`Router::progress`] and, whatever happened,
//! [`Router::finish`]. What the answer says of its cached tokens goes to [`Router::told_cached`].

// A `for` over a hash map calls a method of a trait, which `clippy.toml` cannot name.
#![warn(clippy::iter_over_hash_type)]

mod admission;
mod breaker;
mod draw;
mod fleet;
mod generated;
pub mod ids;
pub mod index;
mod ledger;
mod plan;
mod policy;
pub mod prompt;
mod request;
mod retry;
mod router;
pub mod spelling;

pub use admission::{Admission, AdmissionConfig, Arrival, Ticket};
pub use breaker::{BreakerChange, BreakerConfig, BreakerState, BreakerTransitions, BreakerView};
pub use draw::Draws;
pub use fleet::{PerRole, Role, Worker, WorkerSpec};
pub use generated::{Generated, Part};
use ids::{ScopeId, WorkerId};
pub use ledger::loads::{LoadReport, ReportedLoad};
pub use ledger::{Finished, LeaseId, Load, Outcome, Tally};
pub use plan::{Leg, NoPlan, PairPreference, Plan, PlanMatches, PlanProposal, PlanRequest, Scopes};
pub use policy::{
    Candidate, Candidates, Choice, Decision, OWNER_SLACK_CHARS, OptionError, OptionKind, OptionSpec,
    OptionValue, POLICIES, Policies, Policy, PolicyConfig, PolicyId, PolicyRow, Reason, SearchRange, Signals,
    Unfit, UnknownPolicy,
};
use prompt::PromptView;
pub use request::{Assignment, Grounds, RouteRequest, RoutingKeys, UnknownModel, Unroutable};
pub use retry::{Cause, Next, RetryBudget, RetryConfig, StatusSet, Tries};
pub use router::{Places, PolicyError, Proposal, Router, RouterConfig, WarmUp, WorkerView};

#[cfg(test)]
mod testing;
