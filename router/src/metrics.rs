//! What `/metrics` shows: the gateway's names for the gateway's facts, and what the gateway lacks.
//!
//! Every label value comes from a table of this program or from its command line, never from a request, so the
//! number of series is bounded. What a request touches is looked up once at the start and kept as plain counters;
//! gauges are read from the decision core when somebody asks.

use std::sync::atomic::Ordering;

use http::{Method, StatusCode};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use router_core::PolicyRow;
use router_core::index::IndexStats;

use crate::proxy::ENDPOINTS;

/// The gateway's buckets in seconds, carried on to 600 s: answers last minutes.
const DURATION_BUCKETS: [f64; 22] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 45.0, 60.0, 90.0,
    120.0, 180.0, 240.0, 360.0, 600.0,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PathLabels {
    method: &'static str,
    path: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResponseLabels {
    status_code: u16,
    error_code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    router_type: &'static str,
    backend_type: &'static str,
    connection_mode: &'static str,
    model: &'static str,
    endpoint: &'static str,
    streaming: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndpointLabels {
    router_type: &'static str,
    backend_type: &'static str,
    connection_mode: &'static str,
    model: &'static str,
    endpoint: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SelectionLabels {
    worker_type: &'static str,
    connection_mode: &'static str,
    model: &'static str,
    policy: &'static str,
    worker: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkerLabels {
    worker: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    policy: &'static str,
    reason: &'static str,
}

/// What is counted of one endpoint.
#[derive(Debug)]
pub(crate) struct EndpointMetrics {
    arrived: Counter,
    /// Not streaming, streaming.
    routed: [Counter; 2],
    /// Arrival to the last byte, of answers that came in full.
    pub(crate) duration: Histogram,
    /// Arrival to the first token, of streams.
    pub(crate) first_token: Histogram,
}

/// Prompt tokens of the answers in which the engine told its `cached_tokens`, so that belief and fact compare.
#[derive(Debug, Default)]
pub(crate) struct CacheMetrics {
    pub(crate) predicted: Counter,
    pub(crate) actual: Counter,
    pub(crate) prompt: Counter,
}

#[derive(Debug, Default)]
struct IndexMetrics {
    bytes: Gauge,
    nodes: Gauge,
    evicted_chars: Counter,
}

/// All metrics of the process.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    endpoints: Vec<EndpointMetrics>,
    http_requests: Family<PathLabels, Counter>,
    http_responses: Family<ResponseLabels, Counter>,
    http_ok: Counter,
    selections: Vec<Counter>,
    decisions: Vec<(&'static str, Counter)>,
    pub(crate) cache: CacheMetrics,
    index: IndexMetrics,
    worker_active: Family<WorkerLabels, Gauge>,
    worker_tokens: Family<WorkerLabels, Gauge>,
    worker_health: Family<WorkerLabels, Gauge>,
}

/// One worker's gauges.
#[derive(Debug)]
pub(crate) struct WorkerGauges {
    pub(crate) url: String,
    pub(crate) requests: u64,
    pub(crate) tokens: u64,
    pub(crate) healthy: bool,
}

impl Metrics {
    /// The metrics of a router with this policy and these workers, in the order of the fleet table.
    pub(crate) fn new<'a>(policy: &PolicyRow, workers: impl Iterator<Item = &'a str>) -> Self {
        let mut registry = Registry::default();
        let http_requests = Family::<PathLabels, Counter>::default();
        registry.register("smg_http_requests", "Requests received", http_requests.clone());
        let http_responses = Family::<ResponseLabels, Counter>::default();
        registry.register("smg_http_responses", "Responses begun", http_responses.clone());
        let http_ok =
            http_responses.get_or_create_owned(&ResponseLabels { status_code: 200, error_code: "" });
        Self {
            endpoints: endpoints(&mut registry, &http_requests),
            http_requests,
            http_responses,
            http_ok,
            selections: selections(&mut registry, policy.name, workers),
            decisions: decisions(&mut registry, policy),
            cache: CacheMetrics::registered(&mut registry),
            index: IndexMetrics::registered(&mut registry),
            worker_active: gauge_family(&mut registry, "smg_worker_requests_active", "Requests in flight"),
            worker_tokens: gauge_family(&mut registry, "smg_worker_tokens_active", "Tokens in flight"),
            worker_health: gauge_family(&mut registry, "smg_worker_health", "1 healthy, 0 not"),
            registry,
        }
    }

    /// The metrics of row `at` of the endpoint table.
    pub(crate) fn endpoint(&self, at: usize) -> &EndpointMetrics {
        &self.endpoints[at]
    }

    /// A request came to a proxied endpoint.
    pub(crate) fn arrived(&self, at: usize) {
        self.endpoints[at].arrived.inc();
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
        self.http_requests.get_or_create(&PathLabels { method, path }).inc();
    }

    /// A response head goes out.
    pub(crate) fn answered(&self, status: StatusCode, error_code: &'static str) {
        if status == StatusCode::OK && error_code.is_empty() {
            self.http_ok.inc();
        } else {
            let labels = ResponseLabels { status_code: status.as_u16(), error_code };
            self.http_responses.get_or_create(&labels).inc();
        }
    }

    /// A request was booked on the worker at this place of the fleet table.
    pub(crate) fn decided(&self, endpoint: usize, streaming: bool, worker: usize, reason: &'static str) {
        self.endpoints[endpoint].routed[usize::from(streaming)].inc();
        self.selections[worker].inc();
        let of_reason = self.decisions.iter().find(|(label, _)| *label == reason);
        debug_assert!(of_reason.is_some(), "the reason {reason} is not in the policy's row");
        if let Some((_, count)) = of_reason {
            count.inc();
        }
    }

    /// The text of `/metrics`.
    pub(crate) fn render(&self, workers: &[WorkerGauges], index: Option<IndexStats>) -> String {
        for worker in workers {
            let labels = WorkerLabels { worker: worker.url.clone() };
            self.worker_active.get_or_create(&labels).set(signed(worker.requests));
            self.worker_tokens.get_or_create(&labels).set(signed(worker.tokens));
            self.worker_health.get_or_create(&labels).set(i64::from(worker.healthy));
        }
        if let Some(stats) = index {
            self.index.bytes.set(signed(stats.bytes));
            self.index.nodes.set(signed(stats.nodes));
            self.index.evicted_chars.inner().store(stats.evicted_chars, Ordering::Relaxed);
        }
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn endpoints(registry: &mut Registry, arrivals: &Family<PathLabels, Counter>) -> Vec<EndpointMetrics> {
    let histograms = || Family::<EndpointLabels, Histogram, _>::new_with_constructor(histogram as fn() -> _);
    let routed = Family::<RequestLabels, Counter>::default();
    registry.register("smg_router_requests", "Requests given to a worker", routed.clone());
    let durations = histograms();
    registry.register(
        "smg_router_request_duration_seconds",
        "Arrival to last byte of answers that came in full",
        durations.clone(),
    );
    let firsts = histograms();
    registry.register("smg_router_ttft_seconds", "Arrival to first token of streams", firsts.clone());
    let rows = ENDPOINTS.iter().map(|row| {
        let of = |streaming| {
            routed.get_or_create_owned(&RequestLabels {
                router_type: "http",
                backend_type: "regular",
                connection_mode: "http",
                model: "unknown",
                endpoint: row.label,
                streaming,
            })
        };
        let labels = EndpointLabels {
            router_type: "http",
            backend_type: "regular",
            connection_mode: "http",
            model: "unknown",
            endpoint: row.label,
        };
        EndpointMetrics {
            arrived: arrivals.get_or_create_owned(&PathLabels { method: "POST", path: row.path }),
            routed: [of(false), of(true)],
            duration: durations.get_or_create_owned(&labels),
            first_token: firsts.get_or_create_owned(&labels),
        }
    });
    rows.collect()
}

fn histogram() -> Histogram {
    Histogram::new(DURATION_BUCKETS)
}

fn selections<'a>(
    registry: &mut Registry,
    policy: &'static str,
    workers: impl Iterator<Item = &'a str>,
) -> Vec<Counter> {
    let family = Family::<SelectionLabels, Counter>::default();
    registry.register("smg_worker_selection", "Requests assigned to a worker", family.clone());
    let of = |url: &str| {
        family.get_or_create_owned(&SelectionLabels {
            worker_type: "regular",
            connection_mode: "http",
            model: "unknown",
            policy,
            worker: url.to_owned(),
        })
    };
    workers.map(of).collect()
}

fn decisions(registry: &mut Registry, policy: &PolicyRow) -> Vec<(&'static str, Counter)> {
    let family = Family::<DecisionLabels, Counter>::default();
    registry.register("smg_router_decisions", "Decisions by the policy's reason", family.clone());
    let of = |reason: &&'static str| {
        (*reason, family.get_or_create_owned(&DecisionLabels { policy: policy.name, reason }))
    };
    policy.reasons.iter().map(of).collect()
}

fn gauge_family(registry: &mut Registry, name: &str, help: &str) -> Family<WorkerLabels, Gauge> {
    let family = Family::<WorkerLabels, Gauge>::default();
    registry.register(name, help, family.clone());
    family
}

impl CacheMetrics {
    fn registered(registry: &mut Registry) -> Self {
        let cache = Self::default();
        registry.register(
            "smg_router_predicted_cached_tokens",
            "Prompt tokens that the router believed cached when it booked",
            cache.predicted.clone(),
        );
        registry.register(
            "smg_router_cached_tokens",
            "Prompt tokens that the engine reported as cached",
            cache.actual.clone(),
        );
        registry.register(
            "smg_router_prompt_tokens",
            "Prompt tokens of the answers that told their cached tokens",
            cache.prompt.clone(),
        );
        cache
    }
}

impl IndexMetrics {
    fn registered(registry: &mut Registry) -> Self {
        let index = Self::default();
        registry.register("smg_router_index_bytes", "Memory of the prefix index", index.bytes.clone());
        registry.register("smg_router_index_nodes", "Nodes of the prefix index", index.nodes.clone());
        registry.register(
            "smg_router_index_evicted_chars",
            "Characters that the prefix index gave up for its bounds",
            index.evicted_chars.clone(),
        );
        index
    }
}
