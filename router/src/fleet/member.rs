//! One engine as the shell knows it. What the core decides by is the core's; this is how to reach it, what was said of
//! it, what it says of itself, and how far it has come.
//!
//! The core knows it as one worker, or as one for each of its data-parallel ranks: [`Rank`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Instant, SystemTime};

use http::HeaderValue;
use parking_lot::{Mutex, RwLock};
use router_core::Role;
use router_core::ids::WorkerId;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::task::AbortHandle;

use super::Identity;
use super::layout::Settled;
use super::rank::Ranks;
use crate::api_key::ApiKey;
use crate::config::{BootstrapPort, StaticWorker};
use crate::metrics::HealthChecks;
use crate::upstream::{Address, IdleConnections};

/// One engine.
#[derive(Debug)]
pub(crate) struct Member {
    /// The id that it had first, whichever it has now: nobody else has it, and members are in its order.
    pub(crate) first_id: WorkerId,
    /// Under which operators know it: the same for every spelling of its URL.
    pub(crate) identity: Identity,
    pub(crate) address: Address,
    /// Requests that found nobody there, for the health probes.
    pub(crate) unreachable: Sightings,
    /// Requests that failed there, or got no answer: reason to ask whether it is still the same one.
    pub(crate) lost: Sightings,
    /// Reasons to probe it now; see [`Member::inquire`].
    pub(super) doubted: Sightings,
    pub(crate) checks: HealthChecks,
    pub(crate) idle: IdleConnections,
    pub(crate) since: Instant,
    pub(super) ranks: Ranks,
    terms: RwLock<Terms>,
    facts: RwLock<Facts>,
    /// How far it has come, and since when.
    stage: Mutex<(Stage, SystemTime)>,
    /// What was found out about how it is addressed.
    pub(super) settled: Mutex<Settled>,
    pub(super) ends: Ends,
    /// What goes on about it in the background.
    task: Mutex<Option<AbortHandle>>,
}

/// What operators say of a worker.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// The value of `Authorization` towards it; `None`: the client's goes on.
    pub(crate) authorization: Option<HeaderValue>,
    /// Goes before what it says itself.
    pub(crate) model: Option<String>,
    pub(crate) priority: u32,
    pub(crate) cost: f64,
    pub(crate) labels: BTreeMap<String, String>,
    /// Whether it is probed.
    pub(crate) health_check: bool,
    /// Must be what it says itself; `None`: it is what it says.
    pub(crate) role: Option<Role>,
    /// Of a prefill worker.
    pub(crate) bootstrap_port: BootstrapPort,
}

/// What a worker says of itself; what it does not say is absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Facts {
    pub(crate) model: Option<String>,
    /// SGLang's word for what it does; "null" is prefill and decode.
    pub(crate) disaggregation_mode: Option<String>,
    /// Where its bootstrap server listens, if it is a prefill worker: the others say one too.
    pub(crate) bootstrap_port: Option<u16>,
    /// How many data-parallel ranks share its requests.
    pub(crate) dp_size: Option<u64>,
    /// On how many machines it runs.
    pub(crate) nodes: Option<u64>,
    /// How it shares requests among its ranks.
    pub(crate) load_balance_method: Option<String>,
    pub(crate) tp_size: Option<u64>,
    /// Tokens in a page of its KV cache.
    pub(crate) page_size: Option<u64>,
    /// Tokens that its KV cache holds.
    pub(crate) token_capacity: Option<u64>,
    pub(crate) version: Option<String>,
    /// What is another one after each start.
    pub(crate) instance: Option<String>,
    /// Whether it keeps what it has computed of a prompt for the next ones that begin alike.
    pub(crate) keeps_prefixes: Option<bool>,
    /// It said something that is too long to be taken over.
    pub(crate) is_too_long: bool,
    /// It does not say anything without a key, or to the one that it is sent: how it says so.
    pub(crate) barred: Option<String>,
}

/// How far a worker has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Known, and not asked yet.
    Pending,
    /// Asked, and not there yet; why not, if that is known.
    Probing(Option<String>),
    /// It gets requests while it is healthy.
    Ready,
    /// It is to leave, and gets requests until another one is there for them.
    Staying,
    /// It gets no more of them.
    Draining,
    /// It did not come within its time.
    Failed(String),
}

/// The ends of a worker's requests, for those who wait for the last of them.
#[derive(Debug, Default)]
pub(super) struct Ends {
    is_waiting: AtomicBool,
    news: Notify,
}

/// What requests saw of a worker since somebody asked last.
#[derive(Debug, Default)]
pub(crate) struct Sightings {
    count: AtomicU32,
    news: Notify,
}

// === impl Member ===

impl Member {
    /// A worker of which nothing is known but this; `pools` is the number of pools that hold connections.
    pub(crate) fn new(id: WorkerId, address: Address, terms: Terms, pools: usize) -> Self {
        Self {
            first_id: id,
            identity: Identity::of(&address),
            ranks: Ranks::whole(id, &address),
            address,
            unreachable: Sightings::default(),
            lost: Sightings::default(),
            doubted: Sightings::default(),
            checks: HealthChecks::default(),
            idle: IdleConnections::new(pools),
            since: Instant::now(),
            terms: RwLock::new(terms),
            facts: RwLock::default(),
            stage: Mutex::new((Stage::Pending, SystemTime::now())),
            settled: Mutex::default(),
            ends: Ends::default(),
            task: Mutex::new(None),
        }
    }

    /// The value of `Authorization` towards it; `None`: the client's goes on.
    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        self.terms.read().authorization.clone()
    }

    pub(crate) fn terms(&self) -> Terms {
        self.terms.read().clone()
    }

    /// Looks at what is said of it and what it says itself, without a copy.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Terms, &Facts) -> T) -> T {
        look(&self.terms.read(), &self.facts.read())
    }

    /// Whether nobody but itself says which model it serves.
    pub(super) fn is_model_open(&self) -> bool {
        self.terms.read().model.is_none()
    }

    /// Changes them; what they were, and what they are.
    pub(super) fn change_terms(&self, change: impl FnOnce(&mut Terms)) -> (Terms, Terms) {
        let mut terms = self.terms.write();
        let before = terms.clone();
        change(&mut terms);
        (before, terms.clone())
    }

    pub(crate) fn facts(&self) -> Facts {
        self.facts.read().clone()
    }

    pub(crate) fn set_facts(&self, facts: Facts) {
        *self.facts.write() = facts;
    }

    pub(crate) fn stage(&self) -> Stage {
        self.stage.lock().0.clone()
    }

    /// The same, and since when.
    pub(crate) fn stage_since(&self) -> (Stage, SystemTime) {
        self.stage.lock().clone()
    }

    /// Whether it is one of which this is true.
    pub(super) fn stage_is(&self, of: impl FnOnce(&Stage) -> bool) -> bool {
        of(&self.stage.lock().0)
    }

    /// Comes to another stage, if it is in one of which `from` is true; whether it was.
    pub(crate) fn advance(&self, from: impl FnOnce(&Stage) -> bool, to: Stage) -> bool {
        let mut stage = self.stage.lock();
        let may = from(&stage.0);
        if may {
            *stage = (to, SystemTime::now());
        }
        may
    }

    /// It may be gone, or be another one than it was: it is asked what it is and is probed now, instead of at the next
    /// interval. Costs next to nothing, and may be said by every request. Each of the two questions is under way once at
    /// most, and at most once in a second.
    ///
    /// Such a probe counts as any other. While those that follow are without an answer they come a second apart. So an engine that
    /// hangs leaves the rotation after the failure threshold times the probe's timeout and a second: 18 s by default.
    pub(crate) fn inquire(&self) {
        self.lost.note();
        self.doubted.note();
    }

    /// A request there has ended, which the core has been told of.
    pub(crate) fn request_ended(&self) {
        if self.ends.is_waiting.load(Ordering::Acquire) {
            self.ends.news.notify_waiters();
        }
    }

    /// What goes on about it from now on; what went on before ends.
    pub(super) fn attend(&self, task: AbortHandle) {
        if let Some(former) = self.task.lock().replace(task) {
            former.abort();
        }
    }

    /// Nothing goes on about it any more.
    pub(super) fn leave_alone(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}

// === impl Terms ===

impl Terms {
    /// The gateway's defaults for what is not said.
    pub(crate) const PRIORITY: u32 = 50;
    pub(crate) const COST: f64 = 1.0;

    /// What the configuration says; `key` is that of workers without one of their own.
    pub(crate) fn of(worker: &StaticWorker, key: Option<&ApiKey>) -> Self {
        Self {
            authorization: worker.api_key.as_ref().or(key).map(ApiKey::credential),
            model: worker.model.clone(),
            priority: worker.priority,
            cost: worker.cost,
            labels: worker.labels.clone(),
            health_check: worker.health_check,
            role: worker.role,
            bootstrap_port: worker.bootstrap_port,
        }
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            authorization: None,
            model: None,
            priority: Self::PRIORITY,
            cost: Self::COST,
            labels: BTreeMap::new(),
            health_check: true,
            role: None,
            bootstrap_port: BootstrapPort::Asked,
        }
    }
}

// === impl Stage ===

impl Stage {
    /// The word for it.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Probing(_) => "probing",
            Self::Ready => "ready",
            Self::Staying | Self::Draining => "draining",
            Self::Failed(_) => "failed",
        }
    }

    /// Whether it may still become ready by itself.
    pub(crate) fn is_coming(&self) -> bool {
        matches!(self, Self::Pending | Self::Probing(_))
    }

    /// Whether it was told to leave.
    pub(crate) fn is_leaving(&self) -> bool {
        matches!(self, Self::Staying | Self::Draining)
    }
}

// === impl Ends ===

impl Ends {
    /// From now on each of them is news.
    pub(super) fn watch(&self) {
        self.is_waiting.store(true, Ordering::Release);
    }

    /// Comes with the next one that follows its being enabled; several may be one.
    pub(super) fn next(&self) -> Notified<'_> {
        self.news.notified()
    }
}

// === impl Sightings ===

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
