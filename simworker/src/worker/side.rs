//! What a request in one engine has to do with the same request in another.

use simworker_core::{EngineRole, RequestId};
use tokio::sync::watch;

use super::inner::Surroundings;
use crate::handoff::{Errand, Fetch, Handoff, Peer};

/// Rooms from here on are for requests without another side; those of routers are below.
const OWN_ROOMS: u64 = 1 << 63;

/// A request's part of the hand-off.
#[derive(Debug)]
pub(super) enum Side {
    /// It has none.
    Alone,
    /// Its KV is computed here.
    Prefill {
        room: u64,
        /// Nobody wants it.
        is_alone: bool,
    },
    /// Its KV comes from elsewhere.
    Decode {
        /// Tells who fetches it how many tokens there are slots for, and goes when the request has ended. None when
        /// nobody fetches it.
        wanted: Option<watch::Sender<Option<u32>>>,
    },
}

impl Side {
    /// The part of a request that a rank has just taken.
    pub(super) fn begin(around: &Surroundings, handoff: Handoff, room: u64, rank: u32) -> Self {
        let is_alone = handoff.peer == Peer::Nobody;
        match (around.role, handoff.peer) {
            (EngineRole::Whole, _) => Self::Alone,
            (EngineRole::Prefill, _) => {
                if around.tells_ranks && !is_alone {
                    around.send(Errand::TellRank { room, rank });
                }
                Self::Prefill { room, is_alone }
            }
            (EngineRole::Decode, Peer::Nobody) => Self::Decode { wanted: None },
            (EngineRole::Decode, Peer::At(from)) => {
                let (tell, wanted) = watch::channel(None);
                let prefill_rank = handoff.prefill_rank;
                around.send(Errand::Fetch(Fetch { room, from, prefill_rank, wanted }));
                Self::Decode { wanted: Some(tell) }
            }
        }
    }

    /// The room whose KV it sends.
    pub(super) fn sends(&self) -> Option<u64> {
        match self {
            Self::Prefill { room, .. } => Some(*room),
            Self::Alone | Self::Decode { .. } => None,
        }
    }

    /// There are slots for its KV, of so many tokens. True when it needs nobody to send it.
    pub(super) fn wants(&self, tokens: u32) -> bool {
        match self {
            Self::Decode { wanted: Some(wanted) } => {
                wanted.send_replace(Some(tokens));
                false
            }
            Self::Decode { wanted: None } => true,
            Self::Alone | Self::Prefill { .. } => false,
        }
    }
}

impl Surroundings {
    fn send(&self, errand: Errand) {
        // Who takes errands is gone only when the host ends.
        let _ = self.errands.send(errand);
    }
}

/// The room of a request. Where nobody is on the other side, several may name the same one.
pub(super) fn room(handoff: &Handoff, id: RequestId) -> u64 {
    match handoff.peer {
        Peer::Nobody => OWN_ROOMS | id.0,
        Peer::At(_) => handoff.room,
    }
}
