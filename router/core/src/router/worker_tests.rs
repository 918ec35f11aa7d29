use crate::index::{IndexLimits, Matches, PrefixIndex};
use crate::request::{RouteRequest, RoutingKeys, Unroutable};
use crate::testing::{DONE, REQUEST, SECOND, config, in_flight, matches, router, with_key, worker_spec};
use crate::{POLICIES, PolicyConfig, Router, WarmUp, WorkerId};

fn go(router: &mut Router) -> Result<u32, Unroutable> {
    router.assign(0, &REQUEST, &Matches::default()).map(|assignment| assignment.worker.0)
}

#[test]
fn a_registered_worker_gets_nothing_until_it_has_answered() {
    for row in POLICIES {
        let mut router = router(PolicyConfig::of(row), 0, 1);
        let id = router.register_worker(0, worker_spec(0));
        let shown: Vec<_> = router.workers(0).map(|view| (view.worker.id, view.worker.healthy)).collect();
        assert_eq!(shown, [(id, false)]);
        assert_eq!(go(&mut router), Err(Unroutable::NoneHealthy { workers: 1 }), "{}", row.name);
        assert!(router.set_healthy(0, id, true));
        assert_eq!(go(&mut router), Ok(id.0), "{}", row.name);
    }
}

#[test]
fn a_draining_worker_gets_nothing_new_and_keeps_what_it_has() {
    for row in POLICIES {
        let mut router = router(PolicyConfig::of(row), 3, 1);
        (0..30).for_each(|_| _ = go(&mut router));
        let before = in_flight(&router);
        let id = (0..3).max_by_key(|worker| before[*worker]).expect("three workers");
        let drained = WorkerId(id as u32);
        assert!(router.set_draining(0, drained) && !router.set_draining(0, drained), "{}", row.name);
        assert!(router.workers(0).nth(id).is_some_and(|view| view.worker.draining && view.worker.healthy));
        assert_eq!(router.leases_of(drained) as u64, before[id]);
        for _ in 0..60 {
            let request = RouteRequest { ..REQUEST };
            let assignment =
                router.assign(0, &request, &matches(&[(drained.0, 1000)])).expect("two are left");
            assert_ne!(assignment.worker, drained, "{}", row.name);
        }
        assert_eq!(in_flight(&router)[id], before[id], "{}", row.name);
        assert!(router.set_healthy(0, drained, false) && router.set_healthy(0, drained, true));
        assert_ne!(go(&mut router), Ok(drained.0), "health is another matter");
        router.check().expect("the books agree");
    }
}

#[test]
fn leases_are_counted_until_they_end_also_of_a_worker_that_is_gone() {
    let mut router = router(config("round_robin", &[]), 1, 1);
    let leases = [(); 2].map(|()| router.assign(0, &REQUEST, &Matches::default()).expect("a worker").lease);
    let id = WorkerId(0);
    assert!(router.set_draining(0, id) && router.leases_of(id) == 2);
    router.finish(0, leases[0], DONE);
    assert_eq!(router.leases_of(id), 1);
    assert!(router.remove_worker(0, id));
    assert_eq!(router.leases_of(id), 1);
    router.finish(0, leases[1], DONE);
    assert_eq!((router.leases_of(id), router.leases_of(WorkerId(7))), (0, 0));
    assert!(!router.set_draining(0, id), "there is none");
}

#[test]
fn where_all_are_draining_there_is_nobody() {
    let mut router = router(config("random", &[]), 2, 1);
    assert!(router.set_draining(0, WorkerId(0)));
    router.set_healthy(0, WorkerId(1), false);
    assert_eq!(go(&mut router), Err(Unroutable::NoneHealthy { workers: 1 }));
    assert!(router.set_draining(0, WorkerId(1)));
    assert_eq!(go(&mut router), Err(Unroutable::NoWorkers));
}

#[test]
fn what_sticks_to_a_draining_worker_goes_elsewhere() {
    for policy in ["manual", "consistent_hashing"] {
        let mut router = router(config(policy, &[]), 3, 1);
        let (home, _) = with_key(&mut router, 0, "k");
        assert!(router.set_draining(0, WorkerId(home)));
        let (second, _) = with_key(&mut router, 0, "k");
        assert_ne!(second, home, "{policy}");
        assert_eq!(with_key(&mut router, 0, "k").0, second, "{policy}: and stays there");
    }
    let mut router = router(config("consistent_hashing", &[]), 3, 1);
    assert!(router.set_draining(0, WorkerId(1)));
    let keys = RoutingKeys { target_worker: Some("1"), ..RoutingKeys::default() };
    let refused = router.assign(0, &RouteRequest { keys, ..REQUEST }, &Matches::default());
    assert_eq!(refused.map(|_| ()), Err(Unroutable::TargetUnavailable));
}

#[test]
fn buckets_are_cut_anew_when_a_worker_is_draining() {
    let mut router = router(config("bucket", &[("balance_abs_threshold", i64::MAX.into())]), 4, 1);
    let text = vec![b'x'; 3000];
    let request = RouteRequest { prompt: crate::PromptView::Text(&text), ..REQUEST };
    assert_eq!(router.propose(0, &request, &Matches::default()).map(|it| it.worker), Ok(WorkerId(2)));
    assert!(router.set_draining(0, WorkerId(0)));
    let proposal = router.propose(0, &request, &Matches::default()).expect("three are left");
    assert_eq!((proposal.worker, proposal.reason.as_str()), (WorkerId(3), "bucket"), "the last of 4096 / 3");
}

#[test]
fn grounds_are_settled_unless_what_was_matched_was_credited_while_a_prompt_was_being_computed() {
    let mut router = router(config("cache_aware", &[]), 1, 1);
    let mut index = PrefixIndex::new(IndexLimits { max_tree_size: 1 << 20, max_tree_bytes: 1 << 20 });
    let mut book = |router: &mut Router, text: &'static str| {
        let prompt = crate::PromptView::Text(text.as_bytes());
        let matches = index.lookup(REQUEST.scope, prompt);
        let assignment = router.assign(0, &RouteRequest { prompt, ..REQUEST }, &matches).expect("a worker");
        index.credit(REQUEST.scope, prompt, assignment.worker);
        (assignment.lease, assignment.grounds)
    };
    let grounds = |looked, head_credited, settled| crate::Grounds { looked, head_credited, settled };
    let (one, first) = book(&mut router, "one");
    assert_eq!(first, grounds(0, 0, true), "nothing is believed");
    let (again, second) = book(&mut router, "one");
    assert_eq!(second, grounds(1, 1, false), "it is being computed");
    let (two, third) = book(&mut router, "two");
    assert_eq!(third, grounds(2, 0, true));
    router.first_token(0, one);
    assert_eq!(book(&mut router, "one").1, grounds(3, 2, false), "the second one is not");
    router.finish(0, again, DONE);
    assert_eq!(book(&mut router, "one").1, grounds(4, 4, false), "the last one");
    router.first_token(0, crate::LeaseId(4));
    router.first_token(0, crate::LeaseId(5));
    assert_eq!(
        book(&mut router, "one").1,
        grounds(5, 5, false),
        "another prompt was looked up before that credit"
    );
    router.finish(0, two, DONE);
    router.first_token(0, crate::LeaseId(6));
    assert_eq!(book(&mut router, "two").1, grounds(6, 3, true));
    assert_eq!(book(&mut router, "one").1, grounds(7, 6, true), "what is computed now was looked up later");
}

#[test]
fn a_share_that_is_none_is_refused() {
    for share in [-0.1, f64::NAN, f64::INFINITY] {
        let warm_up = Some(WarmUp { duration_ns: SECOND, share });
        let config = crate::RouterConfig { warm_up, ..crate::RouterConfig::new(config("random", &[]), 1) };
        assert_eq!(Router::new(config).map(|_| ()), Err(crate::PolicyError::NoShare));
    }
}
