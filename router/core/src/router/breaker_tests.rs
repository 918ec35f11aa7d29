use super::{Router, RouterConfig};
use crate::breaker::{BreakerChange, BreakerConfig, BreakerState};
use crate::draw::Draws;
use crate::index::Matches;
use crate::ledger::{Finished, LeaseId, Outcome};
use crate::policy::{POLICIES, PolicyConfig, PolicyRow};
use crate::request::{Assignment, RouteRequest, Unroutable};
use crate::testing::{DONE, REQUEST, SECOND, config, matches, worker_spec};
use crate::{PromptView, RoutingKeys, WorkerId};

fn router(policy: PolicyConfig, workers: u32, try_least_bad: bool) -> Router {
    let breaker = BreakerConfig {
        failure_threshold: 3,
        success_threshold: 2,
        open_ns: 10 * SECOND,
        half_open_permits: 1,
        try_least_bad,
    };
    let config = RouterConfig { breaker: Some(breaker), ..RouterConfig::new(policy, 1) };
    let mut router = Router::new(config).expect("default intervals");
    for n in 0..workers {
        router.add_worker(0, worker_spec(n));
    }
    router
}

fn random(workers: u32) -> Router {
    router(config("random", &[]), workers, false)
}

/// Books a request on this worker and no other.
fn book_on(router: &mut Router, now_ns: u64, worker: u32) -> Result<Assignment, Unroutable> {
    let all: Vec<WorkerId> = router.workers(now_ns).map(|view| view.worker.id).collect();
    let others: Vec<WorkerId> = all.into_iter().filter(|id| id.0 != worker).collect();
    router.assign(now_ns, &RouteRequest { exclude: &others, ..REQUEST }, &Matches::default())
}

/// Lets requests on this worker end like this, one after the other; what the last one changed.
fn end_on(router: &mut Router, now_ns: u64, worker: u32, outcomes: &[Outcome]) -> Option<BreakerChange> {
    let mut last = None;
    for outcome in outcomes {
        let lease = book_on(router, now_ns, worker).expect("it may be asked").lease;
        last = router.finish(now_ns, lease, *outcome).breaker;
    }
    last
}

fn open(router: &mut Router, now_ns: u64, worker: u32) {
    let change = end_on(router, now_ns, worker, &[Outcome::Failed; 3]);
    let (from, to) = (BreakerState::Closed, BreakerState::Open);
    assert_eq!(change, Some(BreakerChange { worker: WorkerId(worker), from, to }));
}

fn assign(router: &mut Router, now_ns: u64) -> Result<u32, Unroutable> {
    router.assign(now_ns, &REQUEST, &Matches::default()).map(|assignment| assignment.worker.0)
}

fn states(router: &Router, now_ns: u64) -> Vec<BreakerState> {
    router.workers(now_ns).map(|view| view.breaker.state).collect()
}

#[test]
fn without_a_configuration_nothing_opens() {
    let mut router = crate::testing::router(config("random", &[]), 1, 1);
    assert_eq!(end_on(&mut router, 0, 0, &[Outcome::Failed; 100]), None);
    assert_eq!(states(&router, 0), [BreakerState::Closed]);
}

#[test]
fn an_open_worker_gets_nothing_and_a_half_open_one_what_it_has_permits_for() {
    let mut router = random(2);
    open(&mut router, 0, 0);
    assert!((0..100).all(|_| assign(&mut router, 10 * SECOND - 1) == Ok(1)));
    for _ in 0..10 {
        assert!(router.propose(10 * SECOND, &REQUEST, &Matches::default()).is_ok(), "asking takes no permit");
    }
    let chosen: Vec<u32> = (0..100).flat_map(|_| assign(&mut router, 10 * SECOND)).collect();
    assert_eq!(chosen.iter().filter(|worker| **worker == 0).count(), 1);
    router.check().expect("the books agree");
}

#[test]
fn a_breaker_closes_after_successes_on_trial_and_says_so() {
    let mut router = random(1);
    open(&mut router, 0, 0);
    assert_eq!(end_on(&mut router, 10 * SECOND, 0, &[DONE]), None);
    assert_eq!(states(&router, 10 * SECOND), [BreakerState::HalfOpen]);
    let (from, to) = (BreakerState::HalfOpen, BreakerState::Closed);
    let change = BreakerChange { worker: WorkerId(0), from, to };
    assert_eq!(end_on(&mut router, 10 * SECOND, 0, &[DONE]), Some(change));
    assert_eq!(router.finish(0, LeaseId(1), DONE), Finished { existed: false, breaker: None });
}

#[test]
fn a_refusal_tells_open_breakers_from_workers_that_were_tried_and_from_unhealthy_ones() {
    let mut router = random(3);
    open(&mut router, 0, 0);
    open(&mut router, 4 * SECOND, 1);
    router.set_healthy(0, WorkerId(2), false);
    let shut = |retry_after_ns| Err(Unroutable::BreakersOpen { retry_after_ns });
    assert_eq!(assign(&mut router, 4 * SECOND), shut(6 * SECOND));
    let excluding = |router: &mut Router, exclude: &[WorkerId]| {
        let request = RouteRequest { exclude, ..REQUEST };
        router.assign(4 * SECOND, &request, &Matches::default()).map(|assignment| assignment.worker.0)
    };
    assert_eq!(excluding(&mut router, &[WorkerId(2)]), shut(6 * SECOND), "the unhealthy one was not tried");
    assert_eq!(excluding(&mut router, &[WorkerId(0)]), Err(Unroutable::AllTried { tried: 1 }));
    router.set_healthy(0, WorkerId(2), true);
    assert_eq!(excluding(&mut router, &[WorkerId(2)]), Err(Unroutable::AllTried { tried: 1 }));
    for id in 0..3 {
        router.set_healthy(0, WorkerId(id), false);
    }
    assert_eq!(assign(&mut router, 4 * SECOND), Err(Unroutable::NoneHealthy { workers: 3 }));
    router.set_healthy(0, WorkerId(0), true);
    assert_eq!(assign(&mut router, 10 * SECOND), Ok(0), "a probe");
    assert_eq!(assign(&mut router, 10 * SECOND), shut(0), "it may end at any time");
}

#[test]
fn a_worker_that_is_found_healthy_again_is_still_left_alone_by_its_breaker() {
    let mut router = random(1);
    open(&mut router, 0, 0);
    assert!(
        router.set_healthy(SECOND, WorkerId(0), false) && router.set_healthy(2 * SECOND, WorkerId(0), true)
    );
    assert_eq!(states(&router, 2 * SECOND), [BreakerState::Open]);
    assert_eq!(assign(&mut router, 2 * SECOND), Err(Unroutable::BreakersOpen { retry_after_ns: 8 * SECOND }));
}

#[test]
fn the_least_bad_worker_is_the_one_nearest_to_its_trial_and_then_the_least_loaded() {
    let mut router = router(config("random", &[]), 4, true);
    book_on(&mut router, 0, 1).expect("it may be asked");
    for (worker, now_ns) in [(0, 2), (1, 1), (2, 1), (3, 3)] {
        open(&mut router, now_ns * SECOND, worker);
    }
    let chosen = [(); 3].map(|()| assign(&mut router, 5 * SECOND).expect("somebody is tried"));
    assert!(
        chosen[0] == 2 && chosen.contains(&1) && !chosen.contains(&0) && !chosen.contains(&3),
        "{chosen:?}"
    );
    let all_but_3 = [WorkerId(0), WorkerId(1), WorkerId(2)];
    let last = RouteRequest { exclude: &all_but_3, ..REQUEST };
    let assignment = router.assign(5 * SECOND, &last, &Matches::default());
    assert_eq!(assignment.map(|assignment| assignment.worker.0), Ok(3), "all breakers refuse");
    router.add_worker(0, worker_spec(4));
    let nearest = RouteRequest { exclude: &[WorkerId(4)], ..REQUEST };
    let refusal =
        router.assign(5 * SECOND, &nearest, &Matches::default()).map(|assignment| assignment.worker);
    assert_eq!(refusal, Err(Unroutable::AllTried { tried: 1 }), "one that was tried is better than these");
    assert!(
        (0..20).all(|_| assign(&mut router, 5 * SECOND) == Ok(4)),
        "a good one is better than the least bad"
    );
}

#[test]
fn on_trial_the_only_worker_is_tried_beyond_its_permits_and_only_a_permit_counts() {
    let mut router = router(config("random", &[]), 1, true);
    open(&mut router, 0, 0);
    let leases = [(); 3].map(|()| book_on(&mut router, 10 * SECOND, 0).expect("there is no other").lease);
    for lease in &leases[1..] {
        assert_eq!(
            router.finish(10 * SECOND, *lease, Outcome::Failed).breaker,
            None,
            "booked without a permit"
        );
    }
    assert!(router.finish(10 * SECOND, leases[0], Outcome::Failed).breaker.is_some());
    router.check().expect("the books agree");
}

#[test]
fn a_failing_worker_that_holds_the_prefix_costs_few_requests_a_second_try() {
    let mut router = router(config("cache_aware", &[]), 3, false);
    let mut failures = 0;
    for n in 0..100 {
        let now_ns = n * SECOND / 2;
        let mut exclude = Vec::new();
        loop {
            let request = RouteRequest { exclude: &exclude, ..REQUEST };
            let assignment = router.assign(now_ns, &request, &matches(&[(1, 900)])).expect("others work");
            let broken = assignment.worker == WorkerId(1);
            router.finish(now_ns, assignment.lease, if broken { Outcome::Failed } else { DONE });
            if !broken {
                break;
            }
            failures += 1;
            exclude.push(assignment.worker);
        }
    }
    assert_eq!(failures, 3 + 4, "those that open it, and one each time that its 10 s of 50 are over");
}

/// Random traffic with faults, over workers that fail, refuse and recover; then nothing fails any more.
struct Chaos {
    row: &'static PolicyRow,
    router: Router,
    draws: Draws,
    now_ns: u64,
    leases: Vec<(LeaseId, WorkerId)>,
    /// In percent, per worker: how often it fails.
    faults: Vec<usize>,
    open_ns: u64,
    try_least_bad: bool,
}

impl Chaos {
    fn new(row: &'static PolicyRow, seed: u64) -> Self {
        let mut draws = Draws::new(seed, 0);
        let mut up_to = |most: usize| 1 + draws.below(most) as u32;
        let breaker = BreakerConfig {
            failure_threshold: up_to(5),
            success_threshold: up_to(4),
            open_ns: u64::from(up_to(20)) * SECOND,
            half_open_permits: up_to(3),
            try_least_bad: up_to(3) == 1,
        };
        let workers = up_to(5);
        let config =
            RouterConfig { breaker: Some(breaker), ..RouterConfig::new(PolicyConfig::of(row), seed) };
        let mut router = Router::new(config).expect("default intervals");
        for n in 0..workers {
            router.add_worker(0, worker_spec(n));
        }
        let faults = (0..workers).map(|_| [0, 5, 50, 100][draws.below(4)]).collect();
        let BreakerConfig { open_ns, try_least_bad, .. } = breaker;
        Self { row, router, draws, now_ns: 0, leases: Vec::new(), faults, open_ns, try_least_bad }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.draws.below(bound)
    }

    fn step(&mut self) {
        self.now_ns += self.below(SECOND as usize) as u64;
        match self.below(40) {
            0 => {
                let (worker, healthy) = (self.below(self.faults.len()), self.below(2) == 0);
                self.router.set_healthy(self.now_ns, WorkerId(worker as u32), healthy);
            }
            1 => {
                let worker = self.below(self.faults.len());
                self.faults[worker] = [0, 5, 50, 100][self.below(4)];
            }
            2..20 if !self.leases.is_empty() => self.end(),
            _ => self.assign(),
        }
        self.router.check().expect("the books agree");
    }

    fn assign(&mut self) {
        let key = ["a", "b", "c"][self.below(3)];
        let text = vec![b'a' + self.below(20) as u8; 100];
        let tried = WorkerId(self.below(self.faults.len()) as u32);
        let exclude = [tried];
        let request = RouteRequest {
            keys: RoutingKeys { routing_key: Some(key), ..RoutingKeys::default() },
            prompt: PromptView::Text(&text),
            exclude: if self.draws.below(4) == 0 { &exclude } else { &[] },
            ..REQUEST
        };
        let before = states(&self.router, self.now_ns);
        let Ok(assignment) = self.router.assign(self.now_ns, &request, &Matches::default()) else { return };
        let chosen = before[assignment.worker.0 as usize];
        let spared = chosen != BreakerState::Open || self.try_least_bad;
        assert!(spared, "{}: {:?} is open", self.row.name, assignment.worker);
        self.leases.push((assignment.lease, assignment.worker));
    }

    fn end(&mut self) {
        let at = self.below(self.leases.len());
        let (lease, worker) = self.leases.swap_remove(at);
        let fails = self.below(100) < self.faults[worker.0 as usize];
        let outcome = match self.below(10) {
            0 => Outcome::ClientGone,
            1 => Outcome::Refused,
            _ if fails => Outcome::Failed,
            _ => DONE,
        };
        assert!(self.router.finish(self.now_ns, lease, outcome).existed);
    }

    /// After the last fault: what is under way ends, and each worker gets requests as far as its breaker lets it.
    fn recover(&mut self) {
        self.faults.fill(0);
        while !self.leases.is_empty() {
            self.end();
        }
        assert_eq!(self.router.in_flight(), 0);
        self.now_ns += self.open_ns;
        for worker in 0..self.faults.len() as u32 {
            self.router.set_healthy(self.now_ns, WorkerId(worker), true);
            end_on(&mut self.router, self.now_ns, worker, &[DONE; 4]);
        }
        assert!(states(&self.router, self.now_ns).iter().all(|state| *state == BreakerState::Closed));
        assert_eq!(self.router.in_flight(), 0);
        self.router.check().expect("the books agree");
    }
}

#[test]
fn after_the_last_fault_every_lease_ends_and_every_breaker_closes() {
    let mut openings = 0;
    for row in POLICIES {
        for seed in 0..40 {
            let mut chaos = Chaos::new(row, seed);
            (0..300).for_each(|_| chaos.step());
            let opened = |chaos: &Chaos| -> u64 {
                let views = chaos.router.workers(chaos.now_ns);
                views.map(|view| view.breaker.transitions.closed_to_open).sum()
            };
            openings += opened(&chaos);
            chaos.recover();
        }
    }
    assert!(openings > 100, "only {openings} breakers opened: this tests nothing");
}
