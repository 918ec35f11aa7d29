//! A leg that is chosen and not yet booked.

use super::eligible::Survey;
use super::seat::Seat;
use super::{Proposal, Router, State};
use crate::fleet::{PerRole, Role};
use crate::index::Matches;
use crate::ledger::Account;
use crate::policy::{Choice, Decision};
use crate::prompt::{CHARS_PER_TOKEN, INDEXED_BYTES, PromptView};
use crate::request::{Assignment, Grounds, RouteRequest, Unroutable};
use crate::{Signals, WorkerId};

/// A choice that borrows what the choice depended on, so nothing can have changed until it is booked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Draft<'d, 's, 'r> {
    decision: &'d Decision<'s>,
    choice: Choice<'d>,
    request: &'r RouteRequest<'r>,
    matches: &'r Matches,
    role: Role,
}

/// A place for what a choice depends on: large, so it stays where it was made.
pub(super) type Slot<'s> = Option<Decision<'s>>;

/// What is left of a draft when the policy has learned of it.
pub(super) struct Settled<'r> {
    request: &'r RouteRequest<'r>,
    matches: &'r Matches,
    role: Role,
    proposal: Proposal,
}

// === impl Draft ===

impl<'r> Draft<'_, '_, 'r> {
    /// What would be booked.
    pub(super) fn proposal(&self) -> Proposal {
        let Choice { candidate, reason } = self.choice;
        Proposal { worker: candidate.worker, reason, matched_chars: candidate.matched_chars }
    }

    /// Prompt tokens that are believed to be in the worker's cache; `None` where the policy holds no such belief.
    pub(super) fn cached_tokens(&self, signals: Signals) -> Option<u64> {
        let chars = self.choice.candidate.matched_chars;
        signals.prefix_index.map(|_| predicted_cached_tokens(self.request, self.matches, chars))
    }

    /// Tells the policy that it is going to be booked.
    pub(super) fn settle(&self, seats: &mut PerRole<Seat>) -> Settled<'r> {
        seats.get_mut(self.role).booked(self.decision, self.choice);
        Settled { request: self.request, matches: self.matches, role: self.role, proposal: self.proposal() }
    }
}

// === impl State ===

impl State {
    /// Chooses a worker for a leg, before which `ahead` others of the same request will be booked. What the choice depends
    /// on is left in `slot`.
    #[inline]
    pub(super) fn draft<'d, 's: 'd, 'r: 's>(
        &'s self,
        seats: &PerRole<Seat>,
        now_ns: u64,
        (request, matches): (&'r RouteRequest<'r>, &'r Matches),
        ahead: u64,
        slot: &'d mut Slot<'s>,
    ) -> Result<Draft<'d, 's, 'r>, Unroutable> {
        let role = self.fleet.role_of(request.scope).ok_or(Unroutable::NoWorkers)?;
        let survey = Survey { state: self, now_ns, request, matches, role, ahead };
        let decision = &*slot.insert(survey.decision()?);
        let choice = seats.get(role).choose(decision).map_err(|why| match why {
            Unroutable::TargetUnavailable if survey.awaits_target() => Unroutable::DispatchLimit,
            why => why,
        })?;
        Ok(Draft { decision, choice, request, matches, role })
    }

    fn grounds(&self, worker: WorkerId, matches: &Matches) -> Grounds {
        let (credited, head_credited) =
            matches.get(worker).map_or((0, 0), |row| (row.credited, row.head_credited));
        let computing_since = self.ledger.account(worker).and_then(Account::computing_since);
        let settled = computing_since.is_none_or(|since| credited <= since);
        Grounds { looked: matches.looked(), head_credited, settled }
    }
}

// === impl Router ===

impl Router {
    /// Books a leg. If it goes on with what another worker computed, `source` is that one.
    #[inline]
    pub(super) fn enter(&mut self, now_ns: u64, leg: Settled<'_>, source: Option<WorkerId>) -> Assignment {
        let Settled { request, matches, role, proposal } = leg;
        let Proposal { worker, reason, matched_chars } = proposal;
        let seat = self.seats.get(role);
        let grounds = self.state.grounds(worker, matches);
        let lease = self.state.ledger.book(now_ns, worker, request.prompt_tokens, grounds.looked, source);
        let prefixes = seat.signals.prefix_index;
        Assignment {
            worker,
            lease,
            policy: seat.policy_id,
            reason,
            matched_chars,
            prompt_chars: matches.prompt_chars(),
            predicted_cached_tokens: prefixes
                .map(|_| predicted_cached_tokens(request, matches, matched_chars)),
            grounds,
        }
    }
}

/// Prompt tokens that a match of `matched_chars` stands for. At least one token of every prompt is computed, since an
/// engine needs it to begin.
fn predicted_cached_tokens(request: &RouteRequest<'_>, matches: &Matches, matched_chars: u64) -> u64 {
    let tokens = match request.prompt {
        PromptView::Tokens(_) | PromptView::Generated(_) => matched_chars / CHARS_PER_TOKEN,
        PromptView::Unreadable => 0,
        PromptView::Text(text) => {
            // The index has looked at the beginning only of a long prompt.
            let looked_at = text.len().min(INDEXED_BYTES) as f64 / text.len().max(1) as f64;
            let share = looked_at * matched_chars as f64 / matches.prompt_chars().max(1) as f64;
            (share * request.prompt_tokens as f64).round() as u64
        }
    };
    tokens.min(request.prompt_tokens.saturating_sub(1))
}
