//! Random fleets and plans against a naive account of what is in flight.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::draw::Draws;
use crate::ledger::LeaseId;
use crate::testing::matches;
use crate::{PairPreference, WarmUp};

/// A leg in flight: its worker, and whom it goes on from.
type Open = BTreeMap<LeaseId, (WorkerId, Option<WorkerId>)>;

struct World {
    router: Router,
    draws: Draws,
    now_ns: u64,
    open: Open,
    limit: Option<u32>,
    breakers: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut draws = Draws::new(seed, 0);
        let mut policies = Policies::all(config("random", &[]));
        for role in Role::ALL {
            let row = &POLICIES[draws.below(POLICIES.len())];
            policies = policies.clone().with(role, PolicyConfig::of(row)).unwrap_or(policies);
        }
        let limit = (draws.below(3) > 0).then(|| 1 + draws.below(3) as u32);
        let breakers = draws.below(2) == 0;
        let breaker = breakers.then(|| BreakerConfig {
            failure_threshold: 2,
            open_ns: SECOND,
            half_open_permits: 1,
            try_least_bad: draws.below(2) == 0,
            ..BreakerConfig::default()
        });
        let start = RouterConfig {
            policies,
            breaker,
            warm_up: (draws.below(2) == 0).then_some(WarmUp { duration_ns: 5 * SECOND, share: 1.0 }),
            decode_dispatch_limit: limit,
            pair: PairPreference {
                prefer: draws.below(3) > 0,
                least_uncached_tokens: [0, 0, 100][draws.below(3)],
            },
            ..RouterConfig::new(config("random", &[]), seed)
        };
        let counts = [draws.below(3), 1 + draws.below(3), 1 + draws.below(3)].map(|count| count as u32);
        Self { router: fleet(start, counts), draws, now_ns: 0, open: Open::new(), limit, breakers }
    }

    fn any_worker(&mut self) -> WorkerId {
        let ids: Vec<_> = self.router.workers(0).map(|view| view.worker.id).collect();
        ids.get(self.draws.below(ids.len())).copied().unwrap_or(WorkerId(1000))
    }

    fn step(&mut self) {
        self.now_ns += self.draws.below(SECOND as usize / 4) as u64;
        let (any, now_ns, role) = (self.any_worker(), self.now_ns, Role::ALL[self.draws.below(3)]);
        match self.draws.below(24) {
            0 => {
                _ = self
                    .router
                    .add_worker(now_ns, WorkerSpec { role, ..worker_spec(self.draws.below(99) as u32) })
            }
            1 if self.router.workers(0).count() > 4 => _ = self.router.remove_worker(now_ns, any),
            2 => _ = self.router.set_role(now_ns, any, role),
            3 if self.draws.below(3) == 0 => _ = self.router.set_draining(now_ns, any),
            4..7 => _ = self.router.set_healthy(now_ns, any, self.draws.below(4) > 0),
            7..15 => self.finish(),
            15 => self.router.tick(now_ns),
            _ => self.plan(),
        }
        self.compare();
    }

    fn finish(&mut self) {
        let Some(lease) = self.open.keys().nth(self.draws.below(self.open.len().max(1))).copied() else {
            return;
        };
        let outcome = [DONE, Outcome::Failed, Outcome::Refused, Outcome::ClientGone][self.draws.below(4)];
        assert!(self.router.finish(self.now_ns, lease, outcome).existed);
        assert!(!self.router.finish(self.now_ns, lease, outcome).existed, "it ends once");
        self.open.remove(&lease);
    }

    fn plan(&mut self) {
        let exclude = [self.any_worker(), self.any_worker()];
        let exclude = &exclude[..self.draws.below(3)];
        let rows = matches(&[(self.any_worker().0, self.draws.below(1001) as u64)]);
        let all = PlanMatches { regular: rows.clone(), prefill: rows.clone(), decode: rows };
        let target = (self.draws.below(6) == 0).then(|| self.any_worker().0.to_string());
        let keys = RoutingKeys {
            target_worker: target.as_deref(),
            routing_key: [None, Some("k"), Some("l")][self.draws.below(3)],
            implicit: None,
        };
        let prefers_pair = [None, Some(true), Some(false)][self.draws.below(3)];
        let scopes = self.router.scopes(None).expect("any model");
        let request = PlanRequest { scopes, exclude, keys, prefers_pair, ..ANY };
        let proposed = self.router.propose_plan(self.now_ns, &request, &all);
        let before = (self.router.bookings(), self.router.in_flight());
        let planned = self.router.plan(self.now_ns, &request, &all);
        assert_eq!(proposed.map(|it| it.decode.worker), planned.map(|it| it.decode.worker));
        match planned {
            Ok(plan) => self.planned(plan, &request),
            Err(refused) => {
                assert_eq!((self.router.bookings(), self.router.in_flight()), before, "nothing is booked");
                self.refused(refused, &request);
            }
        }
    }

    fn planned(&mut self, plan: Plan, request: &PlanRequest<'_>) {
        let roles = match plan.prefill {
            Some(prefill) => vec![(prefill, Role::Prefill), (plan.decode, Role::Decode)],
            None => vec![(plan.decode, Role::Regular)],
        };
        for (leg, role) in roles {
            assert!(self.able(role, request, true).contains(&leg.worker), "{leg:?} as {role:?}");
            let source = plan.prefill.filter(|_| role == Role::Decode).map(|leg| leg.worker);
            self.open.insert(leg.lease, (leg.worker, source));
            self.router.told_cached(self.now_ns, &leg, 0);
        }
    }

    /// Where breakers and targets have no say, whoever is named can be had by nobody, nor can the other kind.
    fn refused(&self, refused: NoPlan, request: &PlanRequest<'_>) {
        let able = |role, limited| !self.able(role, request, limited).is_empty();
        if self.breakers || request.keys.target_worker.is_some() {
            return;
        }
        assert!(!able(refused.leg.role(), true), "{refused:?}");
        assert!(!able(Role::Regular, true), "it would have served");
        assert!(!able(Role::Prefill, true) || !able(Role::Decode, true), "they would have served");
        if refused.why == Unroutable::DispatchLimit {
            assert!(able(Role::Prefill, false) && able(Role::Decode, false), "waiting would help");
        }
    }

    /// Who may get a leg, breakers aside.
    fn able(&self, role: Role, request: &PlanRequest<'_>, limited: bool) -> BTreeSet<WorkerId> {
        let limit = self.limit.filter(|_| limited && role == Role::Prefill).map_or(u64::MAX, u64::from);
        let of_role = self.router.workers(0).map(|view| view.worker);
        let able = of_role.filter(|worker| worker.role == role && worker.takes_requests());
        let able = able.map(|worker| worker.id).filter(|id| !request.exclude.contains(id));
        able.filter(|id| self.derived(*id) < limit).collect()
    }

    fn derived(&self, worker: WorkerId) -> u64 {
        self.open.values().filter(|(_, source)| *source == Some(worker)).count() as u64
    }

    fn compare(&self) {
        self.router.check().expect("the books agree");
        assert_eq!(self.router.in_flight(), self.open.len());
        for view in self.router.workers(self.now_ns) {
            let id = view.worker.id;
            assert_eq!(view.derived, self.derived(id), "{id:?}");
            let own = self.open.values().filter(|(worker, _)| *worker == id).count();
            assert_eq!((view.load.requests, self.router.leases_of(id)), (own as u64, own), "{id:?}");
        }
    }
}

/// When all legs have ended nothing is left of them.
fn ends_empty(mut world: World) {
    while !world.open.is_empty() {
        world.finish();
    }
    world.compare();
    let router = &world.router;
    assert_eq!(router.in_flight(), 0);
    assert!(router.workers(0).all(|view| view.derived == 0 && view.load == crate::Load::default()));
    assert!((0..200).all(|id| router.leases_of(WorkerId(id)) == 0));
    let accounts = router.state.ledger.accounts().iter().map(crate::ledger::Account::worker);
    let there = router.workers(0).map(|view| view.worker.id);
    assert!(accounts.eq(there), "an account that nobody needs is closed");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_books_are_a_naive_count_and_end_empty(seed: u64) {
        let mut world = World::new(seed);
        (0..300).for_each(|_| world.step());
        ends_empty(world);
    }
}

#[test]
fn the_model_sees_plans_of_both_kinds_and_refusals_of_every_leg() {
    let mut seen = BTreeSet::new();
    for seed in 0..60 {
        let mut world = World::new(seed);
        for _ in 0..100 {
            world.step();
            let request = PlanRequest { scopes: world.router.scopes(None).expect("any model"), ..ANY };
            let found = world.router.propose_plan(world.now_ns, &request, &PlanMatches::default());
            seen.insert(match found {
                Ok(plan) => (if plan.prefill.is_some() { "pair" } else { "whole" }, false),
                Err(refused) => (refused.leg.label(), refused.why == Unroutable::DispatchLimit),
            });
        }
    }
    let all = [("decode", false), ("pair", false), ("prefill", false), ("prefill", true), ("whole", false)];
    assert!(all.iter().all(|kind| seen.contains(kind)), "{seen:?}");
}
