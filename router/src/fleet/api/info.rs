//! What is told of workers.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use router_core::Role;
use serde::Serialize;
use serde_json::{Value, json};

use crate::fleet::{Facts, Member, Stage, Standing, Terms};
use crate::shared::Shared;

/// Why a worker that is to leave gets requests.
const STAYING: &str = "still gets requests: no other worker is ready for them, and one is on its way";

/// The answer to `GET /workers`.
#[derive(Serialize)]
pub(super) struct WorkerList {
    workers: Vec<WorkerInfo>,
    total: usize,
    stats: RoleCounts,
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
    is_healthy: bool,
    circuit_breaker: &'static str,
    /// Requests in flight.
    load: u64,
    connection_mode: &'static str,
    runtime_type: &'static str,
    metadata: Metadata,
    disable_health_check: bool,
    /// How far it has come.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
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
    let workers: Vec<_> = shared.standings().iter().map(|worker| info(shared, worker)).collect();
    let count = |role: Role| workers.iter().filter(|worker| worker.worker_type == role.label()).count();
    let stats = RoleCounts {
        prefill_count: count(Role::Prefill),
        decode_count: count(Role::Decode),
        regular_count: count(Role::Regular),
    };
    WorkerList { total: workers.len(), workers, stats }
}

/// One worker; nothing if it has just left.
pub(super) fn one(shared: &Shared, member: &Member) -> Option<WorkerInfo> {
    let standings = shared.standings();
    standings.iter().find(|worker| worker.member.id == member.id).map(|worker| info(shared, worker))
}

fn info(shared: &Shared, worker: &Standing) -> WorkerInfo {
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
        id: member.identity.to_string(),
        url: member.address.url.clone(),
        model_id: worker.model.as_deref().unwrap_or("unknown").to_owned(),
        priority,
        cost,
        worker_type: worker.role.label(),
        is_healthy: worker.healthy,
        circuit_breaker: worker.breaker.state.label(),
        load: worker.load.requests,
        connection_mode: "http",
        runtime_type: "sglang",
        metadata: Metadata { labels: all_labels(labels, member.facts()) },
        disable_health_check: !health_check || shared.rounds.health.is_none(),
        state: stage.label(),
        reason,
        warming_up: worker.warming,
        job_status,
    }
}

/// What the worker says of itself, as labels; what operators say goes before it.
fn all_labels(given: BTreeMap<String, String>, facts: Facts) -> BTreeMap<String, String> {
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    let found = [
        ("served_model_name", facts.model),
        ("disaggregation_mode", facts.role),
        ("dp_size", number(facts.dp_size)),
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
