//! The limit on decode streams per prefill worker.

use super::*;

fn limited(limit: u32, counts: [u32; 3]) -> Router {
    let policy = config("round_robin", &[]);
    fleet(RouterConfig { decode_dispatch_limit: Some(limit), ..RouterConfig::new(policy, 1) }, counts)
}

#[test]
fn a_prefill_worker_has_so_many_decode_streams_and_no_more() {
    let mut router = limited(2, [0, 2, 1]);
    let plans: Vec<_> = (0..4).map(|_| plan(&mut router).expect("there is room")).collect();
    assert_eq!(derived(&router), [2, 2, 0]);
    assert_eq!(plan(&mut router), no(Leg::Prefill, Unroutable::DispatchLimit));
    for plan in &plans {
        router.finish(0, plan.prefill.expect("a pair").lease, DONE);
    }
    assert_eq!(plan(&mut router), no(Leg::Prefill, Unroutable::DispatchLimit), "the decode streams go on");
    router.finish(0, plans[3].decode.lease, Outcome::ClientGone);
    let source = plans[3].prefill.expect("a pair").worker;
    assert_eq!(plan(&mut router).map(|plan| plan.prefill.map(|leg| leg.worker)), Ok(Some(source)));
    assert_eq!(plan(&mut router), no(Leg::Prefill, Unroutable::DispatchLimit));
}

#[test]
fn a_worker_at_its_limit_is_passed_over_and_waited_for() {
    let mut router = limited(1, [0, 2, 2]);
    let first = plan(&mut router).expect("there is room");
    let tried = [WorkerId(1)];
    let other_tried = PlanRequest { exclude: &tried, ..ANY };
    assert_eq!(plan_as(&mut router, other_tried), no(Leg::Prefill, Unroutable::DispatchLimit));
    let full_tried = PlanRequest { exclude: &[WorkerId(0)], ..ANY };
    assert_eq!(plan_as(&mut router, full_tried).map(workers), Ok((Some(1), 3)));
    let both_tried = PlanRequest { exclude: &[WorkerId(0), WorkerId(1)], ..ANY };
    assert_eq!(plan_as(&mut router, both_tried), no(Leg::Prefill, Unroutable::AllTried { tried: 2 }));
    router.set_healthy(0, WorkerId(2), false);
    router.set_healthy(0, WorkerId(3), false);
    let waiting_is_vain = no(Leg::Decode, Unroutable::NoneHealthy { workers: 2 });
    assert_eq!(plan(&mut router), waiting_is_vain);
    router.set_healthy(0, WorkerId(0), false);
    router.set_healthy(0, WorkerId(2), true);
    router.finish(0, first.decode.lease, DONE);
    assert_eq!(plan(&mut router), no(Leg::Prefill, Unroutable::DispatchLimit), "1 is full, 0 is down");
}

#[test]
fn streams_are_counted_also_of_a_prefill_worker_that_is_gone() {
    let mut router = limited(1, [0, 2, 1]);
    let [one, two] = [(); 2].map(|()| plan(&mut router).expect("there is room"));
    router.finish(0, one.prefill.expect("a pair").lease, DONE);
    assert!(router.remove_worker(0, WorkerId(0)) && router.remove_worker(0, WorkerId(1)));
    router.check().expect("the books agree");
    assert_eq!(router.leases_of(WorkerId(1)), 1);
    router.finish(0, two.decode.lease, DONE);
    router.finish(0, one.decode.lease, DONE);
    router.check().expect("the books agree");
    assert_eq!((router.leases_of(WorkerId(1)), router.in_flight()), (1, 1));
    assert!(router.finish(0, two.prefill.expect("a pair").lease, Outcome::Failed).existed);
    assert_eq!((router.leases_of(WorkerId(1)), router.in_flight()), (0, 0));
    router.check().expect("the books agree");
}

#[test]
fn the_limit_is_none_of_other_roles() {
    let mut router = limited(1, [1, 1, 1]);
    let regular = PlanRequest { prefers_pair: Some(false), ..ANY };
    for _ in 0..3 {
        assert_eq!(plan_as(&mut router, regular).map(workers), Ok((None, 0)));
    }
    assert_eq!(plan(&mut router).map(workers), Ok((Some(1), 2)));
    assert_eq!(plan(&mut router).map(workers), Ok((None, 0)), "the pair is at its limit");
    router.set_healthy(0, WorkerId(0), false);
    for prefers_pair in [Some(true), Some(false)] {
        let refused = plan_as(&mut router, PlanRequest { prefers_pair, ..ANY });
        assert_eq!(refused, no(Leg::Prefill, Unroutable::DispatchLimit), "waiting helps");
    }
}

#[test]
fn the_least_bad_worker_has_the_limit_too() {
    let breaker = BreakerConfig { failure_threshold: 1, try_least_bad: true, ..BreakerConfig::default() };
    let policy = config("round_robin", &[]);
    let start = RouterConfig {
        breaker: Some(breaker),
        decode_dispatch_limit: Some(1),
        ..RouterConfig::new(policy, 1)
    };
    let mut router = fleet(start, [0, 2, 1]);
    let lost = plan(&mut router).expect("there is room");
    router.finish(0, lost.prefill.expect("a pair").lease, Outcome::Failed);
    let other = plan(&mut router).expect("there is room");
    assert_eq!(plan(&mut router), no(Leg::Prefill, Unroutable::DispatchLimit), "1 admits, and is full");
    router.finish(0, lost.decode.lease, Outcome::ClientGone);
    assert_eq!(plan(&mut router), no(Leg::Prefill, Unroutable::DispatchLimit), "1 is better than 0");
    router.set_healthy(0, WorkerId(1), false);
    assert_eq!(plan(&mut router).map(workers), Ok((Some(0), 2)), "the least bad one");
    let refused = plan(&mut router).expect_err("it has one now");
    assert!(matches!(refused, NoPlan { leg: Leg::Prefill, why: Unroutable::BreakersOpen { .. } }));
    router.finish(0, other.decode.lease, DONE);
    router.set_healthy(0, WorkerId(1), true);
    assert_eq!(plan(&mut router).map(workers), Ok((Some(1), 2)));
}

#[test]
fn a_limit_of_none_at_all_is_refused() {
    let start =
        RouterConfig { decode_dispatch_limit: Some(0), ..RouterConfig::new(config("random", &[]), 1) };
    assert_eq!(Router::new(start).map(|_| ()), Err(crate::PolicyError::NoDispatch));
}
