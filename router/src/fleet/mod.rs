//! The workers as the shell knows them: who they are, how they come, and how they go. Those that share an engine come and go
//! together.

pub(crate) mod api;
mod belief;
mod books;
mod describe;
mod health;
mod identity;
mod layout;
mod leave;
mod life;
mod loads;
mod member;
mod newcomers;
mod rank;
mod register;
mod roles;
mod standing;
mod unlike;

pub(crate) use belief::{Belief, Owed};
pub(crate) use books::{Books, Planned, PlannedLeg};
pub(crate) use identity::Identity;
pub(crate) use leave::{Leave, SUCCESSION, drain, drain_all, drain_rank};
pub(crate) use member::{Facts, Member, Stage, Terms};
pub(crate) use newcomers::Newcomers;
pub(crate) use rank::{Layout, Rank};
pub(crate) use register::{MAX_WORKERS, Registered, register, register_changed, set_terms};
pub(crate) use roles::Bootstrap;
pub(crate) use standing::Standing;
pub(crate) use unlike::{Unlike, tell as tell_unlike};

#[cfg(test)]
mod tests;
