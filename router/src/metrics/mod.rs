//! What `/metrics` shows: the gateway's names for the gateway's facts, and what the gateway lacks.
//!
//! Every label value comes from a table of this program, from its command line or from a worker, never from a client,
//! so the number of series is bounded. What a usual request touches are plain atomic counters that it finds by place;
//! only what is rare takes a lock. What belongs to a worker is written out for the workers that the fleet has at that
//! moment, so a worker that has left leaves no series behind.

mod clients;
mod expose;
mod format;
mod histogram;
mod in_flight;
mod labels;
mod live;
mod routes;
mod table;
#[cfg(test)]
mod tests;
mod workers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Method, StatusCode};
use parking_lot::Mutex;
use router_core::{Assignment, Cause, Leg, POLICIES, PerRole, PolicyId, Role};

use crate::error::Refusal;
pub(crate) use clients::ClientMetrics;
pub(crate) use format::Format;
use histogram::Bounds;
pub(crate) use histogram::{DURATION_BUCKETS, Gaps, Histogram};
use in_flight::InFlight;
pub(crate) use in_flight::Slot;
pub(crate) use labels::{Backend, End, RequestError, WorkerError, is_turned_away};
pub(crate) use live::{Live, QueueRow};
pub(crate) use routes::{Model, Routes, Row};
use table::Table;
pub(crate) use workers::{HealthChecks, WorkerMetrics};

/// The attempts whose back-off has a histogram of its own; later ones share the last.
const BACKOFF_ATTEMPTS: usize = 8;

/// The legs by whose failures is told apart.
const LEGS: [Leg; 3] = [Leg::Whole, Leg::Prefill, Leg::Decode];

/// All counters of the process.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// The policies that rule.
    policies: Mutex<PerRole<PolicyId>>,
    endpoints: Vec<EndpointMetrics>,
    pub(crate) routes: Routes,
    pub(crate) in_flight: InFlight,
    pub(crate) cache: CacheMetrics,
    /// By policy, by reason, by the role of the workers that were chosen among.
    decisions: Vec<Vec<(&'static str, PerRole<AtomicU64>)>>,
    /// Requests to paths that are not proxied, by method and path.
    elsewhere: Table<(&'static str, &'static str)>,
    /// Response heads towards clients, and from workers.
    answers: Statuses,
    upstream_answers: Statuses,
    /// By endpoint, by the leg that failed, and by cause.
    retries: Table<(usize, Leg, &'static str)>,
    backoffs: [Histogram; BACKOFF_ATTEMPTS],
    pub(crate) clients: ClientMetrics,
    admission: AdmissionMetrics,
    /// Refusals for want of room or workers, by code.
    sheds: Table<&'static str>,
    ends: [AtomicU64; End::ALL.len()],
}

/// How an endpoint is called in the metrics and in the log.
#[derive(Debug, Clone)]
pub(crate) struct EndpointName {
    pub(crate) path: Box<str>,
    pub(crate) label: Box<str>,
}

/// What is counted of one endpoint, whatever the model.
#[derive(Debug)]
struct EndpointMetrics {
    name: EndpointName,
    /// The first place with this label: endpoints may share one, and then what is counted by label.
    group: usize,
    arrived: AtomicU64,
    /// By the leg that failed last, in the order of [`LEGS`].
    exhausted: [AtomicU64; LEGS.len()],
    /// Arrival to the end, of all requests.
    duration: Histogram,
}

/// Prompt tokens of the answers in which the engine told its `cached_tokens`, so that belief and fact compare.
#[derive(Debug, Default)]
pub(crate) struct CacheMetrics {
    predicted: AtomicU64,
    actual: AtomicU64,
    prompt: AtomicU64,
}

/// Response heads by status and error code; the usual one is a counter of its own.
#[derive(Debug, Default)]
struct Statuses {
    ok: AtomicU64,
    others: Table<(u16, &'static str)>,
}

#[derive(Debug)]
struct AdmissionMetrics {
    admitted: AtomicU64,
    turned_away: AtomicU64,
    wait: Histogram,
}

impl Metrics {
    /// The metrics of a router with these policies and these endpoints in the order of their table. `duration_buckets` are
    /// seconds; `threads` is how many serve requests.
    pub(crate) fn new(
        policies: PerRole<PolicyId>,
        endpoints: impl Iterator<Item = EndpointName>,
        duration_buckets: &[f64],
        threads: usize,
    ) -> Arc<Self> {
        let durations = Bounds::of_seconds(duration_buckets);
        let standard = Bounds::of_seconds(&DURATION_BUCKETS);
        let names: Vec<EndpointName> = endpoints.collect();
        let group = |name: &EndpointName| names.iter().position(|other| other.label == name.label);
        let endpoints = names
            .iter()
            .enumerate()
            .map(|(at, name)| EndpointMetrics::new(name.clone(), group(name).unwrap_or(at), &durations));
        let endpoints: Vec<_> = endpoints.collect();
        let decisions =
            POLICIES.iter().map(|row| row.reasons.iter().map(|reason| (*reason, PerRole::default())));
        Arc::new(Self {
            policies: Mutex::new(policies),
            routes: Routes::new(endpoints.len(), &durations),
            endpoints,
            in_flight: InFlight::new(threads),
            cache: CacheMetrics::default(),
            decisions: decisions.map(Iterator::collect).collect(),
            elsewhere: Table::default(),
            answers: Statuses::default(),
            upstream_answers: Statuses::default(),
            retries: Table::default(),
            backoffs: std::array::from_fn(|_| Histogram::new(&standard)),
            clients: ClientMetrics::default(),
            admission: AdmissionMetrics {
                admitted: AtomicU64::new(0),
                turned_away: AtomicU64::new(0),
                wait: Histogram::new(&standard),
            },
            sheds: Table::default(),
            ends: Default::default(),
        })
    }

    /// The name of the policy that rules now over the workers of a role. A decision knows by which it was made.
    pub(crate) fn policy(&self, role: Role) -> &'static str {
        self.policies.lock().get(role).row().name
    }

    /// Other policies rule.
    pub(crate) fn set_policies(&self, policies: PerRole<PolicyId>) {
        *self.policies.lock() = policies;
    }

    /// The name of the endpoint at this place.
    pub(crate) fn endpoint(&self, at: usize) -> &EndpointName {
        &self.endpoints[at].name
    }

    /// The place under which everything is counted that is told apart by the label of the endpoint at this place.
    pub(crate) fn group(&self, at: usize) -> usize {
        self.endpoints[at].group
    }

    /// A request came to the endpoint at this place.
    pub(crate) fn arrived(&self, endpoint: usize) {
        increment(&self.endpoints[endpoint].arrived);
    }

    /// A request came to another path; `path` is one of ours, or `other`.
    pub(crate) fn arrived_elsewhere(&self, method: &Method, path: &'static str) {
        let method = match *method {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::DELETE => "DELETE",
            Method::HEAD => "HEAD",
            Method::OPTIONS => "OPTIONS",
            Method::PATCH => "PATCH",
            _ => "other",
        };
        self.elsewhere.add((method, path));
    }

    /// The limit on concurrent requests let one in after this wait.
    pub(crate) fn admitted(&self, wait_ns: u64) {
        increment(&self.admission.admitted);
        self.admission.wait.observe(wait_ns);
    }

    /// A leg of a request was assigned to a worker of this role.
    pub(crate) fn decided(&self, role: Role, assignment: &Assignment) {
        let reason = assignment.reason.as_str();
        let mut reasons = self.decisions[assignment.policy.place()].iter();
        let of_reason = reasons.find(|(label, _)| *label == reason);
        debug_assert!(of_reason.is_some(), "the reason {reason} is not in the policy's row");
        if let Some((_, counts)) = of_reason {
            increment(counts.get(role));
        }
    }

    /// A try failed by this leg, the `attempt`-th of its request from 1, and another one follows after this wait.
    pub(crate) fn retried(&self, endpoint: usize, leg: Leg, attempt: u32, cause: Cause, wait_ns: u64) {
        self.retries.add((self.group(endpoint), leg, labels::cause(cause)));
        let at = (attempt.max(1) as usize).min(BACKOFF_ATTEMPTS) - 1;
        self.backoffs[at].observe(wait_ns);
    }

    /// A try failed by this leg that would have been followed by another one, were there any left.
    pub(crate) fn exhausted(&self, endpoint: usize, leg: Leg) {
        increment(&self.endpoints[self.group(endpoint)].exhausted[leg as usize]);
    }

    /// A worker's response head came.
    pub(crate) fn upstream_answered(&self, status: StatusCode) {
        self.upstream_answers.add(status, "");
    }

    /// A response head goes out; with the refusal if it is the router's own.
    pub(crate) fn answered(&self, status: StatusCode, refusal: Option<Refusal>) {
        self.answers.add(status, refusal.map_or("", Refusal::code));
        let Some(refusal) = refusal else { return };
        match RequestError::of_refusal(refusal) {
            RequestError::Overloaded => {
                increment(&self.admission.turned_away);
                self.sheds.add(refusal.code());
            }
            RequestError::NoWorkers => self.sheds.add(refusal.code()),
            _ => {}
        }
    }

    /// A request is over, this long after its arrival.
    pub(crate) fn ended(&self, endpoint: usize, end: End, duration_ns: u64) {
        increment(&self.ends[end as usize]);
        self.endpoints[endpoint].duration.observe(duration_ns);
    }
}

impl EndpointName {
    pub(crate) fn new(path: &str, label: &str) -> Self {
        Self { path: path.into(), label: label.into() }
    }
}

impl EndpointMetrics {
    fn new(name: EndpointName, group: usize, durations: &Bounds) -> Self {
        Self {
            name,
            group,
            arrived: AtomicU64::new(0),
            exhausted: Default::default(),
            duration: Histogram::new(durations),
        }
    }
}

impl CacheMetrics {
    /// An answer told how much of its prompt was cached.
    pub(crate) fn told(&self, predicted: u64, actual: u64, prompt: u64) {
        self.predicted.fetch_add(predicted, Ordering::Relaxed);
        self.actual.fetch_add(actual, Ordering::Relaxed);
        self.prompt.fetch_add(prompt, Ordering::Relaxed);
    }
}

impl Statuses {
    fn add(&self, status: StatusCode, code: &'static str) {
        if status == StatusCode::OK && code.is_empty() {
            increment(&self.ok);
        } else {
            self.others.add((status.as_u16(), code));
        }
    }

    fn rows(&self) -> Vec<((u16, &'static str), u64)> {
        let mut rows = self.others.rows();
        rows.insert(0, ((200, ""), read(&self.ok)));
        rows
    }
}

fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// A stream's gaps as a histogram shows them: their sum in seconds, and the buckets.
#[cfg(test)]
pub(crate) fn shown(gaps: &Gaps) -> (f64, Vec<(f64, u64)>) {
    let histogram = Histogram::new(&Bounds::of_gaps());
    histogram.merge(gaps);
    let shown = histogram.snapshot();
    (shown.sum, shown.buckets)
}
