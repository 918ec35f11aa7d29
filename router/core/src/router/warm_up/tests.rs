use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::WarmUp;
use crate::draw::Draws;
use crate::fleet::Role;
use crate::index::Matches;
use crate::request::RouteRequest;
use crate::router::eligible::Survey;
use crate::testing::{DONE, REQUEST, SECOND, config, load, worker_spec};
use crate::{LeaseId, Router, RouterConfig, WorkerId, WorkerSpec};

mod join;

const WARM_UP: WarmUp = WarmUp { duration_ns: 60 * SECOND, share: 1.0 };

fn warming_router(warm_up: Option<WarmUp>, workers: u32) -> Router {
    let config = RouterConfig { warm_up, ..RouterConfig::new(config("cache_aware", &[]), 1) };
    let mut router = Router::new(config).expect("it can work");
    (0..workers).for_each(|n| _ = router.add_worker(0, worker_spec(n)));
    router
}

fn warming(router: &Router, now_ns: u64) -> Vec<u32> {
    router.workers(now_ns).filter(|view| view.warming).map(|view| view.worker.id.0).collect()
}

/// Books and ends a request that worker 0 knows.
fn known_to_0(router: &mut Router, now_ns: u64, exclude: &[WorkerId]) -> (u32, &'static str) {
    let request = RouteRequest { exclude, ..REQUEST };
    let matches = Matches::new([(WorkerId(0), 900)], 1000);
    let proposal = router.propose(now_ns, &request, &matches).expect("a worker is there");
    let assignment = router.assign(now_ns, &request, &matches).expect("a worker is there");
    assert_eq!((proposal.worker, proposal.reason), (assignment.worker, assignment.reason));
    router.finish(now_ns, assignment.lease, DONE);
    (assignment.worker.0, assignment.reason.as_str())
}

#[test]
fn a_newcomer_to_a_fleet_that_has_worked_warms_up_and_no_other() {
    let mut router = warming_router(Some(WARM_UP), 2);
    assert_eq!(warming(&router, 0), [] as [u32; 0], "nobody has worked");
    router.add_worker(0, WorkerSpec { role: Role::Prefill, ..worker_spec(2) });
    known_to_0(&mut router, 0, &[]);
    router.add_worker(SECOND, worker_spec(3));
    router.add_worker(SECOND, WorkerSpec { role: Role::Prefill, ..worker_spec(4) });
    let registered = router.register_worker(SECOND, worker_spec(5));
    assert_eq!(warming(&router, SECOND), [3], "no prefill worker has worked, and worker 5 has not answered");
    router.set_healthy(2 * SECOND, registered, true);
    assert_eq!(warming(&router, 2 * SECOND), [3, 5]);
    assert_eq!(warming(&router, 61 * SECOND), [5], "60 s are over");
    router.set_draining(3 * SECOND, registered);
    assert_eq!(warming(&router, 3 * SECOND), [3]);
}

#[test]
fn a_worker_that_comes_back_or_lost_its_cache_warms_up_if_it_may_have_requests() {
    let mut router = warming_router(Some(WARM_UP), 3);
    known_to_0(&mut router, 0, &[]);
    router.set_healthy(0, WorkerId(1), false);
    router.cache_lost(0, WorkerId(1));
    assert_eq!(warming(&router, 0), [] as [u32; 0], "it is down");
    router.set_healthy(0, WorkerId(1), true);
    router.cache_lost(0, WorkerId(2));
    router.cache_lost(0, WorkerId(0));
    router.cache_lost(0, WorkerId(9));
    assert_eq!(warming(&router, 0), [1, 2], "no other than worker 0 has worked");
    router.set_healthy(0, WorkerId(1), false);
    assert_eq!(warming(&router, 0), [2]);
}

#[test]
fn without_a_warm_up_or_without_prefixes_nobody_warms_up() {
    let without = warming_router(None, 2);
    let config = RouterConfig { warm_up: Some(WARM_UP), ..RouterConfig::new(config("random", &[]), 1) };
    let mut random = Router::new(config).expect("it can work");
    random.add_worker(0, worker_spec(0));
    for mut router in [without, random] {
        known_to_0(&mut router, 0, &[]);
        let id = router.add_worker(0, worker_spec(7));
        assert_eq!(warming(&router, 0), [] as [u32; 0]);
        router.cache_lost(0, id);
        assert_eq!(warming(&router, 0), [] as [u32; 0]);
        assert!((0..50).all(|_| known_to_0(&mut router, 0, &[]).1 != "warm_up"));
    }
}

#[test]
fn one_request_in_as_many_as_there_are_workers_is_diverted() {
    for (share, expected) in [(1.0, 20), (0.5, 11), (0.0, 0)] {
        let mut router = warming_router(Some(WarmUp { share, ..WARM_UP }), 4);
        known_to_0(&mut router, 0, &[]);
        router.add_worker(0, worker_spec(4));
        let diverted = (0..100).filter(|_| known_to_0(&mut router, 0, &[]) == (4, "warm_up")).count();
        assert_eq!(diverted, expected, "share {share}");
        assert_eq!(router.workers(0).nth(4).map(|view| view.diverted), Some(expected as u64));
        let late = (0..100).filter(|_| known_to_0(&mut router, 60 * SECOND, &[]).1 == "warm_up").count();
        assert_eq!(late, 0, "its time is over");
        assert_eq!(router.workers(0).nth(4).map(|view| view.diverted), Some(expected as u64), "and kept");
    }
}

#[test]
fn what_the_policy_sends_it_counts_towards_its_share() {
    let mut router = warming_router(Some(WARM_UP), 2);
    known_to_0(&mut router, 0, &[]);
    router.add_worker(0, worker_spec(2));
    let to_2 = Matches::new([(WorkerId(2), 900)], 1000);
    for _ in 0..10 {
        let assignment = router.assign(0, &REQUEST, &to_2).expect("a worker is there");
        assert_eq!(assignment.reason.as_str(), "cache_hit", "it is not taken from it");
        router.finish(0, assignment.lease, DONE);
    }
    assert!((0..20).all(|_| known_to_0(&mut router, 0, &[]).0 == 0), "the mean is 10 requests as well");
    assert!((0..2).any(|_| known_to_0(&mut router, 0, &[]).0 == 2), "now it is not");
}

#[test]
fn it_is_spared_above_the_mean_load_and_where_it_was_tried() {
    let mut router = warming_router(Some(WARM_UP), 2);
    known_to_0(&mut router, 0, &[]);
    router.add_worker(0, worker_spec(2));
    load(&mut router, 0, 3);
    load(&mut router, 2, 2);
    (0..20).for_each(|_| {
        assert_eq!(known_to_0(&mut router, 0, &[]).0, 0, "2 are more than the mean of 3 and 0")
    });
    load(&mut router, 1, 1);
    assert_eq!(known_to_0(&mut router, 0, &[WorkerId(2)]).0, 0, "it was tried");
    assert_eq!(known_to_0(&mut router, 0, &[]), (2, "warm_up"), "2 are the mean of 3 and 1");
}

#[test]
fn where_all_are_cold_nothing_is_diverted() {
    let mut router = warming_router(Some(WARM_UP), 3);
    (0..3).for_each(|worker| load(&mut router, worker, 1));
    (0..3).for_each(|worker| router.cache_lost(0, WorkerId(worker)));
    assert_eq!(warming(&router, 0), [0, 1, 2]);
    assert!((0..50).all(|_| known_to_0(&mut router, 0, &[]) == (0, "cache_hit")));
}

/// A router, and its warm-up worked out anew for each request from everything that has happened.
struct Naive {
    router: Router,
    draws: Draws,
    now_ns: u64,
    leases: Vec<LeaseId>,
    /// When each cold worker began, and how many requests were booked by then.
    began: BTreeMap<WorkerId, (u64, usize)>,
    booked: Vec<Booked>,
    diverted: BTreeMap<WorkerId, u64>,
}

struct Booked {
    worker: WorkerId,
    tokens: u64,
    candidates: BTreeSet<WorkerId>,
    established: BTreeSet<WorkerId>,
}

impl Naive {
    fn new(seed: u64) -> Self {
        let router = warming_router(Some(WarmUp { duration_ns: 5 * SECOND, share: 0.8 }), 3);
        let (draws, leases) = (Draws::new(seed, 0), Vec::new());
        Self {
            router,
            draws,
            now_ns: 0,
            leases,
            began: BTreeMap::new(),
            booked: Vec::new(),
            diverted: BTreeMap::new(),
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.draws.below(bound)
    }

    fn step(&mut self) {
        self.now_ns += self.below(SECOND as usize / 5) as u64;
        let (now_ns, count) = (self.now_ns, self.router.workers(0).count());
        let at = self.below(count.max(1));
        let any = self.router.workers(0).nth(at).map_or(WorkerId(99), |view| view.worker.id);
        match self.below(40) {
            0 if count < 7 => {
                let id = self.router.add_worker(now_ns, worker_spec(50));
                self.cold(id);
            }
            1 if count > 3 => {
                self.router.remove_worker(now_ns, any);
                self.began.remove(&any);
                self.diverted.remove(&any);
            }
            2 | 3 => {
                self.router.set_healthy(now_ns, any, false);
                self.began.remove(&any);
            }
            4..=6 => {
                if self.router.set_healthy(now_ns, any, true) {
                    self.cold(any);
                }
            }
            7 => {
                self.router.cache_lost(now_ns, any);
                self.cold(any);
            }
            8 if count > 5 => {
                self.router.set_draining(now_ns, any);
                self.began.remove(&any);
            }
            9..=18 if !self.leases.is_empty() => {
                let at = self.below(self.leases.len());
                let lease = self.leases.swap_remove(at);
                self.router.finish(now_ns, lease, DONE);
            }
            _ => self.request(),
        }
    }

    fn cold(&mut self, id: WorkerId) {
        let views: Vec<_> = self.router.workers(0).collect();
        let takes = views.iter().any(|view| view.worker.id == id && view.worker.takes_requests());
        let others = views.iter().any(|view| view.worker.id != id && view.tally.assigned > 0);
        if takes && others {
            self.began.insert(id, (self.now_ns, self.booked.len()));
        } else {
            self.began.remove(&id);
        }
    }

    fn request(&mut self) {
        let exclude: Vec<_> = (0..self.below(3)).map(|_| WorkerId(self.below(9) as u32)).collect();
        let rows: BTreeMap<_, _> =
            (0..self.below(3)).map(|_| (WorkerId(self.below(9) as u32), self.below(1001) as u64)).collect();
        let (matches, prompt_tokens) = (Matches::new(rows, 1000), self.below(2000) as u64);
        let request = RouteRequest { exclude: &exclude, prompt_tokens, ..REQUEST };
        let expected = self.expected(&request, &matches);
        let assignment = self.router.assign(self.now_ns, &request, &matches).ok();
        let Some((worker, candidates, established, is_diverted)) = expected else {
            assert_eq!(assignment, None);
            return;
        };
        let assignment = assignment.expect("there is a candidate");
        assert_eq!((assignment.worker, assignment.reason.as_str() == "warm_up"), (worker, is_diverted));
        *self.diverted.entry(worker).or_default() += u64::from(is_diverted);
        self.booked.push(Booked { worker, tokens: prompt_tokens, candidates, established });
        self.leases.push(assignment.lease);
        for view in self.router.workers(self.now_ns) {
            let id = view.worker.id;
            assert_eq!(view.warming, self.is_warming(id), "{id:?}");
            assert_eq!(view.diverted, self.diverted.get(&id).copied().unwrap_or(0), "{id:?}");
        }
    }

    fn is_warming(&self, id: WorkerId) -> bool {
        self.began.get(&id).is_some_and(|(began_ns, _)| self.now_ns < began_ns + 5 * SECOND)
    }

    /// Who should get the request, all candidates, those that are established, and whether it is diverted.
    fn expected(
        &self,
        request: &RouteRequest<'_>,
        matches: &Matches,
    ) -> Option<(WorkerId, BTreeSet<WorkerId>, BTreeSet<WorkerId>, bool)> {
        let (state, role) = (&self.router.state, Role::Regular);
        let survey = Survey { state, now_ns: self.now_ns, request, matches, role, ahead: 0 };
        let decision = survey.decision().ok()?;
        let chosen =
            self.router.seats.regular.policy.choose(&decision).expect("it refuses nothing").candidate.worker;
        let load: BTreeMap<_, _> =
            decision.candidates.iter().map(|row| (row.worker, row.load().requests)).collect();
        let candidates: BTreeSet<_> = load.keys().copied().collect();
        let established: BTreeSet<_> =
            candidates.iter().copied().filter(|id| !self.is_warming(*id)).collect();
        let mean = established.iter().map(|id| load[id] as f64).sum::<f64>() / established.len() as f64;
        let mut furthest: Option<(f64, WorkerId)> = None;
        for &id in candidates.difference(&established) {
            let (own, others) = self.tokens_since(id);
            let lag = 0.8 * others - own;
            if lag > 0.0 && load[&id] as f64 <= mean && furthest.is_none_or(|(most, _)| lag > most) {
                furthest = Some((lag, id));
            }
        }
        let diverted = furthest.filter(|_| established.contains(&chosen)).map(|(_, id)| id);
        Some((diverted.unwrap_or(chosen), candidates, established, diverted.is_some()))
    }

    /// What the worker was assigned since it began, and the mean of the established.
    fn tokens_since(&self, id: WorkerId) -> (f64, f64) {
        let since = &self.booked[self.began[&id].1..];
        let own = since.iter().filter(|booked| booked.worker == id).map(|booked| booked.tokens as f64).sum();
        let others = since
            .iter()
            .filter(|booked| booked.candidates.contains(&id) && booked.established.contains(&booked.worker));
        (own, others.map(|booked| booked.tokens as f64 / booked.established.len() as f64).sum())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_what_is_worked_out_anew(seed: u64) {
        let mut naive = Naive::new(seed);
        (0..400).for_each(|_| naive.step());
        naive.router.check().expect("the books agree");
    }
}
