//! What every policy must keep to, tested for every row of the table.

use std::collections::{BTreeMap, BTreeSet};

use super::{OptionKind, OptionSpec, OptionValue, POLICIES, PolicyConfig, PolicyRow};
use crate::draw::Draws;
use crate::fleet::Role;
use crate::index::Matches;
use crate::ledger::{LeaseId, Load, Outcome};
use crate::request::{RouteRequest, RoutingKeys, Unroutable};
use crate::router::{Router, RouterConfig};
use crate::testing::{DONE, REQUEST, SECOND, in_flight, router, worker_spec};
use crate::{LoadReport, PromptView, WarmUp, WorkerId, WorkerSpec};

const KEYS: [&str; 4] = ["alpha", "beta", "gamma", ""];

/// Random traffic over a fleet that changes under it.
struct Traffic {
    router: Router,
    draws: Draws,
    now_ns: u64,
    leases: Vec<LeaseId>,
    workers: u32,
    /// Ask before every assignment, twice.
    asks: bool,
}

/// An assignment as (worker, reason), or why there was none.
type Outcomes = Vec<Result<(WorkerId, &'static str), Unroutable>>;

impl Traffic {
    fn new(row: &'static PolicyRow, seed: u64, asks: bool) -> Self {
        let warm_up = (seed % 2 == 1).then_some(WarmUp { duration_ns: 10 * SECOND, share: 1.0 });
        let config = RouterConfig { warm_up, ..RouterConfig::new(PolicyConfig::of(row), seed) };
        let mut router = Router::new(config).expect("it can work");
        (0..4).for_each(|n| _ = router.add_worker(0, worker_spec(n)));
        router.add_worker(0, WorkerSpec { role: Role::Prefill, ..worker_spec(100) });
        router.add_worker(0, WorkerSpec { model: Some("m".into()), ..worker_spec(101) });
        Self { router, draws: Draws::new(seed, 0), now_ns: 0, leases: Vec::new(), workers: 6, asks }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.draws.below(bound)
    }

    fn any_worker(&mut self) -> WorkerId {
        WorkerId(self.draws.below(self.workers as usize) as u32)
    }

    fn run(&mut self, steps: usize) -> Outcomes {
        let mut outcomes = Vec::new();
        for _ in 0..steps {
            self.now_ns += self.below(SECOND as usize / 10) as u64;
            match self.below(20) {
                0 => self.change_fleet(),
                1 => self.report(),
                2 => self.router.tick(self.now_ns),
                3..=7 => self.advance_lease(),
                _ => outcomes.push(self.assign()),
            }
            self.router.check().expect("the books agree");
        }
        outcomes
    }

    fn change_fleet(&mut self) {
        let (worker, now_ns) = (self.any_worker(), self.now_ns);
        match self.below(6) {
            0 if self.router.remove_worker(now_ns, worker) => {
                self.router.add_worker(now_ns, worker_spec(self.workers));
                self.workers += 1;
            }
            1 if self.router.set_draining(now_ns, worker) => {
                let next = self.router.register_worker(now_ns, worker_spec(self.workers));
                assert!(self.router.set_healthy(now_ns, next, true), "until then it is not");
                self.workers += 1;
            }
            2 => self.router.cache_lost(now_ns, worker),
            health => drop(self.router.set_healthy(now_ns, worker, health > 3)),
        }
    }

    fn report(&mut self) {
        let (worker, garbage) = (self.any_worker(), self.below(4));
        let tokens = if garbage == 0 { u64::MAX } else { self.below(100_000) as u64 };
        let report = LoadReport { total_tokens: tokens, running: 3, waiting: 1, token_usage: 0.5 };
        let report = (garbage != 1).then_some(report);
        self.router.report_loads(self.now_ns.saturating_sub(1000), self.now_ns, worker, report);
    }

    fn advance_lease(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let at = self.below(self.leases.len());
        let (lease, output) = (self.leases[at], self.below(500) as u64);
        match self.below(4) {
            0 => assert!(self.router.first_token(self.now_ns, lease)),
            1 => assert!(self.router.progress(self.now_ns, lease, output)),
            outcome => self.end(at, if outcome == 2 { DONE } else { Outcome::ClientGone }),
        }
    }

    fn end(&mut self, at: usize, outcome: Outcome) {
        let lease = self.leases.swap_remove(at);
        assert!(self.router.finish(self.now_ns, lease, outcome).existed, "{lease:?} was open");
        assert!(!self.router.finish(self.now_ns, lease, Outcome::Failed).existed, "{lease:?} ended twice");
        assert!(!self.router.first_token(self.now_ns, lease) && !self.router.progress(self.now_ns, lease, 9));
    }

    fn assign(&mut self) -> Result<(WorkerId, &'static str), Unroutable> {
        let exclude: Vec<WorkerId> = (0..self.below(3)).map(|_| self.any_worker()).collect();
        let rows: Vec<_> = (0..self.below(4)).map(|_| (self.any_worker(), self.below(1001) as u64)).collect();
        let rows: BTreeMap<WorkerId, u64> = rows.into_iter().collect();
        let matches = Matches::new(rows, 1000);
        let text = vec![b'a' + self.below(3) as u8; self.below(9000)];
        let target = (self.below(8) == 0).then(|| self.any_worker().0.to_string());
        let keys = RoutingKeys {
            target_worker: target.as_deref(),
            routing_key: (self.below(2) == 0).then(|| KEYS[self.below(4)]),
            implicit: (self.below(2) == 0).then(|| KEYS[self.below(4)]),
        };
        let model = (self.below(3) == 0).then_some("m");
        let request = RouteRequest {
            scope: self
                .router
                .scopes(model)
                .expect("\"m\" is all that is stated")
                .regular
                .unwrap_or(REQUEST.scope),
            prompt: [PromptView::Text(&text), PromptView::Tokens(&[1, 2, 3]), PromptView::Unreadable]
                [self.below(3)],
            prompt_tokens: text.len() as u64 / 4,
            keys,
            exclude: &exclude,
            ..REQUEST
        };
        self.book(&request, &matches, model)
    }

    fn book(
        &mut self,
        request: &RouteRequest<'_>,
        matches: &Matches,
        model: Option<&str>,
    ) -> Result<(WorkerId, &'static str), Unroutable> {
        let eligible: BTreeSet<WorkerId> = self.eligible(request, model);
        let asked = self.asks.then(|| {
            let first = self.router.propose(self.now_ns, request, matches);
            assert_eq!(
                first,
                self.router.propose(self.now_ns, request, matches),
                "asking changed the answer"
            );
            first
        });
        let bookings = self.router.bookings();
        let assignment = self.router.assign(self.now_ns, request, matches);
        if let Some(asked) = asked {
            let booked = assignment.map(|assignment| (assignment.worker, assignment.reason));
            assert_eq!(asked.map(|proposal| (proposal.worker, proposal.reason)), booked);
        }
        let Ok(assignment) = assignment else {
            let refused =
                assignment == Err(Unroutable::TargetUnavailable) && request.keys.target_worker.is_some();
            assert!(eligible.is_empty() || refused, "{assignment:?} with {eligible:?}");
            assert_eq!(self.router.bookings(), bookings, "a refusal was booked");
            return assignment.map(|_| unreachable!());
        };
        assert!(eligible.contains(&assignment.worker), "{:?} is not of {eligible:?}", assignment.worker);
        let row = self.router.config().policies.get(Role::Regular).row();
        assert!(row.reasons.contains(&assignment.reason.as_str()), "{} is not in the row", assignment.reason);
        assert_eq!(
            assignment.predicted_cached_tokens.is_some(),
            self.router.signals().prefix_index.is_some()
        );
        self.leases.push(assignment.lease);
        Ok((assignment.worker, assignment.reason.as_str()))
    }

    fn eligible(&self, request: &RouteRequest<'_>, model: Option<&str>) -> BTreeSet<WorkerId> {
        let views = self.router.workers(0).map(|view| view.worker);
        let serves =
            |served: &Option<String>| model.is_none() || served.is_none() || served.as_deref() == model;
        let able = views.filter(|worker| {
            worker.healthy && !worker.draining && worker.role == Role::Regular && serves(&worker.model)
        });
        able.map(|worker| worker.id).filter(|id| !request.exclude.contains(id)).collect()
    }
}

fn for_every_row(test: impl Fn(&'static PolicyRow)) {
    for row in POLICIES {
        println!("policy {}", row.name);
        test(row);
    }
}

#[test]
fn only_eligible_workers_are_chosen_and_asking_changes_nothing() {
    for_every_row(|row| {
        let mut diverted = 0;
        for seed in 0..8 {
            let asking = Traffic::new(row, seed, true).run(400);
            let silent = Traffic::new(row, seed, false).run(400);
            assert_eq!(asking, silent, "seed {seed}: a question moved something");
            diverted += asking.iter().flatten().filter(|(_, reason)| *reason == "warm_up").count();
        }
        assert_eq!(
            diverted > 0,
            PolicyConfig::of(row).signals().prefix_index.is_some(),
            "{diverted} diverted"
        );
    });
}

#[test]
fn the_books_return_to_zero_whatever_happened() {
    for_every_row(|row| {
        for seed in 0..4 {
            let mut traffic = Traffic::new(row, seed, false);
            traffic.run(600);
            assert!(traffic.router.in_flight() > 0, "the traffic leaves something to end");
            while !traffic.leases.is_empty() {
                traffic.end(0, Outcome::Failed);
            }
            assert_eq!(traffic.router.in_flight(), 0);
            assert!(traffic.router.workers(0).all(|view| view.load == Load::default()));
            let tally = |view: crate::WorkerView<'_>| view.tally;
            let open = |tally: crate::ledger::Tally| {
                tally.assigned - tally.completed - tally.failed - tally.client_gone
            };
            assert!(traffic.router.workers(0).map(tally).all(|tally| open(tally) == 0));
            traffic.router.check().expect("the books agree");
        }
    });
}

#[test]
fn load_is_booked_under_every_policy_and_a_shared_prompt_is_no_hot_spot() {
    for_every_row(|row| {
        let mut router = router(PolicyConfig::of(row), 8, 5);
        for _ in 0..1600 {
            let request = RouteRequest { ..REQUEST };
            router.assign(0, &request, &Matches::default()).expect("a worker is there");
        }
        let loads = in_flight(&router);
        assert_eq!(loads.iter().sum::<u64>(), 1600);
        assert!(loads.iter().all(|load| *load <= 400), "a worker has more than twice the mean: {loads:?}");
        let tokens: Vec<u64> = router.workers(0).map(|view| view.load.tokens).collect();
        assert!(tokens.iter().zip(&loads).all(|(tokens, load)| *tokens == 250 * load));
    });
}

#[test]
fn a_deadline_that_was_served_does_not_come_back() {
    for_every_row(|row| {
        let mut traffic = Traffic::new(row, 1, false);
        traffic.run(200);
        let mut last = None;
        for _ in 0..10_000 {
            let Some(deadline) = traffic.router.next_deadline() else { break };
            assert!(last.is_none_or(|last| deadline > last), "{deadline} came again");
            traffic.router.tick(deadline);
            last = Some(deadline);
        }
        assert_eq!(traffic.router.next_deadline(), None, "an idle router has nothing to wait for");
    });
}

#[test]
fn rows_are_well_formed() {
    let names: BTreeSet<_> = POLICIES.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), POLICIES.len(), "names are unique");
    for_every_row(|row| {
        let is_word =
            |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        assert!(is_word(row.name) && !row.summary.is_empty() && !row.reasons.is_empty());
        assert!(row.reasons.iter().all(|reason| is_word(reason)), "{:?}", row.reasons);
        let branches = row.branch_metric.map(|name| name.strip_suffix("_policy_branch"));
        assert!(branches.is_none_or(|name| name.is_some_and(|name| name == format!("smg_{}", row.name))));
        assert!(row.options.iter().all(|spec| is_word(spec.key) && !spec.help.is_empty()));
        let limits = PolicyConfig::of(row).signals().prefix_index;
        assert!(limits.is_none_or(|limits| limits.max_tree_size > 0 && limits.max_tree_bytes > 0));
    });
}

#[test]
fn an_option_of_several_policies_is_the_same_in_all() {
    let mut seen: BTreeMap<&str, &OptionSpec> = BTreeMap::new();
    for spec in POLICIES.iter().flat_map(|row| row.options) {
        assert_eq!(seen.insert(spec.key, spec).unwrap_or(spec), spec, "they share one command-line flag");
    }
}

#[test]
fn a_range_that_is_searched_is_one_that_the_option_takes() {
    for_every_row(|row| {
        for (spec, range) in row.options.iter().filter_map(|spec| Some((spec, spec.search?))) {
            assert!(range.low < range.high && (!range.log || range.low > 0.0), "{}", spec.key);
            for end in [range.low, range.high] {
                let taken = match spec.kind {
                    OptionKind::Integer { min, max } => end >= min as f64 && end <= max as f64,
                    OptionKind::Float { min, max } => (min..=max).contains(&end),
                    OptionKind::Choice(_) => false,
                };
                assert!(taken, "{}: {end}", spec.key);
            }
        }
    });
}

#[test]
fn every_option_takes_its_default_and_its_limits_and_nothing_beyond() {
    for_every_row(|row| {
        for spec in row.options {
            let (inside, outside): (Vec<OptionValue>, Vec<OptionValue>) = match spec.kind {
                OptionKind::Integer { min, max } => (
                    vec![min.into(), max.into()],
                    vec![(min - 1).into(), max.checked_add(1).map_or(OptionValue::Bool(true), Into::into)],
                ),
                OptionKind::Float { min, max } => (
                    vec![min.into(), max.min(f64::MAX).into(), 1.into()],
                    vec![(min - 0.01).into(), f64::NAN.into()],
                ),
                OptionKind::Choice(words) => {
                    (words.iter().map(|word| (*word).into()).collect(), vec!["no".into()])
                }
            };
            let mut config = PolicyConfig::of(row);
            for value in inside.iter().chain([&spec.default]) {
                config.set(spec.key, value.clone()).expect(spec.key);
                drop(router(config.clone(), 2, 0));
            }
            for value in outside {
                let message = config.set(spec.key, value.clone()).expect_err(spec.key).to_string();
                let parts = [row.name, spec.key, &value.to_string(), &spec.kind.to_string()];
                assert!(parts.iter().all(|part| message.contains(part)), "{message}");
            }
            let wrong_kind = OptionValue::Bool(false);
            assert!(config.set(spec.key, wrong_kind).is_err());
        }
    });
}
