//! What all threads share: the decision core, the prefix index, the fleet table and the metrics.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, RwLock};
use router_core::ids::WorkerId;
use router_core::index::PrefixIndex;
use router_core::{PolicyError, Role, Router, RouterConfig, WorkerSpec};
use tokio::sync::Notify;

use crate::clock::{Clock, nanoseconds};
use crate::config::{Config, Settings};
use crate::metrics::{Metrics, WorkerGauges};
use crate::upstream::Address;

/// The state of the process.
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    /// Locked for the length of a decision or of a note in the books, never across an await.
    pub(crate) router: Mutex<Router>,
    /// Only under policies that look at it.
    pub(crate) index: Option<RwLock<PrefixIndex>>,
    /// The workers in the order of the command line.
    pub(crate) fleet: Box<[Member]>,
    pub(crate) settings: Settings,
    pub(crate) metrics: Metrics,
}

/// One worker as the shell knows it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: WorkerId,
    pub(crate) address: Address,
    /// Requests that found nobody there, for the health probes.
    pub(crate) unreachable: Sightings,
}

/// What requests saw of a worker since somebody asked last.
#[derive(Debug, Default)]
pub(crate) struct Sightings {
    count: AtomicU32,
    news: Notify,
}

impl Sightings {
    /// One more.
    pub(crate) fn note(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.news.notify_one();
    }

    /// Waits for some; how many there were since the last time.
    pub(crate) async fn next(&self) -> u32 {
        loop {
            self.news.notified().await;
            let count = self.count.swap(0, Ordering::Relaxed);
            if count > 0 {
                return count;
            }
        }
    }
}

impl Shared {
    /// The state at the start: every worker known and taken for healthy.
    ///
    /// # Errors
    /// The policy cannot work like this.
    pub(crate) fn new(config: &Config) -> Result<Self, PolicyError> {
        let clock = Clock::start();
        let mut router = Router::new(RouterConfig {
            policy: config.policy.clone(),
            seed: config.seed,
            load_poll_interval_ns: nanoseconds(config.load_poll_interval),
        })?;
        let fleet = config.workers.iter().map(|address| {
            let spec = WorkerSpec { url: address.url.clone(), model: None, role: Role::Regular };
            Member {
                id: router.add_worker(clock.now_ns(), spec),
                address: address.clone(),
                unreachable: Sightings::default(),
            }
        });
        let fleet = fleet.collect();
        let index = router.signals().prefix_index.map(|limits| RwLock::new(PrefixIndex::new(limits)));
        let urls = config.workers.iter().map(|address| address.url.as_str());
        let metrics = Metrics::new(config.policy.row(), urls);
        Ok(Self {
            clock,
            router: Mutex::new(router),
            index,
            fleet,
            settings: config.settings.clone(),
            metrics,
        })
    }

    /// The place of a worker in the fleet table.
    pub(crate) fn place(&self, worker: WorkerId) -> usize {
        self.fleet.partition_point(|member| member.id < worker)
    }

    /// Tells the core that a worker became healthy or not. The cache of one that went away is not believed in when it
    /// comes back.
    pub(crate) fn set_healthy(&self, worker: WorkerId, healthy: bool) {
        let changed = self.router.lock().set_healthy(self.clock.now_ns(), worker, healthy);
        if let (true, false, Some(index)) = (changed, healthy, &self.index) {
            index.write().clear(worker);
        }
    }

    /// The text of `/metrics` now.
    pub(crate) fn metrics_text(&self) -> String {
        let index = self.index.as_ref().map(|index| index.read().stats());
        let gauges: Vec<WorkerGauges> = {
            let router = self.router.lock();
            let rows = router.workers().map(|row| WorkerGauges {
                url: row.worker.url.clone(),
                requests: row.load.requests,
                tokens: row.load.tokens,
                healthy: row.worker.healthy,
            });
            rows.collect()
        };
        self.metrics.render(&gauges, index)
    }
}
