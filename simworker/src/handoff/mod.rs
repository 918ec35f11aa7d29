//! Prefill and decode on different workers: how they find each other and hand KV over.
//!
//! A prefill worker has a bootstrap server, where its ranks register, and for each rank a port that hands off KV. A
//! decode worker gets the address of that server with each request. It asks there who has the KV, then asks the rank
//! for it and has the answer when the modelled transfer is complete; meanwhile it asks the bootstrap server for a sign
//! of life now and then.
//!
//! | file | idea |
//! |---|---|
//! | [`registry`], [`bootstrap`] | the bootstrap server: what it knows, its routes |
//! | [`ranks`] | the prefill side: ranks register, and answer with KV |
//! | [`peers`] | the decode side: prefill workers that are known, and whether they are there |
//! | [`fetch`] | the decode side: the KV of one request |
//! | [`clerk`] | does what an engine has to be done elsewhere |
//! | [`call`] | a small HTTP client |
//! | [`life`] | servers that go down with their worker |

mod bootstrap;
mod call;
mod clerk;
mod fetch;
mod life;
mod peers;
mod ranks;
mod registry;

use tokio::sync::watch;

pub(crate) use bootstrap::routes as bootstrap_routes;
pub(crate) use call::Address;
pub(crate) use clerk::attend as attend_errands;
pub(crate) use life::{Life, serve};
pub(crate) use ranks::{Door, register, routes as rank_routes};

/// The host that requests name when there is nobody on the other side, as health checks do.
pub(crate) const NOBODY: &str = "2.2.2.2";

/// What joins a request to the one on the other side.
#[derive(Debug, Clone)]
pub(crate) struct Handoff {
    pub(crate) room: u64,
    /// Whose bootstrap server to ask; only decode workers ask.
    pub(crate) peer: Peer,
    /// The rank of the prefill worker, where the request names it.
    pub(crate) prefill_rank: Option<u32>,
}

impl Handoff {
    /// Of a request of the worker's own: nobody is on the other side.
    pub(crate) fn alone() -> Self {
        Self { room: 0, peer: Peer::Nobody, prefill_rank: None }
    }
}

/// Who is on the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Nobody: the hand-off is complete at once.
    Nobody,
    /// The prefill worker with this bootstrap server.
    At(Address),
}

/// What is to be done outside of an engine.
#[derive(Debug)]
pub(crate) enum Errand {
    /// Decode: get the KV of a request.
    Fetch(Fetch),
    /// Prefill: tell the bootstrap server which rank has a room.
    TellRank { room: u64, rank: u32 },
}

/// The KV of a request that a decode worker needs.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) room: u64,
    pub(crate) from: Address,
    pub(crate) prefill_rank: Option<u32>,
    /// Holds the number of tokens once there are slots for them. Its sender goes with the request.
    pub(crate) wanted: watch::Receiver<Option<u32>>,
}

/// How a prefill worker says that KV will not come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed(pub(crate) String);

fn json_text(value: &impl serde::Serialize) -> Vec<u8> {
    crate::http::json_text(value)
}
