use super::{PolicyError, Router, RouterConfig};
use crate::fleet::{Role, WorkerSpec};
use crate::index::Matches;
use crate::ledger::Load;
use crate::request::{RouteRequest, Unroutable};
use crate::testing::{DONE, REQUEST, config, in_flight, router, worker_spec};
use crate::{POLICIES, PolicyConfig, PromptView, ScopeId, WorkerId};

fn book(router: &mut Router) -> u32 {
    router.assign(0, &REQUEST, &Matches::default()).expect("a worker is there").worker.0
}

#[test]
fn a_refusal_says_why() {
    let mut empty = router(config("random", &[]), 0, 1);
    assert_eq!(empty.assign(0, &REQUEST, &Matches::default()), Err(Unroutable::NoWorkers));
    let mut router = router(config("random", &[]), 2, 1);
    let none = RouteRequest { scope: ScopeId(99), ..REQUEST };
    assert_eq!(router.assign(0, &none, &Matches::default()), Err(Unroutable::NoWorkers));
    let tried = RouteRequest { exclude: &[WorkerId(0), WorkerId(1)], ..REQUEST };
    assert_eq!(router.assign(0, &tried, &Matches::default()), Err(Unroutable::AllTried { tried: 2 }));
    router.set_healthy(0, WorkerId(0), false);
    assert_eq!(router.assign(0, &tried, &Matches::default()), Err(Unroutable::AllTried { tried: 1 }));
    router.set_healthy(0, WorkerId(1), false);
    assert_eq!(router.assign(0, &tried, &Matches::default()), Err(Unroutable::NoneHealthy { workers: 2 }));
    assert_eq!(router.bookings(), 0);
}

#[test]
fn set_healthy_and_remove_say_whether_that_is_news() {
    let mut router = router(config("random", &[]), 1, 1);
    assert!(!router.set_healthy(0, WorkerId(0), true), "it was added healthy");
    assert!(router.set_healthy(0, WorkerId(0), false) && router.set_healthy(0, WorkerId(0), true));
    assert!(router.remove_worker(0, WorkerId(0)) && !router.remove_worker(0, WorkerId(0)));
    assert!(!router.set_healthy(0, WorkerId(0), false));
}

#[test]
fn round_robin_takes_turns_over_a_changing_fleet() {
    let mut router = router(config("round_robin", &[]), 3, 1);
    assert_eq!([(); 4].map(|()| book(&mut router)), [0, 1, 2, 0]);
    router.set_healthy(0, WorkerId(1), false);
    assert_eq!(
        [(); 3].map(|()| book(&mut router)),
        [2, 0, 2],
        "worker 1 is passed over, the others keep their turn"
    );
    router.set_healthy(0, WorkerId(1), true);
    router.add_worker(0, worker_spec(3));
    assert_eq!([(); 4].map(|()| book(&mut router)), [3, 0, 1, 2]);
    router.remove_worker(0, WorkerId(3));
    assert_eq!(book(&mut router), 0);
}

#[test]
fn round_robin_has_a_turn_of_its_own_in_each_scope() {
    let mut router = router(config("round_robin", &[]), 2, 1);
    for n in 2..4 {
        router.add_worker(0, WorkerSpec { role: Role::Prefill, ..worker_spec(n) });
    }
    let prefill = router.scopes(None).expect("any model").prefill;
    let prefill = RouteRequest { scope: prefill.expect("two are there"), ..REQUEST };
    let mut order = Vec::new();
    for _ in 0..3 {
        order.push(book(&mut router));
        order.push(router.assign(0, &prefill, &Matches::default()).expect("a worker is there").worker.0);
    }
    assert_eq!(order, [0, 2, 1, 3, 0, 2]);
}

#[test]
fn what_happens_between_two_bookings_does_not_change_what_is_drawn() {
    let draws = |disturb: bool| -> Vec<u32> {
        let mut router = router(config("random", &[]), 5, 7);
        let mut chosen = Vec::new();
        for n in 0..100 {
            let assignment = router.assign(n, &REQUEST, &Matches::default()).expect("a worker is there");
            chosen.push(assignment.worker.0);
            if disturb {
                router.first_token(n, assignment.lease);
                router.finish(n, assignment.lease, DONE);
                let _ = router.propose(n, &REQUEST, &Matches::default());
                router.tick(n);
            }
        }
        chosen
    };
    assert_eq!(draws(false), draws(true));
}

#[test]
fn another_seed_draws_otherwise_and_random_is_even() {
    let draws = |seed| -> Vec<u32> {
        let mut router = router(config("random", &[]), 4, seed);
        (0..2000).map(|_| book(&mut router)).collect()
    };
    assert_eq!(draws(1), draws(1));
    let differing = draws(1).iter().zip(draws(2)).filter(|(a, b)| **a != *b).count();
    assert!((1350..1650).contains(&differing), "{differing} of 2000 differ, 1500 expected");
    for worker in 0..4 {
        let count = draws(3).iter().filter(|chosen| **chosen == worker).count();
        assert!((420..580).contains(&count), "worker {worker}: {count} of 2000");
    }
}

#[test]
fn legs_of_a_removed_worker_stay_booked_until_they_end() {
    let mut router = router(config("round_robin", &[]), 2, 1);
    let assignment = router.assign(0, &REQUEST, &Matches::default()).expect("a worker is there");
    router.remove_worker(1, assignment.worker);
    assert_eq!((router.in_flight(), in_flight(&router)), (1, vec![0]));
    assert!(router.finish(2, assignment.lease, DONE).existed);
    assert_eq!(router.in_flight(), 0);
    router.check().expect("the books agree");
}

#[test]
fn workers_are_shown_with_what_is_in_flight_on_them() {
    let mut router = router(config("round_robin", &[]), 3, 1);
    router.remove_worker(0, WorkerId(0));
    book(&mut router);
    let shown: Vec<_> =
        router.workers(0).map(|view| (view.worker.id.0, view.load, view.tally.assigned)).collect();
    let load = Load { requests: 1, queued_prefill_tokens: 250, tokens: 250 };
    assert_eq!(shown, [(1, load, 1), (2, Load::default(), 0)]);
}

#[test]
fn of_a_long_prompt_only_the_beginning_is_known_to_match() {
    let text = vec![b'x'; 1 << 20];
    let mut router = router(config("cache_aware", &[]), 1, 1);
    let request = RouteRequest { prompt: PromptView::Text(&text), prompt_tokens: 1 << 18, ..REQUEST };
    let matches = Matches::new([(WorkerId(0), 1 << 18)], 1 << 18);
    let assignment = router.assign(0, &request, &matches).expect("a worker is there");
    assert_eq!(
        assignment.predicted_cached_tokens,
        Some(1 << 16),
        "a quarter was looked at, and all of that matched"
    );
}

#[test]
fn only_policies_that_use_the_index_predict() {
    for row in POLICIES {
        let mut router = router(PolicyConfig::of(row), 2, 1);
        let assignment = router.assign(0, &REQUEST, &Matches::new([(WorkerId(0), 900)], 1000));
        let predicted = assignment.expect("a worker is there").predicted_cached_tokens;
        assert_eq!(predicted.is_some(), router.signals().prefix_index.is_some(), "{}", row.name);
    }
}

#[test]
fn a_poll_interval_of_zero_is_refused() {
    let never =
        RouterConfig { load_poll_interval_ns: 0, ..RouterConfig::new(config("power_of_two", &[]), 1) };
    assert_eq!(Router::new(never).map(|_| ()), Err(PolicyError::NoPollInterval));
}
