//! How many clients may be connected at a time.
//!
//! A seat is free before a connection is accepted. Without one nothing is accepted, so clients beyond the limit wait with
//! the kernel: slower than the others, but none is turned away.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics::Metrics;

/// The seats of a listener, on all threads together.
#[derive(Debug)]
pub(crate) struct Seats {
    free: Arc<Semaphore>,
    total: u64,
    /// Counts those that are taken.
    metrics: Option<Arc<Metrics>>,
}

/// A place for one connection, given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    _free: OwnedSemaphorePermit,
}

impl Seats {
    /// So many seats; those of clients are counted.
    pub(crate) fn new(total: usize, metrics: Option<Arc<Metrics>>) -> Arc<Self> {
        let total = total.min(Semaphore::MAX_PERMITS);
        Arc::new(Self { free: Arc::new(Semaphore::new(total)), total: total as u64, metrics })
    }

    /// Waits for a seat; it is not taken until somebody is on it.
    pub(crate) async fn wait(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.free).acquire_owned().await.expect("the semaphore is never closed")
    }

    /// A free seat, if there is one now.
    pub(crate) fn free(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }

    /// Somebody takes a seat that was free.
    pub(crate) fn take(self: &Arc<Self>, free: OwnedSemaphorePermit) -> Seat {
        if let Some(metrics) = &self.metrics
            && metrics.clients.came() == self.total
            && metrics.clients.filled() == 1
        {
            tracing::warn!(
                "{} clients are connected, as many as --max-connections allows: others wait to be accepted; this is \
                 said once, smg_router_client_limit_reached_total counts",
                self.total
            );
        }
        Seat { seats: Arc::clone(self), _free: free }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(metrics) = &self.seats.metrics {
            metrics.clients.left();
        }
    }
}
