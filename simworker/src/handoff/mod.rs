//! Prefill and decode on different workers: how they find each other and hand KV over.
//!
//! A prefill worker has a bootstrap server, where its ranks register, and for each rank a port that hands off KV. A
//! decode worker gets the address of that server with each request. It asks there who has the KV, then asks the rank
//! for it and has the answer when the modelled transfer is complete; meanwhile it asks the bootstrap server for a sign
//! of life now and then.
//!
//! Each answer of the bootstrap server tells which start of the process it comes from. Where that is another one, or the
//! rank is not where it was, the decode worker asks for the layout again.
//!
//! | file | idea |
//! |---|---|
//! | [`registry`], [`bootstrap`] | the bootstrap server: what it knows, its routes |
//! | [`ranks`] | the prefill side: ranks register, and answer with KV |
//! | [`peers`] | the decode side: prefill workers that are known, and whether they are there |
//! | [`fetch`] | the decode side: the KV of one request |
//! | [`tasks`] | runs what an engine needs to have done elsewhere |
//! | [`call`] | a small HTTP client |
//! | [`life`] | servers that go down with their worker |

mod bootstrap;
mod call;
mod fetch;
mod life;
mod peers;
mod ranks;
mod registry;
mod tasks;

use simworker_core::{EngineRole, RequestId};
use tokio::sync::watch;

pub(crate) use bootstrap::routes as bootstrap_routes;
pub(crate) use call::Address;
pub(crate) use life::{Life, serve};
pub(crate) use ranks::{RankPort, register, routes as rank_routes};
pub(crate) use tasks::run as run_tasks;

/// The host that requests name when there is nobody on the other side, as health checks do.
pub(crate) const NOBODY: &str = "2.2.2.2";

/// A request's part in a hand-off, in the role of its worker.
#[derive(Debug, Clone)]
pub(crate) enum Handoff {
    /// Prefill: whoever asks for this room gets its KV. Without a room nobody will.
    Send(Option<u64>),
    /// Decode: its KV comes from there. Without a source it needs none.
    Receive(Option<Source>),
}

/// Where a decode worker gets the KV of a request.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) room: u64,
    /// The bootstrap server of the prefill worker.
    pub(crate) server: Address,
    /// The rank of the prefill worker, where the request names it.
    pub(crate) prefill_rank: Option<u32>,
}

impl Handoff {
    /// Of a request with nobody on the other side; none where nothing is handed over.
    pub(crate) fn with_nobody(role: EngineRole) -> Option<Self> {
        match role {
            EngineRole::Whole => None,
            EngineRole::Prefill => Some(Self::Send(None)),
            EngineRole::Decode => Some(Self::Receive(None)),
        }
    }

    /// The room that joins it to the other side.
    pub(crate) fn room(&self) -> Option<u64> {
        match self {
            Self::Send(room) => *room,
            Self::Receive(source) => source.as_ref().map(|source| source.room),
        }
    }
}

/// What is to be done outside of an engine.
#[derive(Debug)]
pub(crate) enum Task {
    /// Decode: get the KV of a request.
    Fetch(Fetch),
    /// Prefill: tell the bootstrap server which rank has a room.
    TellRank { room: u64, rank: u32 },
}

/// The KV of a request that a decode worker needs.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) id: RequestId,
    pub(crate) source: Source,
    /// Holds the number of tokens once there are slots for them. Its sender goes with the request.
    pub(crate) wanted: watch::Receiver<Option<u32>>,
}

/// How a prefill worker says that KV will not come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed(pub(crate) String);

fn json_text(value: &impl serde::Serialize) -> Vec<u8> {
    crate::http::json_text(value)
}
