//! Which workers may have a request, and if none may, why.

use smallvec::SmallVec;

use super::State;
use crate::breaker::Gate;
use crate::fleet::{Role, Workers};
use crate::index::Matches;
use crate::ledger::{Account, Cursor};
use crate::policy::{Candidate, Candidates, Decision};
use crate::request::{RouteRequest, Unroutable};

type Shut<'a> = SmallVec<[(Gate, Candidate<'a>); 8]>;

/// What is looked at to decide on a request.
pub(super) struct Survey<'a> {
    pub(super) state: &'a State,
    pub(super) now_ns: u64,
    pub(super) request: &'a RouteRequest<'a>,
    pub(super) matches: &'a Matches,
    /// Of the scope's workers.
    pub(super) role: Role,
    /// Bookings that will have been made before that of this leg.
    pub(super) ahead: u64,
}

/// Healthy workers that were tried before.
#[derive(Default)]
struct Tried {
    workers: usize,
    /// The breaker of one of them lets requests through.
    one_admits: bool,
}

/// What was found out about the workers that may not be chosen.
#[derive(Default)]
struct Passed<'a> {
    tried: Tried,
    /// Their breakers refuse.
    shut: Shut<'a>,
    /// Workers that could have it, had they fewer decode streams.
    full: usize,
}

impl<'a> Survey<'a> {
    /// All that the policy's choice may depend on.
    pub(super) fn decision(&self) -> Result<Decision<'a>, Unroutable> {
        let workers = self.state.fleet.workers_of(self.request.scope).ok_or(Unroutable::NoWorkers)?;
        Ok(Decision {
            now_ns: self.now_ns,
            request: self.request,
            candidates: self.candidates(workers)?,
            members: &workers.members,
            fleet: &self.state.fleet,
            place: *self.state.places.get(self.role),
            prompt_chars: self.matches.prompt_chars(),
            seed: self.state.config.seed,
            bookings: self.state.ledger.bookings() + self.ahead,
        })
    }

    /// The rows that the policy may choose from.
    fn candidates(&self, workers: &Workers) -> Result<Candidates<'a>, Unroutable> {
        let State { config, ledger, .. } = self.state;
        let mut accounts = Cursor::new(ledger.accounts(), Account::worker);
        let mut matched = Cursor::new(self.matches.rows(), |row| row.worker);
        let mut rows = SmallVec::with_capacity(workers.able.len());
        let mut passed = Passed::default();
        let limit = self.limit();
        for &worker in &workers.able {
            let Some(account) = accounts.find(worker) else { continue };
            let gate = account.gate(self.now_ns);
            if self.request.exclude.contains(&worker) {
                passed.tried.workers += 1;
                passed.tried.one_admits |= gate == Gate::Admits;
                continue;
            }
            let matched_chars = matched.find(worker).map_or(0, |row| row.chars);
            let row = Candidate { worker, matched_chars, account };
            match gate {
                Gate::Admits if account.derived() >= limit => passed.full += 1,
                Gate::Admits => rows.push(row),
                Gate::ShutUntil(_) | Gate::Probing => passed.shut.push((gate, row)),
            }
        }
        let try_least_bad = config.breaker.is_some_and(|breaker| breaker.try_least_bad);
        if rows.is_empty() && try_least_bad && !passed.tried.one_admits && passed.full == 0 {
            rows.extend(least_bad(&passed.shut, limit));
        }
        Candidates::new(rows).ok_or_else(|| self.refusal(workers.members.len(), &passed))
    }

    /// Decode streams that a worker may have on what it computed, without one.
    fn limit(&self) -> u64 {
        let limit = self.state.config.decode_dispatch_limit.filter(|_| self.role == Role::Prefill);
        limit.map_or(u64::MAX, u64::from)
    }

    /// Whether the worker that the request asks for could have it, had it fewer decode streams.
    pub(super) fn awaits_target(&self) -> bool {
        let State { fleet, ledger, .. } = self.state;
        let is_full = |account: &Account| {
            account.gate(self.now_ns) == Gate::Admits && account.derived() >= self.limit()
        };
        let target = self.request.keys.target_worker.unwrap_or_default();
        let mut named = fleet.named(target).filter(|worker| worker.role == self.role);
        named.any(|worker| {
            let could = worker.takes_requests() && !self.request.exclude.contains(&worker.id);
            could && ledger.account(worker.id).is_some_and(is_full)
        })
    }

    fn refusal(&self, workers: usize, passed: &Passed<'_>) -> Unroutable {
        if workers == 0 {
            return Unroutable::NoWorkers;
        }
        if passed.full > 0 {
            return Unroutable::DispatchLimit;
        }
        if passed.tried.workers > 0 {
            return Unroutable::AllTried { tried: passed.tried.workers };
        }
        let waits = passed.shut.iter().map(|(gate, _)| match gate {
            Gate::ShutUntil(until_ns) => until_ns.saturating_sub(self.now_ns),
            Gate::Admits | Gate::Probing => 0,
        });
        match waits.min() {
            Some(retry_after_ns) => Unroutable::BreakersOpen { retry_after_ns },
            None => Unroutable::NoneHealthy { workers },
        }
    }
}

/// Of the workers whose breakers refuse, the open ones that will first be tried again, and of these the least loaded. Only
/// if none is open those on trial, which else are spared more than their permits. None of those that have reached their limit
/// of decode streams.
fn least_bad<'s, 'a>(shut: &'s Shut<'a>, limit: u64) -> impl Iterator<Item = Candidate<'a>> + use<'s, 'a> {
    let badness = |(gate, row): &(Gate, Candidate<'_>)| (*gate, row.load().requests);
    let open = || shut.iter().filter(move |(_, row)| row.account.derived() < limit);
    let least = open().map(badness).min();
    open().filter(move |row| Some(badness(row)) == least).map(|(_, row)| *row)
}
