//! From the engine to the sockets: one queue per rank.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use protocol::kv_events::{Batch, KvEvent};
use tokio::sync::mpsc;

use super::KvEventsConfig;
use super::ports::Described;
use crate::clock::unix_seconds;
use crate::fault::{Faults, Mangle};

/// What goes to the sockets of a rank.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// To be published, or to be mangled.
    Batch { seq: u64, batch: Batch, mangle: Option<Mangle> },
    /// The process has died: whatever comes now is told by the next one.
    Restart,
}

/// The way out for the events of a worker.
#[derive(Debug)]
pub(crate) struct Publisher {
    ranks: Vec<Outlet>,
    most_waiting: usize,
    pub(crate) described: Described,
    faults: OnceLock<Arc<Faults>>,
}

#[derive(Debug)]
struct Outlet {
    queue: mpsc::UnboundedSender<Outgoing>,
    waiting: Arc<AtomicUsize>,
    next: AtomicU64,
}

/// Where the sockets of a rank find what to publish.
#[derive(Debug)]
pub(crate) struct Inlet {
    queue: mpsc::UnboundedReceiver<Outgoing>,
    waiting: Arc<AtomicUsize>,
}

impl Inlet {
    /// The next one; none when there is nobody left to send any.
    pub(crate) async fn next(&mut self) -> Option<Outgoing> {
        let next = self.queue.recv().await;
        if matches!(next, Some(Outgoing::Batch { .. })) {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        next
    }
}

impl Publisher {
    /// The ways out of so many ranks, and their other ends.
    pub(super) fn new(config: &KvEventsConfig, ranks: u32, described: Described) -> (Self, Vec<Inlet>) {
        let pair = || {
            // Bounded by `most_waiting`, which a restart must not be.
            let (sender, queue) = mpsc::unbounded_channel();
            let waiting = Arc::new(AtomicUsize::new(0));
            let outlet = Outlet { queue: sender, waiting: Arc::clone(&waiting), next: AtomicU64::new(0) };
            (outlet, Inlet { queue, waiting })
        };
        let (ranks, inlets) = (0..ranks).map(|_| pair()).unzip();
        let most_waiting = config.max_queue_size;
        (Self { ranks, most_waiting, described, faults: OnceLock::new() }, inlets)
    }

    /// From now on these faults mangle what is published.
    pub(crate) fn obey(&self, faults: &Arc<Faults>) {
        // A worker has one list of faults, whose content changes.
        let _ = self.faults.set(Arc::clone(faults));
    }

    /// Publishes what has become of the cache of a rank. Every batch takes a number, also one that is lost.
    pub(crate) fn publish(&self, rank: u32, events: Vec<KvEvent>) {
        let Some(outlet) = self.ranks.get(rank as usize) else { return };
        let seq = outlet.next.fetch_add(1, Ordering::Relaxed);
        if outlet.waiting.load(Ordering::Relaxed) >= self.most_waiting {
            return;
        }
        let mangle = self.faults.get().and_then(|faults| faults.plan_kv_batch());
        let batch = Batch { ts: unix_seconds(), events, rank: Some(rank) };
        outlet.waiting.fetch_add(1, Ordering::Relaxed);
        // The other end is gone only with the whole host.
        let _ = outlet.queue.send(Outgoing::Batch { seq, batch, mangle });
    }

    /// The process dies. The next one counts from 0.
    pub(crate) fn restart(&self) {
        for outlet in &self.ranks {
            outlet.next.store(0, Ordering::Relaxed);
            let _ = outlet.queue.send(Outgoing::Restart);
        }
    }
}
