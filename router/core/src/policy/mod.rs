//! Policies: which of the candidates gets a request.
//!
//! A policy is one file here and one row in [`POLICIES`]. It decides in two steps. [`Policy::choose`] is pure: it reads the
//! [`Decision`] and the policy's memory and changes nothing, so asking is free and asking twice gives the same answer.
//! [`Policy::booked`] is told what was booked, and only then may the policy learn: a cursor moves, a key sticks.
//!
//! A policy reads the candidate rows and nothing else of the fleet; that they are healthy, to stay, in scope and not tried yet is
//! seen to before it is asked. A choice borrows its row from the decision, so no other worker can be chosen.

mod balance;
mod bucket;
mod cache_aware;
mod candidates;
mod config;
mod consistent_hashing;
mod manual;
mod options;
mod policies;
mod power_of_two;
mod prefix_hash;
mod random;
mod ring;
mod round_robin;
mod sticky;
mod table;

use std::fmt;

pub use cache_aware::OWNER_SLACK_CHARS;
pub use candidates::{Candidate, Candidates};
pub use config::{PolicyConfig, UnknownPolicy};
pub use options::{OptionError, OptionKind, OptionSpec, OptionValue, SearchRange};
pub use policies::{Policies, Unfit};
pub use table::{POLICIES, PolicyId, PolicyRow};

use crate::draw::Draws;
use crate::fleet::{Fleet, Worker};
use crate::index::IndexLimits;
use crate::request::RouteRequest;
use crate::{Unroutable, WorkerId};

/// Chooses workers.
pub trait Policy: fmt::Debug + Send {
    /// The worker for this request.
    ///
    /// # Errors
    /// The request asks for what no candidate can give.
    fn choose<'d>(&self, decision: &'d Decision<'_>) -> Result<Choice<'d>, Unroutable>;

    /// Where the request stands on the policy's ring; `None` if it has none, or none of what it hashes is in the request.
    fn place(&self, _request: &RouteRequest<'_>) -> Option<u64> {
        None
    }

    /// The choice was booked.
    fn booked(&mut self, _decision: &Decision<'_>, _choice: Choice<'_>) {}

    /// Goes on with other options; `config` is of the same policy. False if it cannot: then a new one is built, which has
    /// learned nothing yet.
    fn reconfigure(&mut self, _config: &PolicyConfig) -> bool {
        false
    }

    /// A worker has joined the fleet, or was there before the policy.
    fn worker_added(&mut self, _worker: &Worker) {}

    /// A worker has left the fleet; its id never comes back.
    fn worker_removed(&mut self, _worker: WorkerId) {}

    /// How many routing keys it remembers; `None` if it never does.
    fn remembered_keys(&self) -> Option<usize> {
        None
    }

    /// How many of them stick to this worker.
    fn keys_of(&self, _worker: WorkerId) -> u64 {
        0
    }

    /// Time has come to `now_ns`.
    fn tick(&mut self, _now_ns: u64) {}

    /// When [`Policy::tick`] has something to do.
    fn next_deadline(&self) -> Option<u64> {
        None
    }
}

/// What policies need to be told besides the request and the books.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Signals {
    /// What each worker's cache is believed to hold; `None` if not needed.
    pub prefix_index: Option<IndexLimits>,
    /// What workers say of their load.
    pub loads: bool,
}

// === impl Signals ===

impl Signals {
    /// What two policies need to be told. An index that both look at is as large as the larger one wants it.
    pub(crate) fn merge(self, other: Self) -> Self {
        let limits = [self.prefix_index, other.prefix_index].into_iter().flatten();
        let prefix_index = limits.reduce(|one, two| IndexLimits {
            max_tree_size: one.max_tree_size.max(two.max_tree_size),
            max_tree_bytes: one.max_tree_bytes.max(two.max_tree_bytes),
        });
        Self { prefix_index, loads: self.loads || other.loads }
    }
}

/// One decision: everything that a choice may depend on.
#[derive(Debug)]
pub struct Decision<'a> {
    /// The time.
    pub now_ns: u64,
    /// The request.
    pub request: &'a RouteRequest<'a>,
    /// The workers to choose from, ordered by id.
    pub candidates: Candidates<'a>,
    /// All workers of the scope, also those that cannot be chosen now, but for draining ones; ordered by id.
    pub members: &'a [WorkerId],
    /// Characters of the prompt that the index looked at.
    pub prompt_chars: u64,
    pub(crate) fleet: &'a Fleet,
    /// Where the request stands on the policy's ring, if that is told instead of what would be hashed for it.
    pub(crate) place: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) bookings: u64,
}

impl Decision<'_> {
    /// The random draws of this decision; every call starts them anew.
    #[must_use]
    pub fn draws(&self) -> Draws {
        Draws::new(self.seed, self.bookings)
    }
}

/// A chosen candidate, and why.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'d> {
    /// Who.
    pub candidate: &'d Candidate<'d>,
    /// Why.
    pub reason: Reason,
}

impl<'d> Choice<'d> {
    /// A choice of `candidate` for `reason`.
    #[must_use]
    pub fn new(candidate: &'d Candidate<'d>, reason: Reason) -> Self {
        Self { candidate, reason }
    }
}

/// Whatever a policy that follows prefixes would have chosen: a worker whose cache is cold is behind with its share. In the
/// rows of all these policies, as it is found out after they have chosen (see [`crate::WarmUp`]).
pub(crate) const WARM_UP: Reason = Reason::new("warm_up");

/// Why a worker was chosen: one of the labels in the policy's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reason(&'static str);

impl Reason {
    /// The reason of that label.
    #[must_use]
    pub const fn new(label: &'static str) -> Self {
        Self(label)
    }

    /// The label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[cfg(test)]
mod contract_tests;
