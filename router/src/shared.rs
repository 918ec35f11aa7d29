//! What all threads share: the decision core, the prefix index, the fleet table and the metrics.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use router_core::ids::WorkerId;
use router_core::{PairPreference, PerRole, Policies, PolicyError, RetryBudget, Role, Router, RouterConfig};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use crate::clock::{Clock, nanoseconds};
use crate::config::{Config, HealthConfig, Settings};
use crate::fleet::{self, Belief, Books, Member, Newcomers, Registered, Standing, Terms, Unlike};
use crate::gate::Gate;
use crate::hops::Mark;
use crate::metrics::{EndpointName, Format, Live, Metrics};
use crate::proxy;
use crate::record::{Recorded, Tape};
use crate::stop::{Cut, Stop};
use crate::tls::ClientTls;
use crate::upstream::Pool;

/// The state of the process.
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    /// Of this process, on whatever it sends to workers.
    pub(crate) mark: Mark,
    /// Of every random choice.
    pub(crate) seed: u64,
    /// Locked for the length of a decision or of a note in them, never across an await.
    pub(crate) books: Mutex<Books>,
    pub(crate) belief: Belief,
    pub(crate) newcomers: Newcomers,
    pub(crate) unlike: Unlike,
    /// A worker became ready or healthy, ceased to be, or serves another model: news for those that wait for another one.
    pub(crate) turns: Notify,
    pub(crate) background: Background,
    pub(crate) rounds: Rounds,
    pub(crate) settings: Settings,
    /// Present where the number of requests under way is limited.
    pub(crate) gate: Option<Arc<Gate>>,
    pub(crate) retry_budget: Mutex<RetryBudget>,
    /// Who waits for decode streams to end.
    pub(crate) dispatch: proxy::Dispatch,
    /// By which the engines of a pair know a request.
    pub(crate) rooms: proxy::Rooms,
    /// Those that clients have given to the requests that pairs have.
    pub(crate) names: proxy::Names,
    pub(crate) metrics: Arc<Metrics>,
    /// What is recorded goes there; `None`: nothing is.
    pub(crate) tape: Option<Arc<Tape>>,
    /// How far the end of the process has come.
    pub(crate) stop: watch::Sender<Stop>,
    pub(crate) cut: Cut,
}

/// What goes on beside the requests.
pub(crate) struct Background {
    /// Where it runs.
    pub(crate) runtime: Handle,
    /// Its own connections: no question of the router's takes one from a request.
    pub(crate) pool: Pool,
    /// How many pools there are, this one included.
    pub(crate) pools: usize,
}

/// How workers are looked after.
#[derive(Debug)]
pub(crate) struct Rounds {
    /// `None`: they are taken for healthy.
    pub(crate) health: Option<HealthConfig>,
    pub(crate) load_poll_interval: Duration,
    /// How often workers are asked what they are.
    pub(crate) info_interval: Duration,
    /// Whether the ranks of an engine are chosen one by one.
    pub(crate) dp_aware: bool,
    /// How long a worker may take to be there.
    pub(crate) startup_timeout: Duration,
    /// How long the last worker stays because another one is on its way.
    pub(crate) succession: Duration,
}

impl Shared {
    /// The state at the start: every worker known, and none of them there yet. Needs a runtime around it, on which the
    /// background work is done.
    ///
    /// # Errors
    /// The policy cannot work like this.
    pub(crate) fn new(
        config: &Config,
        tls: ClientTls,
        stop: watch::Sender<Stop>,
        tape: Option<Arc<Tape>>,
    ) -> Result<Arc<Self>, PolicyError> {
        let (clock, mark) = (Clock::start(), Mark::new());
        let own = mark.number();
        let router = Router::new(RouterConfig {
            load_poll_interval_ns: nanoseconds(config.load_poll_interval),
            breaker: config.breaker,
            warm_up: config.settings.warm_up,
            policies: config.policies.clone(),
            decode_dispatch_limit: config.decode_dispatch_limit,
            pair: config.pair,
            ..RouterConfig::new(config.policies.get(Role::Regular).clone(), config.seed)
        })?;
        let settings = config.settings.clone();
        let known = proxy::ENDPOINTS.iter().map(|row| EndpointName::new(row.path, row.label));
        let extra = settings.extra_endpoints.iter().map(|path| EndpointName::new(path, path));
        let endpoints = known.chain(extra);
        let metrics = Metrics::new(
            PerRole::of(|role| config.policies.get(role).id()),
            endpoints,
            &settings.duration_buckets,
            config.threads,
        );
        let budget = RetryBudget::new(settings.retry.budget_percent, settings.retry.budget_floor);
        let shared = Arc::new(Self {
            clock,
            mark: mark.clone(),
            seed: config.seed,
            belief: Belief::new(router.signals(), tape.clone()),
            books: Mutex::new(Books::new(Recorded::new(router, tape.clone()))),
            newcomers: Newcomers::new(),
            unlike: Unlike::default(),
            turns: Notify::new(),
            background: Background {
                runtime: Handle::current(),
                pool: Pool::new(config.threads, settings.timeouts.connect, tls, mark).for_questions(),
                pools: config.threads + 1,
            },
            rounds: Rounds {
                health: config.health.clone(),
                load_poll_interval: config.load_poll_interval,
                info_interval: config.info_interval,
                dp_aware: config.dp_aware,
                startup_timeout: config.startup_timeout,
                succession: fleet::SUCCESSION,
            },
            gate: Gate::new(clock, &settings.admission),
            retry_budget: Mutex::new(budget),
            dispatch: proxy::Dispatch::new(config.decode_dispatch_limit.is_some()),
            rooms: proxy::Rooms::new(config.seed, own),
            names: proxy::Names::default(),
            settings,
            metrics,
            tape,
            stop,
            cut: Cut::default(),
        });
        for worker in &config.workers {
            let terms = Terms::of(worker, shared.settings.worker_key.as_ref());
            if let Registered::Full = fleet::register(&shared, &worker.address, terms) {
                tracing::error!(worker = %worker.address.url, "left out: there is no room for more workers");
            }
        }
        Ok(shared)
    }

    /// Whether the end of the process has come as far as `stage`.
    pub(crate) fn has_come_to(&self, stage: Stop) -> bool {
        *self.stop.borrow() >= stage
    }

    /// All workers, whether they get requests or not, in the order in which they were added.
    pub(crate) fn members(&self) -> Vec<Arc<Member>> {
        self.roster().to_vec()
    }

    /// The same, for those who only look: nothing is copied.
    pub(crate) fn roster(&self) -> Arc<Vec<Arc<Member>>> {
        self.books.lock().roster()
    }

    /// How all workers stand: in the same order, and those of an engine one behind the other.
    pub(crate) fn standings(&self) -> Vec<Standing> {
        let now_ns = self.clock.now_ns();
        let mut standings = self.books.lock().standings(now_ns);
        standings.sort_by_key(|worker| worker.member.first_id);
        standings
    }

    /// Tells the core that an engine became healthy or not. The cache of one that went away is not believed in when it
    /// comes back.
    pub(crate) fn set_healthy(&self, member: &Member, healthy: bool) {
        let now_ns = self.clock.now_ns();
        let mut books = self.books.lock();
        let ids = member.ids();
        let set = |changed, id: &WorkerId| books.router.set_healthy(now_ns, *id, healthy) | changed;
        let changed = ids.iter().fold(false, set);
        drop(books);
        if changed && !healthy {
            self.belief.forget(&ids);
        }
        if changed {
            self.turns.notify_waiters();
        }
    }

    /// The caches of an engine are empty.
    pub(crate) fn forget_cache(&self, member: &Member) {
        self.belief.forget(&member.ids());
        let now_ns = self.clock.now_ns();
        let mut books = self.books.lock();
        member.ids().iter().for_each(|id| books.router.cache_lost(now_ns, *id));
    }

    /// Of the workers of each role.
    pub(crate) fn policies(&self) -> Policies {
        self.books.lock().router.config().policies.clone()
    }

    /// Goes on with other policies. What is under way goes on.
    pub(crate) fn set_policies(&self, policies: Policies) {
        let ids = PerRole::of(|role| policies.get(role).id());
        let mut books = self.books.lock();
        let signals = books.router.set_policies(self.clock.now_ns(), policies);
        self.belief.want(signals);
        self.metrics.set_policies(ids);
        drop(books);
        fleet::tell_unlike(self);
    }

    /// Goes on with another limit of decode streams and another preference for pairs.
    pub(crate) fn set_pairing(&self, decode_dispatch_limit: Option<u32>, pair: PairPreference) {
        let limit = decode_dispatch_limit.and_then(NonZeroU32::new);
        self.books.lock().router.set_pairing(limit, pair);
        self.dispatch.limit(limit.is_some());
    }

    /// The text of `/metrics` now.
    pub(crate) fn metrics_text(&self, format: Format) -> String {
        let queue = self.gate.as_ref().map(|gate| gate.occupancy()).unwrap_or_default();
        self.metrics.render(Live::read(self, queue), format)
    }
}
