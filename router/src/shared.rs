//! What all threads share: the decision core, the prefix index, the fleet table and the metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::HeaderValue;
use parking_lot::{Mutex, RwLock};
use router_core::ids::WorkerId;
use router_core::index::PrefixIndex;
use router_core::{BreakerChange, PolicyError, RetryBudget, Role, Router, RouterConfig, WorkerSpec};
use tokio::sync::Notify;

use crate::api_key::ApiKey;
use crate::clock::{Clock, nanoseconds};
use crate::config::{Config, Settings};
use crate::gate::Gate;
use crate::metrics::{EndpointName, Live, Metrics};
use crate::proxy;
use crate::upstream::Address;

/// The state of the process.
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    /// Of every random choice.
    pub(crate) seed: u64,
    /// Locked for the length of a decision or of a note in the books, never across an await.
    pub(crate) router: Mutex<Router>,
    /// Only under policies that look at it.
    pub(crate) index: Option<RwLock<PrefixIndex>>,
    /// The workers in the order of the command line.
    pub(crate) fleet: Box<[Member]>,
    pub(crate) settings: Settings,
    /// Present where the number of requests under way is limited.
    pub(crate) gate: Option<Arc<Gate>>,
    pub(crate) retry_budget: Mutex<RetryBudget>,
    pub(crate) metrics: Arc<Metrics>,
}

/// One worker as the shell knows it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: WorkerId,
    pub(crate) address: Address,
    /// The worker's own key as a value of `Authorization`, if it has one.
    pub(crate) authorization: Option<HeaderValue>,
    /// Requests that found nobody there, for the health probes.
    pub(crate) unreachable: Sightings,
}

/// What requests saw of a worker since somebody asked last.
#[derive(Debug, Default)]
pub(crate) struct Sightings {
    count: AtomicU32,
    news: Notify,
}

impl Member {
    pub(crate) fn new(id: WorkerId, address: Address, authorization: Option<HeaderValue>) -> Self {
        Self { id, address, authorization, unreachable: Sightings::default() }
    }
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
            load_poll_interval_ns: nanoseconds(config.load_poll_interval),
            breaker: config.breaker,
            ..RouterConfig::new(config.policy.clone(), config.seed)
        })?;
        let fleet = config.workers.iter().map(|address| {
            let spec = WorkerSpec { url: address.url.clone(), model: None, role: Role::Regular };
            let id = router.add_worker(clock.now_ns(), spec);
            Member::new(id, address.clone(), config.settings.worker_key.as_ref().map(ApiKey::credential))
        });
        let fleet = fleet.collect();
        let index = router.signals().prefix_index.map(|limits| RwLock::new(PrefixIndex::new(limits)));
        let settings = config.settings.clone();
        let known = proxy::ENDPOINTS.iter().map(|row| EndpointName::new(row.path, row.label));
        let extra = settings.extra_endpoints.iter().map(|path| EndpointName::new(path, path));
        let buckets = &settings.duration_buckets;
        let metrics = Metrics::new(config.policy.row(), known.chain(extra), config.workers.len(), buckets);
        Ok(Self {
            clock,
            seed: config.seed,
            router: Mutex::new(router),
            index,
            fleet,
            gate: Gate::new(clock, &settings.admission),
            retry_budget: Mutex::new(RetryBudget::new(
                settings.retry.budget_percent,
                settings.retry.budget_floor,
            )),
            settings,
            metrics,
        })
    }

    /// The place of a worker in the fleet table.
    pub(crate) fn place(&self, worker: WorkerId) -> usize {
        self.fleet.partition_point(|member| member.id < worker)
    }

    /// Tells the operator that a breaker has moved.
    pub(crate) fn log_breaker(&self, change: &BreakerChange) {
        let worker = &self.fleet[self.place(change.worker)].address.url;
        let (from, to) = (change.from.label(), change.to.label());
        tracing::warn!(%worker, from, to, "circuit breaker");
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
        let queue = self.gate.as_ref().map(|gate| gate.occupancy()).unwrap_or_default();
        self.metrics.render(Live::read(self, queue))
    }
}
