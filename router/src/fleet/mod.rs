//! The workers as the shell knows them: who they are, how they come, and how they go.

pub(crate) mod api;
mod belief;
mod books;
mod describe;
mod health;
mod identity;
mod leave;
mod life;
mod loads;
mod member;
mod newcomers;
mod register;
mod standing;

pub(crate) use belief::Belief;
pub(crate) use books::Books;
pub(crate) use identity::Identity;
pub(crate) use leave::{Leave, SUCCESSION, drain, drain_all};
pub(crate) use member::{Facts, Member, Stage, Terms};
pub(crate) use newcomers::Newcomers;
pub(crate) use register::{MAX_WORKERS, Registered, register, set_terms};
pub(crate) use standing::Standing;

#[cfg(test)]
mod tests;
