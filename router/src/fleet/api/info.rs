//! What is told of workers.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use router_core::{BreakerState, Policies, Role};
use serde::Serialize;
use serde_json::{Value, json};

use super::target::Target;
use crate::fleet::{Layout, Member, Stage, Standing, Terms};
use crate::shared::Shared;

/// Why a worker that is to leave gets requests.
const STAYING: &str = "still gets requests: no other worker is ready for them, and one is on its way";

/// Labels of a rank: its number, and the engine's URL.
const RANK: &str = "dp_rank";
const BASE_URL: &str = "dp_base_url";

/// The answer to `GET /workers`.
#[derive(Serialize)]
pub(super) struct WorkerList {
    workers: Vec<WorkerInfo>,
    total: usize,
    stats: RoleCounts,
    /// Legs of requests in flight, by the role of their workers.
    in_flight: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the gateway's names")]
struct RoleCounts {
    prefill_count: usize,
    decode_count: usize,
    regular_count: usize,
}

/// One worker under the gateway's names, and what the gateway does not tell.
#[derive(Serialize)]
pub(super) struct WorkerInfo {
    id: String,
    url: String,
    model_id: String,
    priority: u32,
    cost: f64,
    worker_type: &'static str,
    /// Of a prefill worker whose port is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    bootstrap_port: Option<u16>,
    /// By which it is chosen.
    policy: &'static str,
    is_healthy: bool,
    circuit_breaker: &'static str,
    /// Requests in flight.
    load: u64,
    /// Of a prefill worker: decode streams in flight that go on with what it computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    decode_streams: Option<u64>,
    connection_mode: &'static str,
    runtime_type: &'static str,
    metadata: Metadata,
    disable_health_check: bool,
    /// How far it has come.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Of an engine: the URLs of those that it is addressed by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ranks: Vec<String>,
    /// It is given more than its policy would give it, as its cache is cold.
    warming_up: bool,
    /// The gateway's word for a registration that is not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    job_status: Option<Value>,
}

#[derive(Serialize)]
struct Metadata {
    labels: BTreeMap<String, String>,
}

/// All workers.
pub(super) fn list(shared: &Shared) -> WorkerList {
    let policies = shared.policies();
    let infos = shared.standings();
    let workers: Vec<_> = infos.iter().map(|worker| info(shared, worker, &policies)).collect();
    let of = |role: Role| workers.iter().filter(move |worker| worker.worker_type == role.label());
    let count = |role| of(role).count();
    let load = |role| of(role).map(|worker| worker.load).sum();
    let in_flight = Role::ALL.into_iter().map(|role| (role.label(), load(role))).collect();
    let stats = RoleCounts {
        prefill_count: count(Role::Prefill),
        decode_count: count(Role::Decode),
        regular_count: count(Role::Regular),
    };
    WorkerList { total: workers.len(), workers, stats, in_flight }
}

/// One worker; nothing if it has just left. An engine that is addressed by ranks is told of as their sum.
pub(super) fn one(shared: &Shared, target: &Target) -> Option<WorkerInfo> {
    let (standings, policies) = (shared.standings(), shared.policies());
    let is_meant = |worker: &&Standing| {
        let is_engine = worker.member.first_id == target.member.first_id;
        is_engine && target.rank.as_ref().is_none_or(|rank| rank.id == worker.rank.id)
    };
    let of = standings.iter().filter(is_meant).map(|worker| info(shared, worker, &policies));
    match (target.rank.is_some(), target.member.layout()) {
        (true, _) | (_, Layout::Whole) => of.last(),
        (false, Layout::Ranks { .. }) => together(&target.member, of.collect()),
    }
}

/// An engine by its ranks: as far as they differ, how the best of them is.
fn together(member: &Member, ranks: Vec<WorkerInfo>) -> Option<WorkerInfo> {
    let load = ranks.iter().map(|rank| rank.load).sum();
    let decode_streams = ranks.iter().map(|rank| rank.decode_streams).sum();
    let (is_healthy, warming_up) =
        (ranks.iter().any(|rank| rank.is_healthy), ranks.iter().all(|rank| rank.warming_up));
    let urls = ranks.iter().map(|rank| rank.url.clone()).collect();
    let is_closed = |rank: &&WorkerInfo| rank.circuit_breaker == BreakerState::Closed.label();
    let breaker = ranks.iter().find(is_closed).or(ranks.first())?.circuit_breaker;
    let mut engine = ranks.into_iter().next()?;
    engine.metadata.labels.remove(RANK);
    engine.metadata.labels.remove(BASE_URL);
    Some(WorkerInfo {
        id: member.identity.to_string(),
        url: member.address.url.clone(),
        is_healthy,
        circuit_breaker: breaker,
        load,
        decode_streams,
        state: member.stage().label(),
        warming_up,
        ranks: urls,
        ..engine
    })
}

fn info(shared: &Shared, worker: &Standing, policies: &Policies) -> WorkerInfo {
    let member = &worker.member;
    let Terms { priority, cost, labels, health_check, .. } = member.terms();
    let (stage, since) = member.stage_since();
    let (reason, job) = match &stage {
        Stage::Pending => (None, Some("pending")),
        Stage::Probing(problem) => (problem.clone(), Some("processing")),
        Stage::Failed(problem) => (Some(problem.clone()), Some("failed")),
        Stage::Staying => (Some(STAYING.to_owned()), None),
        Stage::Ready | Stage::Draining => (member.facts().barred, None),
    };
    let job_status = job.map(|status| {
        // Seconds since 1970, as in the gateway.
        let timestamp = since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        json!({"job_type": "AddWorker", "worker_url": member.address.url, "status": status, "message": reason,
            "timestamp": timestamp})
    });
    WorkerInfo {
        id: worker.rank.identity.to_string(),
        url: worker.rank.url.to_string(),
        model_id: worker.model.as_deref().unwrap_or("unknown").to_owned(),
        priority,
        cost,
        worker_type: worker.role.label(),
        bootstrap_port: (worker.role == Role::Prefill).then(|| member.bootstrap().port).flatten(),
        policy: policies.get(worker.role).name(),
        is_healthy: worker.healthy,
        circuit_breaker: worker.breaker.state.label(),
        load: worker.load.requests,
        decode_streams: (worker.role == Role::Prefill).then_some(worker.decode_streams),
        connection_mode: "http",
        runtime_type: "sglang",
        metadata: Metadata { labels: all_labels(labels, worker) },
        disable_health_check: !health_check || shared.rounds.health.is_none(),
        state: if worker.rank.is_leaving() { Stage::Draining.label() } else { stage.label() },
        reason,
        ranks: Vec::new(),
        warming_up: worker.warming,
        job_status,
    }
}

/// What the worker says of itself, as labels; what operators say goes before it.
fn all_labels(given: BTreeMap<String, String>, worker: &Standing) -> BTreeMap<String, String> {
    let facts = worker.member.facts();
    let rank = worker.rank.number;
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    let found = [
        ("served_model_name", facts.model),
        ("disaggregation_mode", facts.disaggregation_mode.filter(|mode| mode != "null")),
        ("dp_size", number(facts.dp_size)),
        (RANK, rank.map(|rank| rank.to_string())),
        (BASE_URL, rank.map(|_| worker.member.address.url.clone())),
        ("load_balance_method", facts.load_balance_method),
        ("tp_size", number(facts.tp_size)),
        ("page_size", number(facts.page_size)),
        ("max_total_num_tokens", number(facts.token_capacity)),
        ("version", facts.version),
    ];
    let mut labels: BTreeMap<_, _> =
        found.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
    labels.extend(given);
    labels
}
