//! Plans: regular worker or pair, and both workers of a pair.
//!
//! Both legs of a pair are chosen before either is booked, so a request for which one cannot be had leaves no trace. The
//! draws of the decode leg are those that follow the booking of the prefill leg: with the same draws, two policies of the
//! same kind would always pair the same workers.

use super::draft::{Draft, Slot};
use super::seat::Seat;
use super::{Router, State};
use crate::ScopeId;
use crate::fleet::{PerRole, Role};
use crate::plan::{Leg, NoPlan, Plan, PlanMatches, PlanProposal, PlanRequest};
use crate::request::{RouteRequest, Unroutable};

/// The requests that each role's workers would get.
pub(super) type Legs<'a> = PerRole<Option<RouteRequest<'a>>>;

/// What their choices depend on, as far as they are made.
type Slots<'s> = PerRole<Slot<'s>>;

/// A plan that is not yet booked.
#[derive(Clone, Copy)]
struct PlanDraft<'d, 's, 'r> {
    prefill: Option<Draft<'d, 's, 'r>>,
    /// Of the leg that answers.
    decode: Draft<'d, 's, 'r>,
}

/// Who could serve a request.
enum Kinds {
    Whole,
    Pair,
    Both,
}

/// What a plan is made from.
struct Planner<'s, 'r, 'p> {
    state: &'s State,
    seats: &'p PerRole<Seat>,
    now_ns: u64,
    request: &'p PlanRequest<'p>,
    legs: &'r Legs<'r>,
    matches: &'r PlanMatches,
}

// === impl Router ===

impl Router {
    /// Chooses the workers of a request and books its legs on them. `matches` are the index's answers for its prompt in its
    /// scopes; where a role's policy follows no prefixes ([`Router::signals_of`]) it may be empty.
    ///
    /// Where a model is served by pairs alone or by regular workers alone, they get it. Where both serve it,
    /// [`PairPreference`](crate::PairPreference) decides, and if nobody of that kind can have the request, the other kind
    /// gets it.
    ///
    /// # Errors
    /// A leg can be had by nobody; nothing is booked.
    pub fn plan(
        &mut self,
        now_ns: u64,
        request: &PlanRequest<'_>,
        matches: &PlanMatches,
    ) -> Result<Plan, NoPlan> {
        let legs = self.state.legs(request);
        let (prefill, decode) = {
            let planner =
                Planner { state: &self.state, seats: &self.seats, now_ns, request, legs: &legs, matches };
            let mut slots = Slots::default();
            let PlanDraft { prefill, decode } = planner.draft(&mut slots)?;
            let prefill = prefill.map(|leg| leg.settle(&mut self.seats));
            (prefill, decode.settle(&mut self.seats))
        };
        let prefill = prefill.map(|leg| self.enter(now_ns, leg, None));
        let source = prefill.map(|assignment| assignment.worker);
        Ok(Plan { prefill, decode: self.enter(now_ns, decode, source) })
    }

    /// What [`Router::plan`] would choose now.
    ///
    /// # Errors
    /// As [`Router::plan`].
    pub fn propose_plan(
        &self,
        now_ns: u64,
        request: &PlanRequest<'_>,
        matches: &PlanMatches,
    ) -> Result<PlanProposal, NoPlan> {
        let legs = self.state.legs(request);
        let planner =
            Planner { state: &self.state, seats: &self.seats, now_ns, request, legs: &legs, matches };
        let mut slots = Slots::default();
        let PlanDraft { prefill, decode } = planner.draft(&mut slots)?;
        Ok(PlanProposal { prefill: prefill.map(|draft| draft.proposal()), decode: decode.proposal() })
    }
}

// === impl State ===

impl State {
    pub(super) fn legs<'a>(&self, request: &PlanRequest<'a>) -> Legs<'a> {
        let leg = |role: Role| request.scopes.get(role).map(|scope| request.leg(scope));
        let mut legs = PerRole::of(leg);
        let target = request.keys.target_worker;
        if let (Some(target), Some(prefill), Some(decode)) = (target, &mut legs.prefill, &mut legs.decode) {
            // The target of one leg is no wish of the other.
            let names = |role| self.fleet.named(target).any(|worker| worker.role == role);
            match (names(Role::Prefill), names(Role::Decode)) {
                (true, false) => decode.keys.target_worker = None,
                (false, true) => prefill.keys.target_worker = None,
                (true, true) | (false, false) => {}
            }
        }
        legs
    }
}

// === impl Planner ===

impl<'s, 'r: 's> Planner<'s, 'r, '_> {
    fn draft<'d>(&self, slots: &'d mut Slots<'s>) -> Result<PlanDraft<'d, 's, 'r>, NoPlan> {
        let PerRole { regular, prefill, decode } = slots;
        match self.kinds() {
            Kinds::Whole => self.whole(regular),
            Kinds::Pair => self.pair(prefill, decode),
            Kinds::Both if !self.prefers_pair() => {
                let whole = self.whole(regular);
                whole
                    .or_else(|first| self.pair(prefill, decode).map_err(|second| more_hopeful(first, second)))
            }
            Kinds::Both => match self.pair(prefill, decode) {
                Ok(pair) if self.is_short(&pair) => Ok(self.whole(regular).unwrap_or(pair)),
                Ok(pair) => Ok(pair),
                Err(first) => self.whole(regular).map_err(|second| more_hopeful(first, second)),
            },
        }
    }

    /// Where nobody is there at all, the kind for which there have been workers.
    fn kinds(&self) -> Kinds {
        let scopes = &self.request.scopes;
        let has_members = |scope: Option<ScopeId>| {
            scope
                .and_then(|scope| self.state.fleet.workers_of(scope))
                .is_some_and(|it| !it.members.is_empty())
        };
        let is_pair = scopes.prefill.is_some() || scopes.decode.is_some();
        let is_paired = || has_members(scopes.prefill) && has_members(scopes.decode);
        match (has_members(scopes.regular), is_pair && is_paired()) {
            (true, true) => Kinds::Both,
            (true, false) => Kinds::Whole,
            (false, true) => Kinds::Pair,
            (false, false) if is_pair => Kinds::Pair,
            (false, false) => Kinds::Whole,
        }
    }

    fn prefers_pair(&self) -> bool {
        self.request.prefers_pair.unwrap_or(self.state.config.pair.prefer)
    }

    /// Whether so little of the prompt would have to be computed that a pair is not worth it.
    fn is_short(&self, pair: &PlanDraft<'_, '_, '_>) -> bool {
        let least = self.state.config.pair.least_uncached_tokens;
        let cached = pair.prefill.as_ref().and_then(|draft| draft.cached_tokens(self.seats.prefill.signals));
        self.request.prompt_tokens.saturating_sub(cached.unwrap_or(0)) < least
    }

    fn whole<'d>(&self, slot: &'d mut Slot<'s>) -> Result<PlanDraft<'d, 's, 'r>, NoPlan> {
        let decode = self.leg(Role::Regular, 0, slot).map_err(|why| NoPlan { leg: Leg::Whole, why })?;
        Ok(PlanDraft { prefill: None, decode })
    }

    fn pair<'d>(
        &self,
        prefill: &'d mut Slot<'s>,
        decode: &'d mut Slot<'s>,
    ) -> Result<PlanDraft<'d, 's, 'r>, NoPlan> {
        match (self.leg(Role::Prefill, 0, prefill), self.leg(Role::Decode, 1, decode)) {
            (Ok(prefill), Ok(decode)) => Ok(PlanDraft { prefill: Some(prefill), decode }),
            // Waiting for a decode stream to end is of no use where the decode leg can be had by nobody anyway.
            (Ok(_) | Err(Unroutable::DispatchLimit), Err(why)) => Err(NoPlan { leg: Leg::Decode, why }),
            (Err(why), _) => Err(NoPlan { leg: Leg::Prefill, why }),
        }
    }

    fn leg<'d>(
        &self,
        role: Role,
        ahead: u64,
        slot: &'d mut Slot<'s>,
    ) -> Result<Draft<'d, 's, 'r>, Unroutable> {
        let request = self.legs.get(role).as_ref().ok_or(Unroutable::NoWorkers)?;
        self.state.draft(self.seats, self.now_ns, (request, self.matches.get(role)), ahead, slot)
    }
}

/// Of the reasons why neither kind can serve, the one that is told: that of the preferred kind, unless waiting helps the
/// other one.
fn more_hopeful(first: NoPlan, second: NoPlan) -> NoPlan {
    if second.why == Unroutable::DispatchLimit { second } else { first }
}

#[cfg(test)]
mod tests;
