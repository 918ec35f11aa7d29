//! What a request in one engine has to do with the same request in another.

use simworker_core::RequestId;
use tokio::sync::watch;

use super::inner::Surroundings;
use crate::handoff::{Fetch, Handoff, Task};

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
    /// The part of a request that a rank has just taken with this room.
    pub(super) fn begin(
        around: &Surroundings,
        handoff: Handoff,
        id: RequestId,
        room: u64,
        rank: u32,
    ) -> Self {
        match handoff {
            Handoff::Send(None) => Self::Prefill { room, is_alone: true },
            Handoff::Send(Some(_)) => {
                if around.tells_ranks {
                    around.send(Task::TellRank { room, rank });
                }
                Self::Prefill { room, is_alone: false }
            }
            Handoff::Receive(None) => Self::Decode { wanted: None },
            Handoff::Receive(Some(source)) => {
                let (tell, wanted) = watch::channel(None);
                around.send(Task::Fetch(Fetch { id, source, wanted }));
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
    fn send(&self, task: Task) {
        // Who runs tasks is gone only when the host ends.
        let _ = self.tasks.send(task);
    }
}

/// The room of a request. Without another side it has one of its own, as several may name the same one.
pub(super) fn room(handoff: &Handoff, id: RequestId) -> u64 {
    handoff.room().unwrap_or(OWN_ROOMS | id.0)
}
