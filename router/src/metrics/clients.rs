//! What is counted of the connections of clients.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{increment, read};

/// Counts of client connections.
#[derive(Debug, Default)]
pub(crate) struct ClientMetrics {
    open: AtomicU64,
    limit_reached: AtomicU64,
    failed_handshakes: AtomicU64,
}

impl ClientMetrics {
    /// A client has connected; how many are now.
    pub(crate) fn came(&self) -> u64 {
        self.open.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// One has gone.
    pub(crate) fn left(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// As many are connected as may be; how often that was so.
    pub(crate) fn filled(&self) -> u64 {
        self.limit_reached.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A TLS handshake came to nothing.
    pub(crate) fn handshake_failed(&self) {
        increment(&self.failed_handshakes);
    }

    pub(super) fn open(&self) -> u64 {
        read(&self.open)
    }

    pub(super) fn limit_reached(&self) -> u64 {
        read(&self.limit_reached)
    }

    pub(super) fn failed_handshakes(&self) -> u64 {
        read(&self.failed_handshakes)
    }
}
