use std::collections::BTreeSet;

use crate::breaker::{BreakerConfig, BreakerState};
use crate::ledger::Outcome;
use crate::plan::{Leg, NoPlan, Plan, PlanMatches, PlanRequest, Scopes};
use crate::policy::{POLICIES, Policies, PolicyConfig};
use crate::request::Unroutable;
use crate::testing::{DONE, REQUEST, SECOND, config, router, worker_spec};
use crate::{PromptView, Role, RouteRequest, Router, RouterConfig, RoutingKeys, WorkerId, WorkerSpec};

mod keys;
mod limit;
mod model;
mod preference;
mod roles;

/// A request of 1,000 characters and 250 tokens for whoever is there.
const ANY: PlanRequest<'static> = PlanRequest {
    scopes: Scopes { regular: None, prefill: None, decode: None },
    prompt: PromptView::Text(&[b'x'; 1000]),
    prompt_tokens: 250,
    output_budget: None,
    keys: RoutingKeys { target_worker: None, routing_key: None, implicit: None },
    exclude: &[],
    prefers_pair: None,
};

/// So many workers of each role, their ids in this order.
fn fleet(config: RouterConfig, counts: [u32; 3]) -> Router {
    let mut router = Router::new(config).expect("it can work");
    for (role, count) in Role::ALL.into_iter().zip(counts) {
        for _ in 0..count {
            let n = router.workers(0).count() as u32;
            router.add_worker(0, WorkerSpec { role, ..worker_spec(n) });
        }
    }
    router
}

fn pairs(policy: &str, prefill: u32, decode: u32) -> Router {
    fleet(RouterConfig::new(config(policy, &[]), 1), [0, prefill, decode])
}

/// Plans [`ANY`] with these changes for the workers that are there.
fn plan_as(router: &mut Router, request: PlanRequest<'_>) -> Result<Plan, NoPlan> {
    let scopes = router.scopes(None).expect("any model");
    let request = PlanRequest { scopes, ..request };
    let proposed = router.propose_plan(0, &request, &PlanMatches::default());
    let planned = router.plan(0, &request, &PlanMatches::default());
    let workers = planned.map(|plan| (plan.prefill.map(|leg| leg.worker), plan.decode.worker));
    assert_eq!(proposed.map(|it| (it.prefill.map(|leg| leg.worker), it.decode.worker)), workers);
    router.check().expect("the books agree");
    planned
}

fn plan(router: &mut Router) -> Result<Plan, NoPlan> {
    plan_as(router, ANY)
}

/// The workers of a plan: prefill and decode, or regular alone.
fn workers(plan: Plan) -> (Option<u32>, u32) {
    (plan.prefill.map(|leg| leg.worker.0), plan.decode.worker.0)
}

fn finish(router: &mut Router, plan: Plan) {
    for leg in plan.prefill.into_iter().chain([plan.decode]) {
        assert!(router.finish(0, leg.lease, DONE).existed);
    }
}

fn derived(router: &Router) -> Vec<u64> {
    router.workers(0).map(|view| view.derived).collect()
}

fn no(leg: Leg, why: Unroutable) -> Result<Plan, NoPlan> {
    Err(NoPlan { leg, why })
}

#[test]
fn a_plan_for_a_regular_worker_is_an_assignment() {
    for row in POLICIES {
        let [mut planned, mut assigned] = [(); 2].map(|()| router(PolicyConfig::of(row), 5, 3));
        let scopes = planned.scopes(None).expect("any model");
        assert_eq!((scopes.regular, scopes.prefill, scopes.decode), (Some(REQUEST.scope), None, None));
        for n in 0..50 {
            let regular = crate::testing::matches(&[(n % 5, u64::from(n) * 20)]);
            let text = vec![b'a'; n as usize * 100];
            let (exclude, key) = ([WorkerId(n % 3)], format!("k{}", n % 7));
            let keys = RoutingKeys { routing_key: Some(&key), ..RoutingKeys::default() };
            let prompt = PromptView::Text(&text);
            let request = RouteRequest { prompt, keys, exclude: &exclude, ..REQUEST };
            let one = assigned.assign(u64::from(n), &request, &regular).expect("a worker is there");
            let request = PlanRequest { scopes, prompt, keys, exclude: &exclude, ..ANY };
            let matches = PlanMatches { regular, ..PlanMatches::default() };
            let plan = planned.plan(u64::from(n), &request, &matches).expect("a worker is there");
            assert_eq!(plan, Plan { prefill: None, decode: one }, "{}", row.name);
        }
    }
}

#[test]
fn each_role_has_its_policy_and_its_cursor() {
    let mut router = pairs("round_robin", 2, 3);
    let turns: Vec<_> = (0..6).map(|_| workers(plan(&mut router).expect("all are there"))).collect();
    let expected = [(0, 2), (1, 3), (0, 4), (1, 2), (0, 3), (1, 4)];
    assert_eq!(turns, expected.map(|(prefill, decode)| (Some(prefill), decode)));
    let other = router.config().policies.clone().with(Role::Decode, config("power_of_two", &[]));
    let signals = router.set_policies(0, other.expect("it fits"));
    assert!(
        signals.loads && router.signals_of(Role::Decode).loads && !router.signals_of(Role::Prefill).loads
    );
    let next = plan(&mut router).expect("all are there");
    let prefill = next.prefill.expect("a pair");
    assert_eq!(prefill.worker, WorkerId(0), "the other role keeps its turn");
    assert_eq!([prefill, next.decode].map(|leg| leg.policy.row().name), ["round_robin", "power_of_two"]);
    assert_eq!(next.decode.reason.as_str(), "in_flight");
}

#[test]
fn two_policies_that_draw_pair_everybody_with_everybody() {
    for policy in ["random", "cache_aware", "power_of_two"] {
        let mut router = pairs(policy, 4, 4);
        let mut seen = BTreeSet::new();
        for _ in 0..400 {
            let plan = plan(&mut router).expect("all are there");
            seen.insert(workers(plan));
            finish(&mut router, plan);
        }
        assert_eq!(seen.len(), 16, "{policy}: {seen:?}");
    }
}

#[test]
fn both_legs_are_booked_or_none() {
    let breaker = BreakerConfig { failure_threshold: 1, half_open_permits: 1, ..BreakerConfig::default() };
    let start = RouterConfig { breaker: Some(breaker), ..RouterConfig::new(config("round_robin", &[]), 1) };
    let mut router = fleet(start, [0, 2, 1]);
    let first = plan(&mut router).expect("all are there");
    assert_eq!((router.in_flight(), router.bookings(), derived(&router)), (2, 2, vec![1, 0, 0]));
    router.set_healthy(0, WorkerId(2), false);
    for _ in 0..3 {
        assert_eq!(plan(&mut router), no(Leg::Decode, Unroutable::NoneHealthy { workers: 1 }));
    }
    assert_eq!((router.in_flight(), router.bookings(), derived(&router)), (2, 2, vec![1, 0, 0]));
    router.set_healthy(0, WorkerId(2), true);
    assert_eq!(workers(plan(&mut router).expect("all are there")), (Some(1), 2), "it kept its turn");
    finish(&mut router, first);
    assert_eq!((router.in_flight(), derived(&router)), (2, vec![0, 1, 0]));
}

#[test]
fn a_leg_takes_no_permit_for_a_plan_that_is_none() {
    let breaker = BreakerConfig { failure_threshold: 1, half_open_permits: 1, ..BreakerConfig::default() };
    let start = RouterConfig { breaker: Some(breaker), ..RouterConfig::new(config("random", &[]), 1) };
    let mut router = fleet(start, [0, 1, 1]);
    let lost = plan(&mut router).expect("all are there");
    router.finish(0, lost.prefill.expect("a pair").lease, Outcome::Failed);
    router.finish(0, lost.decode.lease, DONE);
    let states: Vec<_> = router.workers(0).map(|view| view.breaker.state).collect();
    assert_eq!(states, [BreakerState::Open, BreakerState::Closed], "the failing leg alone is blamed");
    assert!(matches!(
        plan(&mut router),
        Err(NoPlan { leg: Leg::Prefill, why: Unroutable::BreakersOpen { .. } })
    ));
    let (half_open_ns, scopes) = (3600 * SECOND, router.scopes(None).expect("any model"));
    let request = PlanRequest { scopes, ..ANY };
    router.set_healthy(0, WorkerId(1), false);
    for _ in 0..3 {
        let refused = router.plan(half_open_ns, &request, &PlanMatches::default());
        assert_eq!(refused, no(Leg::Decode, Unroutable::NoneHealthy { workers: 1 }));
    }
    router.set_healthy(0, WorkerId(1), true);
    assert!(router.plan(half_open_ns, &request, &PlanMatches::default()).is_ok(), "the permit is there");
    let next = router.plan(half_open_ns, &request, &PlanMatches::default());
    assert_eq!(next, no(Leg::Prefill, Unroutable::BreakersOpen { retry_after_ns: 0 }));
}

#[test]
fn the_leg_that_nobody_can_have_is_named() {
    use Unroutable::{AllTried, NoWorkers, NoneHealthy};
    let all_tried = AllTried { tried: 2 };
    let excluding = |exclude: &[u32]| {
        let exclude: Vec<_> = exclude.iter().map(|id| WorkerId(*id)).collect();
        plan_as(&mut pairs("random", 2, 2), PlanRequest { exclude: &exclude, ..ANY })
    };
    assert_eq!(excluding(&[0, 1]), no(Leg::Prefill, all_tried));
    assert_eq!(excluding(&[2, 3]), no(Leg::Decode, all_tried));
    assert_eq!(excluding(&[0, 1, 2, 3]), no(Leg::Prefill, all_tried));
    assert_eq!(excluding(&[0, 3]).map(workers), Ok((Some(1), 2)));
    let after = |change: &dyn Fn(&mut Router, WorkerId), ids: &[u32]| {
        let mut router = pairs("random", 2, 2);
        ids.iter().for_each(|id| change(&mut router, WorkerId(*id)));
        plan(&mut router)
    };
    let sick = |router: &mut Router, id| _ = router.set_healthy(0, id, false);
    assert_eq!(after(&sick, &[0, 1]), no(Leg::Prefill, NoneHealthy { workers: 2 }));
    assert_eq!(after(&sick, &[2, 3]), no(Leg::Decode, NoneHealthy { workers: 2 }));
    assert_eq!(after(&sick, &[0, 3]).map(workers), Ok((Some(1), 2)));
    for gone in [
        |router: &mut Router, id| _ = router.remove_worker(0, id),
        |router: &mut Router, id| {
            _ = router.set_draining(0, id);
        },
    ] {
        assert_eq!(after(&gone, &[0, 1]), no(Leg::Prefill, NoWorkers));
        assert_eq!(after(&gone, &[2, 3]), no(Leg::Decode, NoWorkers));
        assert_eq!(after(&gone, &[1, 2]).map(workers), Ok((Some(0), 3)));
    }
    assert_eq!(plan(&mut pairs("random", 0, 0)), no(Leg::Whole, NoWorkers));
    assert_eq!(Leg::Whole.label(), "regular");
    let told = no(Leg::Decode, NoWorkers).expect_err("there is none").to_string();
    assert_eq!(told, "decode leg: no worker serves this model");
}

#[test]
fn legs_end_each_for_itself() {
    let mut router = pairs("random", 1, 1);
    let plan = plan(&mut router).expect("both are there");
    let prefill = plan.prefill.expect("a pair").lease;
    let loads = |router: &Router| router.workers(0).map(|view| view.load.requests).collect::<Vec<_>>();
    assert!(router.first_token(0, plan.decode.lease) && router.progress(0, plan.decode.lease, 5));
    assert!(router.finish(0, prefill, DONE).existed && !router.finish(0, prefill, DONE).existed);
    assert_eq!((loads(&router), derived(&router)), (vec![0, 1], vec![1, 0]));
    assert!(router.finish(0, plan.decode.lease, Outcome::ClientGone).existed);
    assert!(!router.finish(0, plan.decode.lease, DONE).existed);
    assert_eq!((loads(&router), derived(&router)), (vec![0, 0], vec![0, 0]));
}

#[test]
fn a_policy_for_which_a_role_is_no_place_is_not_even_built() {
    let policies = Policies::all(config("bucket", &[]));
    assert!(policies.clone().with(Role::Decode, config("bucket", &[])).is_err());
    let start = RouterConfig { policies, ..RouterConfig::new(config("random", &[]), 1) };
    let plan = plan(&mut fleet(start, [0, 2, 2])).expect("all are there");
    let names = [plan.prefill.expect("a pair"), plan.decode].map(|leg| leg.policy.row().name);
    assert_eq!(names, ["bucket", "round_robin"]);
}
