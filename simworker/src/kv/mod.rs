//! KV events over ZeroMQ: each rank publishes what becomes of the blocks in its cache.
//!
//! | file | idea |
//! |---|---|
//! | [`config`] | `--kv-events-config` |
//! | [`ports`] | who listens where |
//! | [`outlet`] | from the engine to the sockets |
//! | `sockets` | PUB and ROUTER of one rank; only with the feature `kv-events` |
//!
//! The engine's lock is held only to put a batch into a queue; encoding and sending are done by a task of the thread that
//! serves HTTP.

pub(crate) mod config;
mod outlet;
pub(crate) mod ports;
#[cfg(feature = "kv-events")]
mod sockets;

pub use config::{Endpoint, KvEventsConfig};
pub(crate) use outlet::Publisher;
pub use ports::KvEndpoints;
pub(crate) use ports::{Opened, open};

use tokio::sync::watch;

use crate::handoff::Life;

/// Starts to publish on the present runtime, for as long as the process lives and anew when it comes back.
pub(crate) fn spawn(ranks: Vec<ports::RankPorts>, life: &watch::Receiver<Life>) {
    for rank in ranks {
        #[cfg(feature = "kv-events")]
        tokio::spawn(sockets::run(rank, life.clone()));
        #[cfg(not(feature = "kv-events"))]
        drop((rank, life));
    }
}
