//! What `/metrics` says, by idea: one file each.

mod decisions;
mod families;
mod form;
mod happened;
mod workers;

use std::collections::BTreeMap;

use router_core::index::IndexStats;
use router_core::prompt::PromptView;
use router_core::{
    BreakerView, PerRole, PlanMatches, PlanRequest, PolicyConfig, PolicyId, Reason, Role, Router,
    RouterConfig, RoutingKeys, WorkerSpec,
};

use super::live::{EngineRow, WorkerRow};
use super::*;
use crate::error::Refusal;

/// The counters of a router and of its two workers.
struct Counters {
    metrics: Arc<Metrics>,
    workers: [Arc<WorkerMetrics>; 2],
}

impl Counters {
    fn render(&self, places: std::ops::Range<usize>) -> String {
        self.render_as(Format::Plain, places)
    }

    fn render_as(&self, format: Format, places: std::ops::Range<usize>) -> String {
        self.metrics.render(live(&self.workers, places), format)
    }
}

fn policy(name: &str) -> PolicyId {
    PolicyConfig::new(name).expect("a policy").id()
}

fn everywhere(policy: PolicyId) -> PerRole<PolicyId> {
    PerRole::of(|_| policy)
}

/// A decision of this policy for this reason.
fn assignment(policy: PolicyId, reason: &'static str) -> Assignment {
    let config = RouterConfig::new(PolicyConfig::of(policy.row()), 1);
    let mut router = Router::new(config).expect("a policy of the table");
    let url = "http://w0".to_owned();
    router.add_worker(0, WorkerSpec { url, model: None, role: Role::Regular });
    let request = PlanRequest {
        scopes: router.scopes(None).expect("any model"),
        prompt: PromptView::Unreadable,
        prompt_tokens: 1,
        output_budget: None,
        keys: RoutingKeys::default(),
        exclude: &[],
        prefers_pair: None,
    };
    let plan = router.plan(0, &request, &PlanMatches::default()).expect("a worker");
    Assignment { reason: Reason::new(reason), ..plan.decode }
}

fn counters() -> Counters {
    let endpoints = [("/generate", "generate"), ("/a\"b\\", "/a\"b\\"), ("/v2/generate", "generate")];
    let endpoints = endpoints.map(|(path, label)| EndpointName::new(path, label));
    let metrics = Metrics::new(everywhere(policy("cache_aware")), endpoints.into_iter(), &[0.5, 2.0], 1);
    Counters { metrics, workers: Default::default() }
}

/// Everything happens once, with a stated model or without.
fn happen(counters: &Counters, model: Option<&str>) {
    let Counters { metrics, workers } = counters;
    let slot = metrics.in_flight.enter(0, 0);
    metrics.arrived(0);
    metrics.exhausted(2, Leg::Whole);
    metrics.arrived_elsewhere(&Method::GET, "other");
    metrics.admitted(3_000_000);
    let by_prefix = assignment(policy("cache_aware"), "cache_hit");
    metrics.decided(Role::Regular, &by_prefix);
    workers[0].selected(by_prefix.policy);
    workers[1].failed(WorkerError::Connect);
    metrics.retried(0, Leg::Whole, 1, Cause::Connect, 0);
    metrics.retried(0, Leg::Decode, 200, Cause::Status(599), 700_000_000_000);
    metrics.exhausted(1, Leg::Whole);
    metrics.exhausted(0, Leg::Prefill);
    for (status, refusal) in [
        (200, None),
        (503, None),
        (429, Some(Refusal::QueueFull { retry_after_secs: 1 })),
        (503, Some(Refusal::NoWorkers { retry_after_secs: 1 })),
        (404, Some(Refusal::NotFound)),
    ] {
        let status = StatusCode::from_u16(status).expect("a status");
        metrics.upstream_answered(status);
        metrics.answered(status, refusal);
    }
    let model = metrics.routes.model(model);
    assert_eq!([0, 1, 2].map(|at| metrics.group(at)), [0, 1, 0]);
    model.row(0, Backend::Pair).failed(RequestError::Overloaded);
    let row = model.row(0, Backend::Regular);
    row.failed(RequestError::Timeout);
    for histogram in [&row.duration, &row.first_token, &row.per_token, &row.generation] {
        [0, 1_500_000_000, 9_000_000_000_000].into_iter().for_each(|time| histogram.observe(time));
    }
    let mut gaps = Gaps::default();
    gaps.add(1, 3);
    row.gaps.merge(&gaps);
    metrics.cache.told(1, 2, 3);
    metrics.ended(0, End::Complete, 1_000_000_000);
    metrics.in_flight.leave(slot);
}

fn worker(workers: &[Arc<WorkerMetrics>; 2], place: usize) -> WorkerRow {
    WorkerRow {
        counts: Arc::clone(&workers[place]),
        url: format!("http://w{place}").into(),
        role: "regular",
        model: (place == 0).then(|| Arc::from("m")),
        healthy: true,
        requests: 3,
        queued_prefill_tokens: Some(0),
        breaker: BreakerView::default(),
        ..WorkerRow::default()
    }
}

fn engine(place: usize) -> EngineRow {
    EngineRow {
        url: format!("http://w{place}"),
        role: "regular",
        good_checks: 2 * place as u64,
        failed_checks: 0,
    }
}

fn live(workers: &[Arc<WorkerMetrics>; 2], places: std::ops::Range<usize>) -> Live {
    let index = IndexStats { bytes: 1, nodes: 2, evicted_chars: 3, chars: Vec::new() };
    Live {
        engines: places.clone().map(engine).collect(),
        workers: places.map(|place| worker(workers, place)).collect(),
        index: Some(index),
        ..Live::default()
    }
}
