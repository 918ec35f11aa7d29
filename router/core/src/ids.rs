//! Names of the things a decision is about.
//!
//! Plain numbers, because every table of the core is ordered by them; newtypes, because a worker is not a scope.

/// One worker, for the life of the process. A worker that is removed and added again gets a new id, so that
/// whatever still refers to the old one can be recognised as stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u32);

/// One (role, model): the workers that could serve each other's requests, and so share one prefix tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeId(pub u32);
