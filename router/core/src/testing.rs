//! Helpers of the tests of this crate.

use crate::fleet::{Role, WorkerSpec};
use crate::index::Matches;
use crate::ledger::Outcome;
use crate::request::{Assignment, RouteRequest, RoutingKeys, Unroutable};
use crate::router::{Router, RouterConfig};
use crate::{OptionValue, PolicyConfig, PromptView, ScopeId, WorkerId};

/// One second, in nanoseconds.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// A request of 1,000 characters and 250 tokens for any regular worker.
pub(crate) const REQUEST: RouteRequest<'static> = RouteRequest {
    scope: ScopeId(0),
    prompt: PromptView::Text(&[b'x'; 1000]),
    prompt_tokens: 250,
    output_budget: None,
    keys: RoutingKeys { target_worker: None, routing_key: None, implicit: None },
    exclude: &[],
};

/// The end of a request that was answered.
pub(crate) const DONE: Outcome = Outcome::Completed;

/// A configuration with options set.
pub(crate) fn config(policy: &str, options: &[(&str, OptionValue)]) -> PolicyConfig {
    let mut config = PolicyConfig::new(policy).expect("a policy of the table");
    for (key, value) in options {
        config.set(key, value.clone()).expect("an allowed value");
    }
    config
}

/// A router with `workers` regular workers.
pub(crate) fn router(policy: PolicyConfig, workers: u32, seed: u64) -> Router {
    let mut router = Router::new(RouterConfig::new(policy, seed)).expect("default intervals");
    for n in 0..workers {
        router.add_worker(0, worker_spec(n));
    }
    router
}

/// A regular worker.
pub(crate) fn worker_spec(n: u32) -> WorkerSpec {
    WorkerSpec { url: format!("http://10.0.0.{n}:30000"), model: None, role: Role::Regular }
}

/// Matches of a prompt of 1,000 characters.
pub(crate) fn matches(rows: &[(u32, u64)]) -> Matches {
    Matches::new(rows.iter().map(|(worker, chars)| (WorkerId(*worker), *chars)), 1000)
}

/// Books [`REQUEST`] with these matches.
pub(crate) fn assign(router: &mut Router, rows: &[(u32, u64)]) -> Assignment {
    router.assign(0, &REQUEST, &matches(rows)).expect("a worker is there")
}

/// Books `requests` requests on `worker`, whatever the policy thinks of it.
pub(crate) fn load(router: &mut Router, worker: u32, requests: usize) {
    let ids: Vec<WorkerId> = router.workers(0).map(|view| view.worker.id).collect();
    let others: Vec<WorkerId> = ids.into_iter().filter(|id| id.0 != worker).collect();
    for _ in 0..requests {
        let request = RouteRequest { exclude: &others, ..REQUEST };
        router.assign(0, &request, &Matches::default()).expect("the worker is there");
    }
}

/// Requests in flight, per worker.
pub(crate) fn in_flight(router: &Router) -> Vec<u64> {
    router.workers(0).map(|view| view.load.requests).collect()
}

/// Where a request with a routing key goes, and why.
pub(crate) fn with_key(router: &mut Router, now_ns: u64, key: &str) -> (u32, &'static str) {
    let keys = RoutingKeys { routing_key: Some(key), ..RoutingKeys::default() };
    let assignment = with_keys(router, now_ns, keys).expect("a worker is there");
    (assignment.worker.0, assignment.reason.as_str())
}

/// Books a request with these keys, and ends it.
pub(crate) fn with_keys(
    router: &mut Router,
    now_ns: u64,
    keys: RoutingKeys<'_>,
) -> Result<Assignment, Unroutable> {
    let assignment = router.assign(now_ns, &RouteRequest { keys, ..REQUEST }, &Matches::default())?;
    router.finish(now_ns, assignment.lease, DONE);
    Ok(assignment)
}
