//! The core's roles and outcomes by the names that they have in a recording.

use router_core::{Leg, Outcome, Role};
use serde::{Deserialize, Serialize};

/// A role's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names of `router_core::Role`")]
pub enum RoleName {
    Regular,
    Prefill,
    Decode,
}

/// The name of how a leg ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names of `router_core::Outcome`")]
pub enum OutcomeName {
    Completed,
    Refused,
    Failed,
    ClientGone,
}

impl From<Role> for RoleName {
    fn from(role: Role) -> Self {
        match role {
            Role::Regular => Self::Regular,
            Role::Prefill => Self::Prefill,
            Role::Decode => Self::Decode,
        }
    }
}

impl From<RoleName> for Role {
    fn from(role: RoleName) -> Self {
        match role {
            RoleName::Regular => Self::Regular,
            RoleName::Prefill => Self::Prefill,
            RoleName::Decode => Self::Decode,
        }
    }
}

impl From<Leg> for RoleName {
    fn from(leg: Leg) -> Self {
        leg.role().into()
    }
}

impl From<Outcome> for OutcomeName {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Completed => Self::Completed,
            Outcome::Refused => Self::Refused,
            Outcome::Failed => Self::Failed,
            Outcome::ClientGone => Self::ClientGone,
        }
    }
}

impl From<OutcomeName> for Outcome {
    fn from(outcome: OutcomeName) -> Self {
        match outcome {
            OutcomeName::Completed => Self::Completed,
            OutcomeName::Refused => Self::Refused,
            OutcomeName::Failed => Self::Failed,
            OutcomeName::ClientGone => Self::ClientGone,
        }
    }
}
