//! Random calls to a core and its prefix index, and to those of a replay by what is recorded of them alone: every decision must
//! be the same.

mod scripted;

use std::collections::BTreeMap;

use router::record::line::{
    Booked, Breaker, Hash, Header, Line, Named, Pairing, Pieces, Plan, Refused, Report, RoleName, Roles,
    VERSION, WarmUp,
};
use router::record::look_of;
use router_core::ids::WorkerId;
use router_core::index::{Credit, IndexLimits, PrefixIndex};
use router_core::prompt::PromptView;
use router_core::{
    Assignment, Outcome, POLICIES, PerRole, PlanMatches, PlanRequest, Role, Router, RoutingKeys, WorkerSpec,
};
use serde_json::json;

use super::Replayed;
use super::choice::legs;
use super::machine::Machine;
use super::oracle::Draw;
use super::policies::{self, Change};

const SECOND_NS: u64 = 1_000_000_000;
const LIMITS: IndexLimits = IndexLimits { max_tree_size: 1 << 26, max_tree_bytes: 1 << 30 };

/// A policy with options by which small differences of load decide.
fn named(policy: &'static str) -> Named {
    let options: &[(&str, serde_json::Value)] = match policy {
        "bucket" => &[("balance_abs_threshold", json!(99)), ("bucket_adjust_interval_secs", json!(1))],
        "cache_aware" => &[("balance_abs_threshold", json!(2)), ("cache_threshold", json!(0.2))],
        "manual" => &[("assignment_mode", json!("min_load")), ("max_idle_secs", json!(2))],
        _ => &[],
    };
    let options = options.iter().map(|(key, value)| ((*key).into(), value.clone())).collect();
    Named { name: policy.into(), options }
}

/// The same for all roles, where it fits.
fn everywhere(policy: &'static str) -> Roles<Named> {
    let row = POLICIES.iter().find(|row| row.name == policy).unwrap();
    Roles::of(|role| named(if (row.fits)(role) { policy } else { "round_robin" }))
}

fn header(policy: &'static str) -> Header {
    Header {
        router_trace: VERSION,
        part: 0,
        restated: 0,
        version: "0".into(),
        start_unix_ms: 0,
        seed: 7,
        bookings: 0,
        policies: everywhere(policy),
        load_poll_interval_ns: SECOND_NS,
        breaker: Some(Breaker {
            failure_threshold: 2,
            success_threshold: 2,
            open_ns: SECOND_NS,
            half_open_permits: 1,
            try_least_bad: false,
        }),
        warm_up: Some(WarmUp { duration_ns: 2 * SECOND_NS, share: 0.5 }),
        pairing: Pairing { decode_dispatch_limit: None, prefer: true, least_uncached_tokens: 0 },
        pieces: Pieces::WRITTEN,
    }
}

/// A leg in flight, or one that has ended and whose cached tokens may be told yet.
struct Open {
    look: u64,
    prompt: String,
    role: RoleName,
    assignment: Assignment,
    credit: Option<Credit>,
}

/// What is recorded: a core and its index, and the lines about them.
struct Recorded {
    router: Router,
    index: PrefixIndex,
    draw: Draw,
    now_ns: u64,
    looks: u64,
    workers: u32,
    open: Vec<Open>,
    lines: Vec<Line>,
}

impl Recorded {
    fn new(header: &Header, seed: u64) -> Self {
        let mut recorded = Self::empty(header, seed);
        (0..4).for_each(|_| recorded.add());
        recorded
    }

    /// Without workers.
    fn empty(header: &Header, seed: u64) -> Self {
        let router = Router::new(policies::config(header).unwrap()).unwrap();
        let (index, draw) = (PrefixIndex::new(LIMITS), Draw::new(seed));
        let (open, lines) = (Vec::new(), Vec::new());
        Self { router, index, draw, now_ns: 0, looks: 0, workers: 0, open, lines }
    }

    /// What comes of so many random calls.
    fn run(&mut self, steps: usize) {
        (0..steps).for_each(|_| self.step(40));
    }

    /// The same, while the workers and the rules stay as they are.
    fn run_calmly(&mut self, steps: usize) {
        (0..steps).for_each(|_| self.step(35));
    }

    fn step(&mut self, kinds: u64) {
        self.now_ns += self.draw.below(SECOND_NS / 20);
        match self.draw.below(kinds) {
            39 => self.change_worker(),
            38 if self.draw.below(5) == 0 => self.change_rules(),
            0..3 => self.report(),
            3 => self.tick(),
            4..14 => self.request(),
            _ => self.go_on(),
        }
    }

    fn some_worker(&mut self) -> WorkerId {
        WorkerId(self.draw.below(self.workers.into()) as u32)
    }

    /// Regular workers, and now and then one of a pair; some say at once what they serve.
    fn add(&mut self) {
        let role = self.draw.of(&[Role::Regular, Role::Regular, Role::Prefill, Role::Decode]);
        let model = self.draw.of(&[None, None, Some("m")]);
        self.add_one(role, model);
    }

    fn add_one(&mut self, role: Role, model: Option<&str>) {
        let (t, url) = (self.now_ns, format!("http://w{}", self.workers));
        let spec = WorkerSpec { url: url.clone(), model: model.map(Into::into), role };
        let worker = self.router.register_worker(t, spec);
        let (url, model, role) = (url.into(), model.map(Into::into), role.into());
        self.lines.push(Line::Add { t, worker: worker.0, url, model, role });
        self.workers += 1;
        self.set_healthy(worker, true);
    }

    fn set_healthy(&mut self, worker: WorkerId, healthy: bool) {
        if self.router.set_healthy(self.now_ns, worker, healthy) {
            self.lines.push(Line::Health { t: self.now_ns, worker: worker.0, healthy });
            self.clear(worker);
        }
    }

    fn clear(&mut self, worker: WorkerId) {
        self.index.clear(worker);
        self.lines.push(Line::Clear { workers: [worker.0].into() });
    }

    fn change_worker(&mut self) {
        let (t, id) = (self.now_ns, self.some_worker());
        let worker = id.0;
        match self.draw.below(8) {
            0 => {
                self.router.remove_worker(t, id);
                self.index.forget(id);
                self.lines.push(Line::Remove { t, worker });
                self.lines.push(Line::Forget { workers: [worker].into() });
                self.add();
            }
            1 => {
                self.router.set_draining(t, id);
                self.lines.push(Line::Drain { t, worker });
                self.add();
            }
            2 => {
                self.router.cache_lost(t, id);
                self.lines.push(Line::CacheLost { t, worker });
                self.clear(id);
            }
            3 => {
                let model = self.draw.of(&["m", "n"]);
                self.router.set_model(id, Some(model.to_owned()));
                self.lines.push(Line::Model { worker, model: Some(model.into()) });
            }
            4 => {
                let role = self.draw.of(&Role::ALL);
                self.router.set_role(t, id, role);
                self.lines.push(Line::Role { t, worker, role: role.into() });
            }
            healthy => self.set_healthy(id, healthy > 5),
        }
    }

    fn report(&mut self) {
        let (t, id) = (self.now_ns, self.some_worker());
        let asked = t - self.draw.below(SECOND_NS / 10).min(t);
        let (running, waiting) = (self.draw.below(9), self.draw.below(3));
        let report = Report { total_tokens: 400 * running, running, waiting, token_usage: 0.5 };
        let report = (self.draw.below(4) > 0).then_some(report);
        self.router.report_loads(asked, t, id, report.map(super::machine::load));
        self.lines.push(Line::Load { t, asked, worker: id.0, report });
    }

    fn tick(&mut self) {
        self.router.tick(self.now_ns);
        self.lines.push(Line::Tick { t: self.now_ns });
    }

    /// The configuration is read again.
    fn change_rules(&mut self) {
        let t = self.now_ns;
        if self.draw.below(2) == 0 {
            let prefer = self.draw.below(2) == 0;
            let limit = self.draw.of(&[None, std::num::NonZeroU32::new(2)]);
            let pairing = Pairing {
                decode_dispatch_limit: limit.map(Into::into),
                prefer,
                least_uncached_tokens: self.draw.of(&[0, 30]),
            };
            self.router.set_pairing(limit, policies::pair(pairing));
            self.lines.push(Line::Pairing { pairing });
            return;
        }
        let policy = POLICIES[self.draw.below(POLICIES.len() as u64) as usize].name;
        let policies = Box::new(everywhere(policy));
        self.router.set_policies(t, policies::policies(&policies).unwrap());
        self.lines.push(Line::Policies { t, policies });
    }

    /// A prompt that begins as some others do, now and then an empty one.
    fn prompt(&mut self) -> String {
        let (group, own) = (self.draw.below(6), self.draw.below(40));
        if own == 0 {
            return String::new();
        }
        format!("group {group} {}{own}", "asks this ".repeat(20 * (1 + group as usize)))
    }

    fn request(&mut self) {
        let prompt = self.prompt();
        let is_again = self.draw.below(8) == 0;
        let tried = if is_again { vec![self.some_worker()] } else { Vec::new() };
        self.ask(prompt, &tried);
    }

    /// A request that was tried on some workers, with or without keys.
    fn ask(&mut self, prompt: String, tried: &[WorkerId]) {
        let t = self.now_ns;
        let Ok(scopes) = self.router.scopes(self.draw.of(&[None, Some("m")])) else { return };
        let view = view(&prompt);
        let client = self.draw.below(9);
        let (key, hash) = (format!("key {client}"), format!("{client:016x}"));
        let (routing, implicit) =
            [(true, false), (true, true), (false, true), (false, false)][client as usize % 4];
        let key_if = |has: bool| has.then_some(&*key);
        let hash_if = |has: bool| has.then(|| Hash(hash.as_str().into()));
        let target = (self.draw.below(30) == 0).then(|| self.some_worker().0.to_string());
        let request = PlanRequest {
            scopes,
            prompt: view,
            prompt_tokens: prompt.len() as u64 / 4,
            output_budget: None,
            keys: RoutingKeys {
                target_worker: target.as_deref(),
                routing_key: key_if(routing),
                implicit: key_if(implicit),
            },
            exclude: tried,
            prefers_pair: self.draw.of(&[None, None, Some(false)]),
        };
        self.looks += 1;
        let n = self.looks;
        let told = Roles::of(|role| scopes.get(role).map(|scope| scope.0));
        let mut look = look_of([7; 16], n, told, view);
        look.share(view, &self.index);
        self.lines.push(Line::Look(Box::new(look)));
        let follows = |router: &Router, role| router.signals_of(role).prefix_index.is_some();
        let followed = PerRole::of(|role| scopes.get(role).filter(|_| follows(&self.router, role)));
        let matches: PlanMatches = PerRole::of(|role| {
            followed.get(role).map_or_else(Default::default, |scope| self.index.lookup(scope, view))
        });
        let places = self.router.places(&request);
        let planned = self.router.plan(t, &request, &matches);
        let booked = planned.as_ref().map(legs).unwrap_or_default();
        self.lines.push(Line::Plan(Box::new(Plan {
            n,
            t,
            tokens: request.prompt_tokens,
            budget: None,
            key: hash_if(routing),
            implicit: hash_if(implicit),
            target: target.as_deref().map(Into::into),
            tried: tried.iter().map(|worker| worker.0).collect(),
            places: Roles::of(|role| *places.get(role)),
            pair: request.prefers_pair,
            legs: booked.iter().map(|(role, leg)| Booked::of(*role, leg)).collect(),
            refused: planned
                .err()
                .map(|no| Refused { leg: no.leg.label().into(), why: no.why.to_string().into() }),
        })));
        for (role, assignment) in booked {
            let worker = assignment.worker;
            let credit = followed.get(role.into()).map(|scope| {
                let shared = self.index.shared(scope, view).map(Into::into);
                let credit = self.index.credit(scope, view, worker);
                let clock = self.index.clock();
                self.lines.push(Line::Credit { n, role, worker: worker.0, shared, clock });
                credit
            });
            self.open.push(Open { look: n, prompt: prompt.clone(), role, assignment, credit });
        }
    }

    /// Something becomes of a leg.
    fn go_on(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = self.draw.below(self.open.len() as u64) as usize;
        let (t, Open { assignment, .. }) = (self.now_ns, &self.open[at]);
        let (assignment, lease) = (*assignment, assignment.lease.0);
        match self.draw.below(9) {
            0..3 => {
                self.router.first_token(t, assignment.lease);
                self.lines.push(Line::First { t, lease });
            }
            3..6 => {
                let tokens = self.draw.below(900);
                self.router.progress(t, assignment.lease, tokens);
                self.lines.push(Line::Progress { t, lease, tokens });
            }
            _ => {
                let outcome = self.draw.of(&[
                    Outcome::Completed,
                    Outcome::Completed,
                    Outcome::Completed,
                    Outcome::Failed,
                    Outcome::Refused,
                    Outcome::ClientGone,
                ]);
                self.end(at, outcome);
            }
        }
    }

    fn end(&mut self, at: usize, outcome: Outcome) {
        let Open { look, prompt, role, assignment, credit } = self.open.swap_remove(at);
        let (t, lease) = (self.now_ns, assignment.lease.0);
        let told = |recorded: &mut Self| {
            let tokens = recorded.draw.of(&[0, 0, 0, 0, 0, 600]);
            recorded.lines.push(Line::Cached { t, lease, tokens });
            if recorded.router.told_cached(t, &assignment, tokens) {
                recorded.clear(assignment.worker);
            }
        };
        let is_told_late = role == RoleName::Prefill;
        if outcome == Outcome::Completed && !is_told_late {
            told(self);
        }
        self.router.finish(t, assignment.lease, outcome);
        self.lines.push(Line::Finish { t, lease, outcome: outcome.into() });
        if outcome == Outcome::Completed && is_told_late {
            told(self);
        }
        if let Some(credit) = credit.filter(|_| matches!(outcome, Outcome::Failed | Outcome::Refused)) {
            self.index.withdraw(view(&prompt), credit);
            self.lines.push(Line::Withdraw { n: look, role });
        }
    }
}

/// An empty prompt stands for one that the router cannot read.
fn view(prompt: &str) -> PromptView<'_> {
    if prompt.is_empty() { PromptView::Unreadable } else { PromptView::Text(prompt.as_bytes()) }
}

fn replayed(header: &Header, lines: Vec<Line>) -> Replayed {
    replayed_as(&Change::default(), header, lines)
}

fn replayed_as(change: &Change, header: &Header, lines: Vec<Line>) -> Replayed {
    let mut machine = Machine::new(header, change).unwrap();
    lines.into_iter().for_each(|line| machine.feed(line).unwrap());
    machine.end(false)
}

#[test]
fn a_core_that_is_told_what_was_recorded_decides_the_same() {
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    for (at, row) in POLICIES.iter().enumerate() {
        for seed in 0..16 {
            let header = header(row.name);
            let mut recorded = Recorded::new(&header, 1000 * at as u64 + seed);
            recorded.run(1500);
            let plans = recorded.lines.iter().filter_map(|line| match line {
                Line::Plan(plan) => Some(plan),
                _ => None,
            });
            for leg in plans.flat_map(|plan| &plan.legs) {
                *reasons.entry(format!("{} {}", leg.policy, leg.reason)).or_default() += 1;
            }
            let found = replayed(&header, recorded.lines);
            let case = format!("{}, seed {seed}: {found}", row.name);
            assert!(found.decisions > 300, "{case}");
            assert_eq!((found.identical, found.other_reason), (found.decisions, 0), "{case}");
            assert_eq!((found.unknown, found.unplaced), (0, 0), "{case}");
            assert_eq!(found.recorded, found.replayed, "{case}");
        }
    }
    println!("{reasons:?}");
    for row in POLICIES {
        for reason in row.reasons {
            assert!(
                reasons.contains_key(&format!("{} {reason}", row.name)),
                "{} {reason}: {reasons:?}",
                row.name
            );
        }
    }
}
