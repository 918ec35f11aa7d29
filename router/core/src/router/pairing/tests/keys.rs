//! Headers that say where a request wants to go.

use super::*;

fn keyed<'a>(target_worker: Option<&'a str>, routing_key: Option<&'a str>) -> PlanRequest<'a> {
    PlanRequest { keys: RoutingKeys { target_worker, routing_key, implicit: None }, ..ANY }
}

#[test]
fn a_target_forces_the_leg_whose_worker_it_is() {
    let mut router = pairs("consistent_hashing", 3, 3);
    for (target, prefill, decode) in [
        ("1", Some(1), None),
        ("4", None, Some(4)),
        ("http://10.0.0.2:30000/", Some(2), None),
        (" http://10.0.0.5:30000", None, Some(5)),
    ] {
        let mut others = BTreeSet::new();
        for n in 0..40 {
            let key = format!("k{n}");
            let plan = plan_as(&mut router, keyed(Some(target), Some(&key))).expect("all are there");
            let found = workers(plan);
            assert!(prefill.is_none_or(|id| found.0 == Some(id)), "{target}: {found:?}");
            assert!(decode.is_none_or(|id| found.1 == id), "{target}: {found:?}");
            let reasons = [plan.prefill.expect("a pair"), plan.decode].map(|leg| leg.reason.as_str());
            let forced = reasons.iter().position(|reason| *reason == "target_worker_hit");
            assert_eq!(forced, Some(usize::from(decode.is_some())), "{target}");
            others.insert(if prefill.is_some() { found.1 } else { found.0.expect("a pair") });
        }
        assert_eq!(others.len(), 3, "{target}: the other leg is anybody's");
        let scopes = router.scopes(None).expect("any model");
        let places = router.places(&PlanRequest { scopes, ..keyed(Some(target), Some("k")) });
        let hashed = (places.prefill.is_some(), places.decode.is_some());
        assert_eq!(hashed, (decode.is_some(), prefill.is_some()), "{target}: the key decides the other leg");
    }
    for nobody in ["6", "-1", "http://10.0.0.9:30000"] {
        let refused = plan_as(&mut router, keyed(Some(nobody), None));
        assert_eq!(refused, no(Leg::Prefill, Unroutable::TargetUnavailable), "{nobody}");
    }
    router.set_healthy(0, WorkerId(1), false);
    router.set_healthy(0, WorkerId(4), false);
    let unavailable = |leg| no(leg, Unroutable::TargetUnavailable);
    assert_eq!(plan_as(&mut router, keyed(Some("1"), None)), unavailable(Leg::Prefill));
    assert_eq!(plan_as(&mut router, keyed(Some("4"), None)), unavailable(Leg::Decode));
}

#[test]
fn a_target_of_the_other_kind_is_followed_to_it() {
    let start = || fleet(RouterConfig::new(config("consistent_hashing", &[]), 1), [2, 2, 2]);
    for (target, prefers_pair, expected) in [
        ("1", Some(true), (None, Some(1))),
        ("3", Some(false), (Some(3), None)),
        ("4", None, (None, Some(4))),
    ] {
        let request = PlanRequest { prefers_pair, ..keyed(Some(target), None) };
        let (prefill, decode) = workers(plan_as(&mut start(), request).expect("all are there"));
        assert!(expected.0.is_none_or(|id| prefill == Some(id)), "{target}");
        assert!(expected.1.is_none_or(|id| decode == id), "{target}");
        assert_eq!(prefill.is_some(), target != "1", "{target}");
    }
}

#[test]
fn a_target_at_its_limit_is_waited_for() {
    let policy = config("consistent_hashing", &[]);
    let start = RouterConfig { decode_dispatch_limit: Some(1), ..RouterConfig::new(policy, 1) };
    let mut router = fleet(start, [0, 2, 1]);
    let first = plan_as(&mut router, keyed(Some("0"), None)).expect("there is room");
    assert_eq!(plan_as(&mut router, keyed(Some("0"), None)), no(Leg::Prefill, Unroutable::DispatchLimit));
    let tried = PlanRequest { exclude: &[WorkerId(0)], ..keyed(Some("0"), None) };
    assert_eq!(plan_as(&mut router, tried), no(Leg::Prefill, Unroutable::TargetUnavailable));
    router.finish(0, first.decode.lease, DONE);
    assert_eq!(plan_as(&mut router, keyed(Some("0"), None)).map(workers), Ok((Some(0), 2)));
}

#[test]
fn a_routing_key_keeps_both_legs_where_they_are() {
    for policy in ["manual", "consistent_hashing"] {
        let mut router = pairs(policy, 4, 4);
        let home = |router: &mut Router, key: &str| {
            let plan = plan_as(router, keyed(None, Some(key))).expect("all are there");
            finish(router, plan);
            workers(plan)
        };
        let keys: Vec<_> = (0..40).map(|n| format!("k{n}")).collect();
        let first: Vec<_> = keys.iter().map(|key| home(&mut router, key)).collect();
        assert!(BTreeSet::from_iter(&first).len() > 8, "{policy}: the legs are not tied to each other");
        for _ in 0..3 {
            assert!(keys.iter().zip(&first).all(|(key, at)| home(&mut router, key) == *at), "{policy}");
        }
        if policy == "manual" {
            assert_eq!(router.remembered_keys(), Some(80), "each leg is a key of its own");
        }
    }
}
