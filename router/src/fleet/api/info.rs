//! What is told of workers.

use std::collections::BTreeMap;

use router_core::{Role, WorkerView};
use serde::Serialize;
use serde_json::{Value, json};

use crate::fleet::{Facts, Member, Stage, Terms};
use crate::shared::Shared;

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
    let now_ns = shared.clock.now_ns();
    let books = shared.books.lock();
    let rows = books.router.workers(now_ns).zip(books.members());
    let workers: Vec<_> = rows.map(|(row, member)| info(shared, &row, member)).collect();
    drop(books);
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
    let books = shared.books.lock();
    let mut rows = books.router.workers(shared.clock.now_ns());
    rows.find(|row| row.worker.id == member.id).map(|row| info(shared, &row, member))
}

fn info(shared: &Shared, row: &WorkerView<'_>, member: &Member) -> WorkerInfo {
    let Terms { priority, cost, labels, health_check, .. } = member.terms();
    let stage = member.stage();
    let (reason, job) = match &stage {
        Stage::Pending => (None, Some("pending")),
        Stage::Probing(problem) => (problem.clone(), Some("processing")),
        Stage::Failed(problem) => (Some(problem.clone()), Some("failed")),
        Stage::Ready | Stage::Draining => (None, None),
    };
    let job_status = job.map(|status| {
        json!({"job_type": "AddWorker", "worker_url": member.address.url, "status": status, "message": reason})
    });
    WorkerInfo {
        id: member.identity.to_string(),
        url: member.address.url.clone(),
        model_id: row.worker.model.clone().unwrap_or_else(|| "unknown".to_owned()),
        priority,
        cost,
        worker_type: row.worker.role.label(),
        is_healthy: row.worker.healthy,
        circuit_breaker: row.breaker.state.label(),
        load: row.load.requests,
        connection_mode: "http",
        runtime_type: "sglang",
        metadata: Metadata { labels: all_labels(labels, member.facts()) },
        disable_health_check: !health_check || shared.rounds.health.is_none(),
        state: stage.label(),
        reason,
        warming_up: row.warming,
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
