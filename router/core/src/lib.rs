//! Pure routing decisions: policies, prefix index, ledger.
//!
//! [`Router`] decides which worker gets a request and keeps the books about it. It reads no clock, no socket and no
//! hidden source of randomness: time comes in as nanoseconds, draws are a function of the seed and of the bookings so far.
//! So the same instance works behind the HTTP shell and in virtual time, and decides alike in both.
//!
//! The order of calls for one request: [`index::PrefixIndex::lookup`] outside the lock, [`Router::assign`] under it, then
//! the credit to the index, then [`Router::first_token`], [`Router::progress`] and, whatever happened, [`Router::finish`].

pub mod draw;
pub mod fleet;
pub mod ids;
pub mod index;
pub mod ledger;
pub mod policy;
pub mod prompt;
pub mod request;
pub mod router;
pub mod spelling;

pub use fleet::{Role, Worker, WorkerSpec};
pub use ids::{ScopeId, WorkerId};
pub use ledger::loads::LoadReport;
pub use ledger::{LeaseId, Load, Outcome};
pub use policy::{
    OptionError, OptionKind, OptionSpec, OptionValue, POLICIES, PolicyConfig, PolicyRow, Reason, Signals,
    UnknownPolicy,
};
pub use prompt::PromptView;
pub use request::{Assignment, RouteRequest, RoutingKeys, Unroutable};
pub use router::{PolicyError, Proposal, Router, RouterConfig, WorkerView};

#[cfg(test)]
mod testing;
