use proptest::prelude::*;

use crate::draw::Draws;
use crate::index::Matches;
use crate::ledger::Outcome;
use crate::request::{RouteRequest, RoutingKeys};
use crate::testing::{DONE, REQUEST, SECOND, config, matches, router, with_key, worker_spec};
use crate::{
    LeaseId, LoadReport, OptionKind, POLICIES, Policies, PolicyConfig, PromptView, Role, Router,
    RouterConfig, Signals, WarmUp, WorkerId,
};

const REPORT: LoadReport = LoadReport { total_tokens: 9_000, running: 3, waiting: 1, token_usage: 0.5 };

/// A policy of the table with some of its options at the end of their ranges.
fn any_config(draws: &mut Draws) -> PolicyConfig {
    let row = &POLICIES[draws.below(POLICIES.len())];
    let mut config = PolicyConfig::of(row);
    for spec in row.options.iter().filter(|_| draws.below(2) == 0) {
        let set = match spec.kind {
            OptionKind::Integer { min, .. } => config.set(spec.key, min),
            OptionKind::Float { min, .. } => config.set(spec.key, min),
            OptionKind::Choice(words) => config.set(spec.key, words[words.len() - 1]),
        };
        set.expect("it is in the range");
    }
    config
}

fn draws_of(seed: u64) -> Draws {
    Draws::new(seed, 0)
}

#[test]
fn all_books_stay_when_the_policy_is_another_one() {
    let breaker = Some(crate::BreakerConfig { failure_threshold: 1, ..Default::default() });
    let start = RouterConfig { breaker, ..RouterConfig::new(config("round_robin", &[]), 1) };
    let mut router = Router::new(start).expect("it can work");
    (0..3).for_each(|n| _ = router.add_worker(0, worker_spec(n)));
    let leases: Vec<_> =
        (0..6).map(|_| router.assign(0, &REQUEST, &Matches::default()).expect("a worker")).collect();
    router.finish(0, leases[0].lease, Outcome::Failed);
    router.set_draining(0, WorkerId(2));
    let shown = |router: &Router| -> Vec<_> {
        router.workers(0).map(|view| (view.worker.clone(), view.load, view.tally, view.breaker)).collect()
    };
    let before = shown(&router);
    for row in POLICIES {
        let signals = router.set_policies(0, Policies::all(PolicyConfig::of(row)));
        assert_eq!((signals, router.signals()), (PolicyConfig::of(row).signals(), signals));
        assert_eq!(
            (router.config().policies.get(Role::Regular).name(), shown(&router)),
            (row.name, before.clone())
        );
        let proposal = router.propose(0, &REQUEST, &Matches::default()).expect("one is left");
        assert_eq!(proposal.worker, WorkerId(1), "{}: 0 has a breaker, 2 is draining", row.name);
    }
    leases[1..].iter().for_each(|it| assert!(router.finish(0, it.lease, DONE).existed));
    assert_eq!(router.in_flight(), 0);
    router.check().expect("the books agree");
}

#[test]
fn reports_are_kept_as_long_as_somebody_wants_them() {
    let mut router = router(config("power_of_two", &[]), 2, 1);
    let reason = |router: &Router| {
        router.propose(2, &REQUEST, &Matches::default()).expect("a worker is there").reason.as_str()
    };
    let report = |router: &mut Router| {
        (0..2).for_each(|worker| router.report_loads(1, 2, WorkerId(worker), Some(REPORT)));
    };
    report(&mut router);
    let requests = config("power_of_two", &[("load_metric", "requests".into())]);
    assert!(router.set_policies(2, Policies::all(requests)).loads && reason(&router) == "reported_load");
    assert_eq!(router.set_policies(2, Policies::all(config("random", &[]))), Signals::default());
    report(&mut router);
    assert!(
        router.set_policies(2, Policies::all(config("power_of_two", &[]))).loads
            && reason(&router) == "in_flight"
    );
    report(&mut router);
    assert_eq!(reason(&router), "reported_load");
}

#[test]
fn a_report_counts_what_was_booked_before_its_feed_was_opened() {
    let mut router = router(config("random", &[]), 2, 1);
    let booked = router.assign(0, &REQUEST, &Matches::default()).expect("a worker is there");
    router.set_policies(1, Policies::all(config("power_of_two", &[])));
    // Both say the same, and that includes the request that is in flight: no one has more than the other.
    (0..2).for_each(|worker| router.report_loads(5, 6, WorkerId(worker), Some(REPORT)));
    router.finish(7, booked.lease, DONE);
    let proposal = router.propose(8, &REQUEST, &Matches::default()).expect("a worker is there");
    assert_eq!(proposal.worker, booked.worker, "it has less by what has ended there");
}

#[test]
fn what_is_not_changed_is_not_forgotten() {
    let mut router = router(config("round_robin", &[]), 3, 1);
    router.assign(0, &REQUEST, &Matches::default()).expect("a worker is there");
    router.set_policies(0, Policies::all(config("round_robin", &[])));
    let next = router.propose(0, &REQUEST, &Matches::default()).expect("a worker is there");
    assert_eq!(next.worker, WorkerId(1), "it keeps its turn");
    let home = {
        router.set_policies(0, Policies::all(config("manual", &[])));
        with_key(&mut router, 0, "k").0
    };
    router.set_policies(0, Policies::all(config("random", &[])));
    router.set_policies(0, Policies::all(config("manual", &[])));
    let (_, reason) = with_key(&mut router, 0, "k");
    assert_eq!(reason, "vacant", "{home} was forgotten with the other policy");
}

#[test]
fn nobody_warms_up_under_a_policy_that_follows_no_prefixes() {
    let warm_up = Some(WarmUp { duration_ns: SECOND, share: 1.0 });
    let start = RouterConfig { warm_up, ..RouterConfig::new(config("cache_aware", &[]), 1) };
    let mut router = Router::new(start).expect("it can work");
    router.add_worker(0, worker_spec(0));
    router.assign(0, &REQUEST, &Matches::default()).expect("a worker is there");
    router.add_worker(0, worker_spec(1));
    let warming = |router: &Router| router.workers(0).filter(|view| view.warming).count();
    assert_eq!(warming(&router), 1);
    router.set_policies(0, Policies::all(config("cache_aware", &[("cache_threshold", 0.5.into())])));
    assert_eq!(warming(&router), 1, "still");
    router.set_policies(0, Policies::all(config("random", &[])));
    assert_eq!(warming(&router), 0);
}

/// Policies whose choices depend on fleet, books and request alone.
const FORGETFUL: [&str; 5] = ["random", "power_of_two", "cache_aware", "consistent_hashing", "prefix_hash"];

#[test]
fn a_router_that_was_switched_decides_as_one_that_began_so() {
    for (policy, seed) in FORGETFUL.iter().flat_map(|policy| (0..20).map(move |seed| (policy, seed))) {
        let mut draws = draws_of(seed);
        let mut switched = router(any_config(&mut draws), 5, 7);
        let mut straight = router(config(policy, &[]), 5, 7);
        for _ in 0..20 {
            let lease = switched.assign(0, &REQUEST, &Matches::default()).expect("a worker is there");
            let others: Vec<_> = (0..5).map(WorkerId).filter(|id| *id != lease.worker).collect();
            let forced = RouteRequest { exclude: &others, ..REQUEST };
            let same = straight.assign(0, &forced, &Matches::default()).expect("it is there");
            assert_eq!((same.worker, same.lease), (lease.worker, lease.lease));
        }
        switched.set_policies(0, Policies::all(config(policy, &[])));
        for n in 0..20 {
            let text = vec![n; 600];
            let keys =
                RoutingKeys { routing_key: Some(["k", "l", "m"][draws.below(3)]), ..RoutingKeys::default() };
            let request = RouteRequest { prompt: PromptView::Text(&text), keys, ..REQUEST };
            let rows = matches(&[(draws.below(5) as u32, 900)]);
            let both = [&mut switched, &mut straight].map(|router| router.assign(0, &request, &rows));
            assert_eq!(both[0], both[1], "{policy}");
        }
    }
}

/// Any of the things that can happen to a router.
fn step(router: &mut Router, draws: &mut Draws, now_ns: u64, leases: &mut Vec<LeaseId>) {
    let ids: Vec<_> = router.workers(0).map(|view| view.worker.id).collect();
    let any = ids.get(draws.below(ids.len())).copied().unwrap_or(WorkerId(1000));
    match draws.below(24) {
        0 => drop(router.set_policies(now_ns, Policies::all(any_config(draws)))),
        1 => _ = router.add_worker(now_ns, worker_spec(draws.below(50) as u32)),
        2 => _ = router.register_worker(now_ns, worker_spec(60)),
        3 => _ = router.set_draining(now_ns, any),
        4 if ids.len() > 2 => _ = router.remove_worker(now_ns, any),
        5..8 => _ = router.set_healthy(now_ns, any, draws.below(3) > 0),
        8 => router.cache_lost(now_ns, any),
        9 => router.report_loads(now_ns, now_ns, any, Some(REPORT)),
        10 => router.tick(now_ns),
        11..15 if !leases.is_empty() => {
            let lease = leases.swap_remove(draws.below(leases.len()));
            let outcome = [DONE, Outcome::Failed, Outcome::Refused, Outcome::ClientGone][draws.below(4)];
            assert!(router.finish(now_ns, lease, outcome).existed);
        }
        15 if !leases.is_empty() => _ = router.first_token(now_ns, leases[draws.below(leases.len())]),
        _ => {
            let rows = matches(&[(any.0, draws.below(1001) as u64)]);
            let keys =
                RoutingKeys { routing_key: Some(["k", "l", ""][draws.below(3)]), ..RoutingKeys::default() };
            let Ok(assignment) = router.assign(now_ns, &RouteRequest { keys, ..REQUEST }, &rows) else {
                return;
            };
            router.told_cached(now_ns, &assignment, 0);
            let reasons = router.config().policies.get(Role::Regular).row().reasons;
            assert!(reasons.contains(&assignment.reason.as_str()), "{} of {reasons:?}", assignment.reason);
            leases.push(assignment.lease);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_switched_the_books_agree_and_end_empty(seed: u64) {
        let mut draws = draws_of(seed);
        let breaker = (draws.below(2) == 0).then(|| crate::BreakerConfig { failure_threshold: 2, ..Default::default() });
        let warm_up = (draws.below(2) == 0).then_some(WarmUp { duration_ns: 5 * SECOND, share: 1.0 });
        let start = RouterConfig { breaker, warm_up, ..RouterConfig::new(any_config(&mut draws), seed) };
        let mut router = Router::new(start).expect("it can work");
        (0..3).for_each(|n| _ = router.add_worker(0, worker_spec(n)));
        let (mut now_ns, mut leases) = (0, Vec::new());
        for _ in 0..300 {
            now_ns += draws.below(SECOND as usize / 4) as u64;
            step(&mut router, &mut draws, now_ns, &mut leases);
            prop_assert_eq!(router.check(), Ok(()));
            prop_assert_eq!(router.signals(), router.config().policies.signals());
        }
        for lease in leases {
            prop_assert!(router.finish(now_ns, lease, DONE).existed);
        }
        let ids: Vec<_> = router.workers(0).map(|view| view.worker.id).collect();
        prop_assert!(router.in_flight() == 0 && ids.iter().all(|id| router.leases_of(*id) == 0));
        prop_assert_eq!(router.check(), Ok(()));
    }
}
