//! A core that is told what another one was told.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;

use router::record::line::{Header, Line, Look, Pieces, Plan, Report, RoleName, Roles};
use router_core::ids::{ScopeId, WorkerId};
use router_core::index::{Credit, Matches, PrefixIndex};
use router_core::{
    Assignment, LeaseId, LoadReport, NoPlan, Outcome, PerRole, PlanMatches, PlanRequest, Policies, Role,
    Router, RouterConfig, RoutingKeys, Scopes, WorkerSpec,
};

use super::policies::{self, Change};
use super::prompt::Prompt;
use super::tally::{Choice, Tally};
use super::{ReplayError, Replayed};

/// Looks that are remembered for what may still be said of them.
const MOST_LOOKS: usize = 1 << 16;

/// Rows of the index that are given back at a time.
const SWEEP: usize = 512;

/// See the module's description.
pub(super) struct Machine {
    router: Router,
    /// Present once a policy has wanted it.
    index: Option<PrefixIndex>,
    /// The policies are the recorded ones, and credits come when they came.
    is_identity: bool,
    pieces: Pieces,
    looks: BTreeMap<u64, Looked>,
    /// By the recorded leases.
    legs: HashMap<u64, Vec<Leg>>,
    credits: HashMap<(u64, RoleName), Credit>,
    tally: Tally,
}

/// A prompt, and what came of it here.
struct Looked {
    look: Look,
    matches: PlanMatches,
    /// Who has it.
    workers: Vec<(RoleName, WorkerId)>,
}

/// A leg that was booked here for a recorded one.
#[derive(Clone, Copy)]
struct Leg {
    assignment: Assignment,
    look: u64,
    role: RoleName,
    /// The recorded one is on the same worker.
    is_same: bool,
}

impl Machine {
    pub(super) fn new(header: &Header, change: &Change) -> Result<Self, ReplayError> {
        let config = policies::config(header)?;
        let recorded = config.policies.clone();
        let config = RouterConfig { policies: change.apply(config.policies)?, ..config };
        let tally = Tally::new(header, &recorded, &config.policies, change.is_none());
        let router = Router::resumed(config, header.bookings);
        let router = router.map_err(|error| ReplayError::Policy(error.to_string()))?;
        let mut machine = Self {
            router,
            index: None,
            is_identity: change.is_none(),
            pieces: header.pieces,
            looks: BTreeMap::new(),
            legs: HashMap::new(),
            credits: HashMap::new(),
            tally,
        };
        machine.want_index();
        Ok(machine)
    }

    /// What came of it; `is_whole`: it began where the router did.
    pub(super) fn end(self, is_whole: bool) -> Replayed {
        self.tally.end(is_whole)
    }

    /// Hears a line.
    ///
    /// # Errors
    /// It cannot follow what was heard before.
    pub(super) fn feed(&mut self, line: Line) -> Result<(), String> {
        match line {
            Line::Add { t, worker, url, model, role } => {
                self.add(t, worker, &url, model.as_deref(), role.into())?;
            }
            Line::Remove { t, worker } => _ = self.router.remove_worker(t, WorkerId(worker)),
            Line::Drain { t, worker } => _ = self.router.set_draining(t, WorkerId(worker)),
            Line::Health { t, worker, healthy } => {
                self.router.set_healthy(t, WorkerId(worker), healthy);
            }
            Line::CacheLost { t, worker } => self.router.cache_lost(t, WorkerId(worker)),
            Line::Model { worker, model } => {
                self.router.set_model(WorkerId(worker), model.map(Into::into));
            }
            Line::Role { t, worker, role } => _ = self.router.set_role(t, WorkerId(worker), role.into()),
            Line::Load { t, asked, worker, report } => {
                self.router.report_loads(asked, t, WorkerId(worker), report.map(load));
            }
            Line::Tick { t } => self.router.tick(t),
            Line::Policies { t, policies } => self.set_policies(t, &policies)?,
            Line::Pairing { pairing } => {
                let limit = pairing.decode_dispatch_limit.and_then(NonZeroU32::new);
                self.router.set_pairing(limit, policies::pair(pairing));
            }
            Line::Look(look) => self.look(*look),
            Line::Plan(plan) => self.plan(&plan),
            Line::First { t, lease } => {
                self.each(lease, |router, leg| _ = router.first_token(t, leg));
            }
            Line::Progress { t, lease, tokens } => {
                self.each(lease, |router, leg| _ = router.progress(t, leg, tokens));
            }
            Line::Cached { t, lease, tokens } => self.cached(t, lease, tokens),
            Line::Finish { t, lease, outcome } => self.finish(t, lease, outcome.into()),
            Line::Credit { n, role, .. } if self.is_identity => self.credit(n, role),
            Line::Withdraw { n, role } => self.withdraw(n, role),
            Line::Clear { workers } => self.with_index(|index, worker| index.clear(worker), &workers),
            Line::Forget { workers } => self.with_index(|index, worker| index.forget(worker), &workers),
            Line::Request(request) => self.tally.ended(&request),
            Line::Dropped { dropped } => self.tally.missing(dropped),
            Line::Credit { .. } => {}
        }
        Ok(())
    }

    fn add(&mut self, t: u64, worker: u32, url: &str, model: Option<&str>, role: Role) -> Result<(), String> {
        let spec = WorkerSpec { url: url.to_owned(), model: model.map(str::to_owned), role };
        // Ids are given in order: where lines are missing, some were given to workers that are not known.
        loop {
            let id = self.router.register_worker(t, spec.clone());
            match id.0.cmp(&worker) {
                std::cmp::Ordering::Less => _ = self.router.remove_worker(t, id),
                std::cmp::Ordering::Equal => {
                    self.tally.worker(worker, url, role);
                    return Ok(());
                }
                std::cmp::Ordering::Greater => {
                    return Err(format!("worker {worker} is added after worker {}", id.0 - 1));
                }
            }
        }
    }

    fn set_policies(&mut self, t: u64, named: &Roles<router::record::line::Named>) -> Result<(), String> {
        if self.is_identity {
            let policies: Policies = policies::policies(named).map_err(|error| error.to_string())?;
            self.router.set_policies(t, policies);
            self.want_index();
        }
        Ok(())
    }

    fn want_index(&mut self) {
        if let Some(limits) = self.router.signals().prefix_index {
            self.index.get_or_insert_with(|| PrefixIndex::new(limits)).set_limits(limits);
        }
    }

    fn follows(&self, role: Role) -> bool {
        self.router.signals_of(role).prefix_index.is_some()
    }

    fn look(&mut self, look: Look) {
        let scopes = scopes(&look);
        let followed: Scopes = PerRole::of(|role| scopes.get(role).filter(|_| self.follows(role)));
        let matches = match &mut self.index {
            Some(index) => {
                index.sweep(SWEEP);
                let prompt = Prompt::of(&look, self.pieces);
                let of = |scope: ScopeId| index.lookup(scope, prompt.view());
                PerRole::of(|role| followed.get(role).map_or_else(Matches::default, of))
            }
            None => PlanMatches::default(),
        };
        self.looks.insert(look.n, Looked { look, matches, workers: Vec::new() });
        while self.looks.len() > MOST_LOOKS {
            if let Some((n, _)) = self.looks.pop_first() {
                Role::ALL.iter().for_each(|role| _ = self.credits.remove(&(n, (*role).into())));
            }
        }
    }

    fn plan(&mut self, plan: &Plan) {
        let Some(looked) = self.looks.get(&plan.n) else {
            self.tally.unknown();
            return;
        };
        let prompt = Prompt::of(&looked.look, self.pieces);
        let exclude: Vec<WorkerId> = plan.tried.iter().map(|worker| WorkerId(*worker)).collect();
        let request = PlanRequest {
            scopes: scopes(&looked.look),
            prompt: prompt.view(),
            prompt_tokens: plan.tokens,
            output_budget: plan.budget,
            keys: RoutingKeys {
                target_worker: plan.target.as_deref(),
                routing_key: plan.key.as_ref().map(|key| &*key.0),
                implicit: plan.implicit.as_ref().map(|key| &*key.0),
            },
            exclude: &exclude,
            prefers_pair: plan.pair,
        };
        let planned = self.router.plan(plan.t, &request, &looked.matches);
        self.tally.decided(plan, &choice(&planned));
        let own = planned.map(|plan| legs(&plan)).unwrap_or_default();
        let workers: Vec<_> = own.iter().map(|(role, assignment)| (*role, assignment.worker)).collect();
        if let Some(looked) = self.looks.get_mut(&plan.n) {
            looked.workers.clone_from(&workers);
        }
        self.book(plan, &own);
        if !self.is_identity {
            workers.iter().for_each(|(role, _)| self.credit(plan.n, *role));
        }
    }

    /// Notes which recorded lease stands for which of ours.
    fn book(&mut self, plan: &Plan, own: &[(RoleName, Assignment)]) {
        let leg = |recorded: u32, (role, assignment): (RoleName, Assignment)| Leg {
            assignment,
            look: plan.n,
            role,
            is_same: assignment.worker.0 == recorded,
        };
        match &plan.legs[..] {
            // It was refused, so nothing will be heard of it.
            [] => own.iter().for_each(|(_, assignment)| {
                self.router.finish(plan.t, assignment.lease, Outcome::Refused);
            }),
            recorded if recorded.len() == own.len() => {
                for (recorded, own) in recorded.iter().zip(own) {
                    self.legs.insert(recorded.lease, vec![leg(recorded.worker, *own)]);
                }
            }
            // A pair for a worker that does everything, or the other way round: the leg that answers tells of all.
            [.., recorded] => {
                let own = own.iter().map(|own| leg(recorded.worker, *own)).collect();
                self.legs.insert(recorded.lease, own);
            }
        }
    }

    fn each(&mut self, lease: u64, tell: impl Fn(&mut Router, LeaseId)) {
        for leg in self.legs.get(&lease).into_iter().flatten() {
            tell(&mut self.router, leg.assignment.lease);
        }
    }

    /// What another worker has found in its cache says nothing of ours.
    fn cached(&mut self, t: u64, lease: u64, tokens: u64) {
        let leg = self.legs.get(&lease).and_then(|legs| legs.first());
        if let Some(leg) = leg.filter(|leg| leg.is_same) {
            self.router.told_cached(t, &leg.assignment, tokens);
        }
    }

    fn finish(&mut self, t: u64, lease: u64, outcome: Outcome) {
        for leg in self.legs.get(&lease).cloned().unwrap_or_default() {
            self.router.finish(t, leg.assignment.lease, outcome);
            if !self.is_identity && matches!(outcome, Outcome::Failed | Outcome::Refused) {
                self.withdraw(leg.look, leg.role);
            }
        }
        // The decode leg of a pair may tell later what its prefill worker found.
        if outcome != Outcome::Completed || self.legs.len() > MOST_LOOKS {
            self.legs.remove(&lease);
        }
    }

    fn credit(&mut self, n: u64, role: RoleName) {
        let is_followed = self.follows(role.into());
        let (Some(looked), Some(index)) = (self.looks.get(&n), &mut self.index) else { return };
        let scope = *scopes(&looked.look).get(role.into());
        let worker = looked.workers.iter().find(|(other, _)| *other == role);
        if let (Some(scope), Some((_, worker)), true) = (scope, worker, is_followed) {
            let prompt = Prompt::of(&looked.look, self.pieces);
            let credit = index.credit(scope, prompt.view(), *worker);
            self.credits.insert((n, role), credit);
        }
    }

    fn withdraw(&mut self, n: u64, role: RoleName) {
        let Some(credit) = self.credits.remove(&(n, role)) else { return };
        if let (Some(looked), Some(index)) = (self.looks.get(&n), &mut self.index) {
            index.withdraw(Prompt::of(&looked.look, self.pieces).view(), credit);
        }
    }

    fn with_index(&mut self, change: impl Fn(&mut PrefixIndex, WorkerId), workers: &[u32]) {
        if let Some(index) = &mut self.index {
            workers.iter().for_each(|worker| change(index, WorkerId(*worker)));
        }
    }
}

fn scopes(look: &Look) -> Scopes {
    PerRole::of(|role| look.scopes.get(role).map(ScopeId))
}

fn load(report: Report) -> LoadReport {
    let Report { total_tokens, running, waiting, token_usage } = report;
    LoadReport { total_tokens, running, waiting, token_usage }
}

/// The legs of a plan with their roles, in the order of a recording.
fn legs(plan: &router_core::Plan) -> Vec<(RoleName, Assignment)> {
    let answering = if plan.prefill.is_some() { RoleName::Decode } else { RoleName::Regular };
    let prefill = plan.prefill.iter().map(|leg| (RoleName::Prefill, *leg));
    prefill.chain([(answering, plan.decode)]).collect()
}

fn choice(planned: &Result<router_core::Plan, NoPlan>) -> Choice {
    match planned {
        Err(no) => {
            Choice { legs: Vec::new(), reason: format!("{}: {}", no.leg.label(), no.why), predicted: 0 }
        }
        Ok(plan) => {
            let legs = legs(plan);
            let computing = legs.first().and_then(|(_, leg)| leg.predicted_cached_tokens);
            let reasons: Vec<_> = legs.iter().map(|(_, leg)| leg.reason.as_str()).collect();
            Choice {
                legs: legs.iter().map(|(role, leg)| (*role, leg.worker.0)).collect(),
                reason: reasons.join(" + "),
                predicted: computing.unwrap_or(0),
            }
        }
    }
}
