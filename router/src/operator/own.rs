//! What the router answers by itself, in the gateway's shapes.

use std::collections::BTreeMap;

use http::{HeaderMap, StatusCode};
use router_core::{BreakerState, Role};
use serde::Serialize;
use serde_json::json;

use super::reply;
use crate::error::Answer;
use crate::metrics::Format;
use crate::shared::Shared;
use crate::stop::Stop;

#[derive(Serialize)]
#[serde(untagged)]
enum Readiness {
    Ready {
        status: &'static str,
        healthy_workers: usize,
        total_workers: usize,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        empty_pools: Vec<&'static str>,
        #[serde(skip_serializing_if = "Pools::is_empty")]
        pools: Pools,
    },
    NotReady {
        status: &'static str,
        reason: String,
        /// The roles for which there is nobody; in fleets without prefill and decode workers that goes without saying.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        empty_pools: Vec<&'static str>,
        #[serde(skip_serializing_if = "Pools::is_empty")]
        pools: Pools,
    },
}

/// How many workers there are, by role; empty in fleets without prefill and decode workers.
type Pools = BTreeMap<&'static str, PoolCount>;

#[derive(Serialize)]
struct PoolCount {
    healthy_workers: usize,
    total_workers: usize,
}

/// `/health`, `/healthz` and `/liveness`: the process answers.
pub(crate) fn alive() -> Answer {
    reply::text("text/plain; charset=utf-8", "OK")
}

/// `/version`.
pub(crate) fn version() -> Answer {
    reply::json(&json!({"version": env!("CARGO_PKG_VERSION"), "name": "router"}))
}

/// `/readiness` and `/readyz`: there are workers for a whole request that may get requests, by their health and by their
/// breakers: a regular one, or a prefill and a decode worker. And the router is not about to stop.
pub(crate) fn readiness(shared: &Shared) -> Answer {
    if shared.has_come_to(Stop::Leave) {
        return not_ready("shutting down".to_owned(), Vec::new(), Pools::new());
    }
    let now_ns = shared.clock.now_ns();
    let mut pools = Role::ALL.map(|role| (role, Pool::default()));
    for row in shared.books.lock().router.workers(now_ns) {
        let Some((_, pool)) = pools.iter_mut().find(|(role, _)| *role == row.worker.role) else { continue };
        pool.total += 1;
        pool.healthy += usize::from(row.worker.takes_requests());
        pool.able += usize::from(row.worker.takes_requests() && row.breaker.state != BreakerState::Open);
    }
    judge(pools)
}

/// The workers of a role.
#[derive(Debug, Clone, Copy, Default)]
struct Pool {
    total: usize,
    healthy: usize,
    /// May get requests.
    able: usize,
}

fn judge(pools: [(Role, Pool); 3]) -> Answer {
    let [(_, regular), pair @ ..] = pools;
    let lacking = pair.into_iter().filter(|(_, pool)| pool.able == 0);
    let mut lacking: Vec<_> = lacking.collect();
    let has_pairs = pair.iter().any(|(_, pool)| pool.total > 0);
    if regular.able > 0 || lacking.is_empty() {
        let sum = |of: fn(&Pool) -> usize| pools.iter().map(|(_, pool)| of(pool)).sum();
        let ready = Readiness::Ready {
            status: "ready",
            healthy_workers: sum(|pool| pool.able),
            total_workers: sum(|pool| pool.total),
            empty_pools: lacking.iter().filter(|_| has_pairs).map(|(role, _)| role.label()).collect(),
            pools: counts(pools),
        };
        return reply::json(&ready);
    }
    if !has_pairs {
        return not_ready(regular.lack(""), Vec::new(), Pools::new());
    }
    if regular.total > 0 {
        lacking.insert(0, (Role::Regular, regular));
    }
    let reasons = lacking.iter().map(|(role, pool)| pool.lack(&format!("{} ", role.label())));
    let reason = reasons.collect::<Vec<_>>().join("; ");
    not_ready(reason, lacking.iter().map(|(role, _)| role.label()).collect(), counts(pools))
}

/// Those of the pools of which there is something to tell: of pairs both.
fn counts(pools: [(Role, Pool); 3]) -> Pools {
    let [_, pair @ ..] = pools;
    let has_pairs = pair.iter().any(|(_, pool)| pool.total > 0);
    let told =
        pools.into_iter().filter(|(role, pool)| has_pairs && (*role != Role::Regular || pool.total > 0));
    let count = |pool: Pool| PoolCount { healthy_workers: pool.able, total_workers: pool.total };
    told.map(|(role, pool)| (role.label(), count(pool))).collect()
}

impl Pool {
    /// Why none of them may get requests; `kind` is what they are, with a blank behind it.
    fn lack(self, kind: &str) -> String {
        match (self.total, self.healthy) {
            (0, _) => format!("no {kind}workers"),
            (_, 0) => format!("insufficient healthy {kind}workers"),
            _ => format!("the circuit breakers of all healthy {kind}workers are open"),
        }
    }
}

fn not_ready(reason: String, empty_pools: Vec<&'static str>, pools: Pools) -> Answer {
    let body = Readiness::NotReady { status: "not ready", reason, empty_pools, pools };
    reply::json_with(StatusCode::SERVICE_UNAVAILABLE, &body)
}

/// `/metrics`, in the format that is asked for.
pub(crate) fn metrics(shared: &Shared, headers: &HeaderMap) -> Answer {
    let format = Format::wanted(headers);
    reply::metrics(format, shared.metrics_text(format))
}
