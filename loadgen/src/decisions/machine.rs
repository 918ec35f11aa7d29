//! A core that is told what another one was told.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;

use router::record::line::{Header, Line, Look, Named, Pieces, Plan, Report, RoleName, Roles, Shared};
use router_core::ids::{ScopeId, WorkerId};
use router_core::index::Matches;
use router_core::{
    Assignment, LeaseId, LoadReport, NoPlan, Outcome, PerRole, Places, PlanMatches, PlanRequest, Policies,
    Role, Router, RouterConfig, RoutingKeys, Scopes, WorkerSpec,
};

use super::belief::Belief;
use super::choice::{choice, legs, proposal};
use super::policies::{self, Change};
use super::prompt::Prompt;
use super::tally::{Choice, Tally};
use super::{ReplayError, Replayed};

/// Looks that are remembered for what may still be said of them.
const MOST_LOOKS: usize = 1 << 16;

/// See the module's description.
pub(super) struct Machine {
    router: Router,
    /// Present once a policy has wanted it.
    belief: Option<Belief>,
    /// The policies are the recorded ones, and credits come when they came.
    is_identity: bool,
    /// Those by which the recorded decisions were made.
    recorded: Policies,
    /// Something before is not known. So the books follow what was decided, and not what is decided here: then the unknown
    /// is forgotten in time, and a difference has no consequences.
    is_led: bool,
    pieces: Pieces,
    looks: BTreeMap<u64, Looked>,
    /// What is in flight, by the recorded leases.
    legs: HashMap<u64, Vec<Leg>>,
    /// What has completed: the decode leg of a pair may tell later what its prefill worker found.
    ended: BTreeMap<u64, Leg>,
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
            belief: None,
            is_identity: change.is_none(),
            is_led: change.is_none() && header.part > 0,
            recorded,
            pieces: header.pieces,
            looks: BTreeMap::new(),
            legs: HashMap::new(),
            ended: BTreeMap::new(),
            tally,
        };
        machine.want_index();
        Ok(machine)
    }

    /// What came of it; `is_cut`: it ended within a line.
    pub(super) fn end(self, is_cut: bool) -> Replayed {
        self.tally.end(is_cut)
    }

    /// Legs that have not ended.
    #[cfg(test)]
    pub(super) fn in_flight(&self) -> usize {
        self.router.in_flight()
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
            Line::Credit { n, role, shared, clock, .. } if self.is_identity => {
                self.credit(n, role, (shared, clock));
            }
            Line::Withdraw { n, role } => self.withdraw(n, role),
            Line::Clear { workers } => self.with_belief(Belief::clear, &workers),
            Line::Forget { workers } => self.with_belief(Belief::forget, &workers),
            Line::Request(request) => self.tally.ended(&request),
            Line::Dropped { dropped } => {
                self.lose_track();
                self.tally.missing(dropped);
            }
            Line::Credit { .. } => {}
        }
        Ok(())
    }

    /// Something may have happened that is not known: caches may have been cleared, too.
    fn lose_track(&mut self) {
        if self.is_identity {
            self.is_led = true;
            self.belief = None;
            self.want_index();
        }
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

    fn set_policies(&mut self, t: u64, named: &Roles<Named>) -> Result<(), String> {
        self.tally.policies_changed();
        self.recorded = policies::policies(named).map_err(|error| error.to_string())?;
        if self.is_identity {
            self.router.set_policies(t, self.recorded.clone());
            self.want_index();
        }
        Ok(())
    }

    fn want_index(&mut self) {
        if let Some(limits) = self.router.signals().prefix_index {
            let is_same = self.is_identity;
            self.belief.get_or_insert_with(|| Belief::new(limits, is_same)).set_limits(limits);
        }
    }

    fn follows(&self, role: Role) -> bool {
        self.router.signals_of(role).prefix_index.is_some()
    }

    fn look(&mut self, look: Look) {
        let scopes = scopes(&look);
        let followed: Scopes = PerRole::of(|role| scopes.get(role).filter(|_| self.follows(role)));
        let matches = match &mut self.belief {
            Some(belief) => {
                belief.sweep();
                let prompt = Prompt::of(&look, self.pieces);
                let shared = |role: Role| look.shared.get(&role.into()).copied();
                let of = |role, scope| belief.lookup(scope, prompt.clone(), shared(role));
                PerRole::of(|role| followed.get(role).map_or_else(Matches::default, |scope| of(role, scope)))
            }
            None => PlanMatches::default(),
        };
        self.looks.insert(look.n, Looked { look, matches, workers: Vec::new() });
        while self.looks.len() > MOST_LOOKS {
            if let (Some((n, _)), Some(belief)) = (self.looks.pop_first(), &mut self.belief) {
                Role::ALL.iter().for_each(|role| belief.pass((n, (*role).into())));
            }
        }
    }

    fn plan(&mut self, plan: &Plan) {
        if let (true, Some(first)) = (self.is_led, plan.legs.first()) {
            // Leases are numbered by the bookings, also by those that are missing.
            self.router.resume(first.lease.saturating_sub(1));
        }
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
        let hashes = |role| self.recorded.get(role).hashes_as(self.router.config().policies.get(role));
        let places: Places = PerRole::of(|role| plan.places.get(role).filter(|_| hashes(role)));
        let wanted = self.router.places(&request);
        let router = &mut self.router;
        let led =
            if self.is_led { Self::lead(router, plan, &request, &looked.matches, places) } else { None };
        let (choice, planned) = led.unwrap_or_else(|| {
            let planned = router.plan_at(plan.t, &request, &looked.matches, places);
            (choice(&planned), planned)
        });
        let is_hashed = |role: Role| wanted.get(role).is_some() && places.get(role).is_none();
        let is_placed = !choice.legs.iter().any(|(role, _)| is_hashed((*role).into()));
        self.tally.decided(plan, &choice, is_placed);
        let own = planned.as_ref().map(legs).unwrap_or_default();
        let workers: Vec<_> = own.iter().map(|(role, assignment)| (*role, assignment.worker)).collect();
        if let Some(looked) = self.looks.get_mut(&plan.n) {
            looked.workers.clone_from(&workers);
        }
        self.book(plan, &own);
        if !self.is_identity {
            workers.iter().for_each(|(role, _)| self.credit(plan.n, *role, (None, 0)));
        }
    }

    /// Books what was decided if something else would be decided here; returns that, and what is booked.
    fn lead(
        router: &mut Router,
        plan: &Plan,
        request: &PlanRequest<'_>,
        matches: &PlanMatches,
        places: Places,
    ) -> Option<(Choice, Result<router_core::Plan, NoPlan>)> {
        let proposed = router.propose_plan_at(plan.t, request, matches, places);
        let choice = proposal(&proposed, plan.tokens);
        let recorded: Vec<u32> = plan.legs.iter().map(|leg| leg.worker).collect();
        if choice.legs.iter().map(|(_, worker)| *worker).eq(recorded.iter().copied()) {
            return None;
        }
        // Who gets requests is well, whatever of that is missing.
        recorded.iter().for_each(|worker| _ = router.set_healthy(plan.t, WorkerId(*worker), true));
        // With all others excluded nobody else can be chosen; without anybody nothing is booked.
        let others = router.workers(plan.t).map(|row| row.worker.id);
        let exclude: Vec<WorkerId> = others.filter(|id| !recorded.contains(&id.0)).collect();
        let request = PlanRequest { exclude: &exclude, ..*request };
        Some((choice, router.plan_at(plan.t, &request, matches, places)))
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
        let leg = self.legs.get(&lease).and_then(|legs| legs.first()).or_else(|| self.ended.get(&lease));
        if let Some(leg) = leg.filter(|leg| leg.is_same) {
            self.router.told_cached(t, &leg.assignment, tokens);
        }
    }

    fn finish(&mut self, t: u64, lease: u64, outcome: Outcome) {
        let legs = self.legs.remove(&lease).unwrap_or_default();
        for leg in &legs {
            self.router.finish(t, leg.assignment.lease, outcome);
            if !self.is_identity && matches!(outcome, Outcome::Failed | Outcome::Refused) {
                self.withdraw(leg.look, leg.role);
            }
        }
        if let (Outcome::Completed, Some(leg)) = (outcome, legs.first()) {
            self.ended.insert(lease, *leg);
            while self.ended.len() > MOST_LOOKS {
                self.ended.pop_first();
            }
        }
    }

    /// With what the prompt shared when the recorded index was credited, and the clock of that.
    fn credit(&mut self, n: u64, role: RoleName, told: (Option<Shared>, u64)) {
        let is_followed = self.follows(role.into());
        let (Some(looked), Some(belief)) = (self.looks.get(&n), &mut self.belief) else { return };
        let scope = *scopes(&looked.look).get(role.into());
        let worker = looked.workers.iter().find(|(other, _)| *other == role);
        if let (Some(scope), Some((_, worker)), true) = (scope, worker, is_followed) {
            belief.credit((n, role), (scope, *worker), Prompt::of(&looked.look, self.pieces), told);
        }
    }

    fn withdraw(&mut self, n: u64, role: RoleName) {
        if let Some(belief) = &mut self.belief {
            belief.withdraw((n, role));
        }
    }

    fn with_belief(&mut self, change: impl Fn(&mut Belief, WorkerId), workers: &[u32]) {
        if let Some(belief) = &mut self.belief {
            workers.iter().for_each(|worker| change(belief, WorkerId(*worker)));
        }
    }
}

fn scopes(look: &Look) -> Scopes {
    PerRole::of(|role| look.scopes.get(role).map(ScopeId))
}

pub(super) fn load(report: Report) -> LoadReport {
    let Report { total_tokens, running, waiting, token_usage } = report;
    LoadReport { total_tokens, running, waiting, token_usage }
}
