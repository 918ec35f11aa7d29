//! What is kept per role: warm-up, doubt, and what becomes of them when a role is found out.

use super::*;
use crate::WarmUp;
use crate::index::{IndexLimits, PrefixIndex};
use crate::testing::matches;

fn warming(router: &Router) -> Vec<u32> {
    router.workers(0).filter(|view| view.warming).map(|view| view.worker.id.0).collect()
}

fn prefixes_for_prefill(counts: [u32; 3]) -> Router {
    let policies = Policies::all(config("round_robin", &[])).with(Role::Prefill, config("cache_aware", &[]));
    let warm_up = Some(WarmUp { duration_ns: 60 * SECOND, share: 1.0 });
    let policies = policies.expect("it fits");
    fleet(RouterConfig { policies, warm_up, ..RouterConfig::new(config("random", &[]), 1) }, counts)
}

#[test]
fn a_worker_warms_up_under_the_policy_of_its_role() {
    let mut router = prefixes_for_prefill([0, 1, 1]);
    plan(&mut router).expect("both are there");
    for role in [Role::Prefill, Role::Decode, Role::Regular] {
        router.add_worker(0, WorkerSpec { role, ..worker_spec(9) });
    }
    assert_eq!(warming(&router), [2], "decode's policy follows no prefixes, and no regular one has worked");
    let request =
        PlanRequest { scopes: router.scopes(None).expect("any model"), prefers_pair: Some(true), ..ANY };
    let mut reasons = BTreeSet::new();
    for _ in 0..6 {
        let told = PlanMatches { prefill: matches(&[(0, 900)]), ..PlanMatches::default() };
        let prefill = router.plan(0, &request, &told).expect("all are there").prefill.expect("a pair");
        reasons.insert((prefill.worker.0, prefill.reason.as_str()));
    }
    assert_eq!(reasons, BTreeSet::from([(0, "cache_hit"), (2, "warm_up")]));
    let decode = router.config().policies.clone().with(Role::Decode, config("cache_aware", &[]));
    router.set_policies(0, decode.expect("it fits"));
    assert_eq!(warming(&router), [2], "the other role's change ends nothing");
    router.set_policies(0, Policies::all(config("random", &[])));
    assert_eq!(warming(&router), [] as [u32; 0]);
}

#[test]
fn a_role_that_is_found_out_moves_the_worker_and_keeps_its_books() {
    let breaker = BreakerConfig { failure_threshold: 2, ..BreakerConfig::default() };
    let policy = config("consistent_hashing", &[]);
    let start = RouterConfig { breaker: Some(breaker), ..RouterConfig::new(policy, 1) };
    let mut router = fleet(start, [2, 0, 1]);
    let lost = router.assign(0, &RouteRequest { exclude: &[WorkerId(1)], ..REQUEST }, &Default::default());
    router.finish(0, lost.expect("0 is left").lease, Outcome::Failed);
    let kept = router.assign(0, &RouteRequest { exclude: &[WorkerId(1)], ..REQUEST }, &Default::default());
    assert!(router.set_role(0, WorkerId(0), Role::Prefill));
    assert!(
        !router.set_role(0, WorkerId(0), Role::Prefill) && !router.set_role(0, WorkerId(7), Role::Prefill)
    );
    let view = router.workers(0).next().expect("it is there");
    assert_eq!((view.worker.role, view.load.requests, view.tally.failed), (Role::Prefill, 1, 1));
    assert_eq!(view.breaker.consecutive_failures, 1);
    let keys = RoutingKeys { routing_key: Some("k"), ..RoutingKeys::default() };
    let found = plan_as(&mut router, PlanRequest { prefers_pair: Some(true), keys, ..ANY }).expect("a pair");
    assert_eq!(workers(found), (Some(0), 2));
    assert_eq!(found.prefill.expect("a pair").reason.as_str(), "routing_key_hit", "it is on the other ring");
    let regular = PlanRequest { prefers_pair: Some(false), keys, ..ANY };
    assert_eq!(plan_as(&mut router, regular).map(workers), Ok((None, 1)), "and no more on the first");
    assert!(router.finish(0, kept.expect("it was booked").lease, DONE).existed);
    router.check().expect("the books agree");
}

#[test]
fn a_role_that_is_found_out_begins_the_warm_up_of_that_role() {
    let mut router = prefixes_for_prefill([1, 1, 1]);
    plan(&mut router).expect("all are there");
    assert_eq!(warming(&router), [] as [u32; 0]);
    assert!(router.set_role(0, WorkerId(0), Role::Prefill));
    assert_eq!(warming(&router), [0]);
    assert!(router.set_role(0, WorkerId(0), Role::Decode));
    assert_eq!(warming(&router), [] as [u32; 0]);
}

#[test]
fn what_a_pair_found_in_a_cache_is_the_prefill_workers_alone() {
    let mut router = fleet(RouterConfig::new(config("cache_aware", &[]), 1), [0, 1, 1]);
    let scopes = router.scopes(None).expect("any model");
    let mut index = PrefixIndex::new(IndexLimits { max_tree_size: 1 << 20, max_tree_bytes: 1 << 24 });
    let text = [b'x'; 2000];
    let prompt = PromptView::Text(&text);
    let request = PlanRequest { scopes, prompt, prompt_tokens: 500, ..ANY };
    let mut verdicts = [Vec::new(), Vec::new()];
    for n in 0..20 {
        let matches = crate::PerRole::of(|role| {
            scopes.get(role).map_or_else(Default::default, |scope| index.lookup(scope, prompt))
        });
        let plan = router.plan(n, &request, &matches).expect("both are there");
        let legs = [plan.prefill.expect("a pair"), plan.decode];
        assert!(n == 0 || legs.iter().all(|leg| leg.predicted_cached_tokens == Some(499)), "{legs:?}");
        for (leg, scope) in legs.into_iter().zip([scopes.prefill, scopes.decode]) {
            index.credit(scope.expect("it is served"), prompt, leg.worker);
        }
        finish(&mut router, plan);
        for (leg, verdicts) in legs.iter().zip(&mut verdicts) {
            verdicts.push(router.told_cached(n, leg, 0));
        }
    }
    let [prefill, decode] = verdicts;
    assert_eq!(prefill.iter().position(|lost| *lost), Some(8), "the first was predicted nothing");
    assert!(decode.iter().all(|lost| !lost), "it has no prefix cache");
}
