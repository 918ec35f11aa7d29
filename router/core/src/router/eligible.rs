//! Which workers may have a request, and if none may, why.

use smallvec::SmallVec;

use super::State;
use crate::WorkerId;
use crate::breaker::Gate;
use crate::fleet::Worker;
use crate::index::Matches;
use crate::ledger::{Account, Cursor, Load};
use crate::policy::{Candidate, Candidates, Decision};
use crate::request::{RouteRequest, Unroutable};

/// All workers of a scope that are not about to leave.
pub(super) type Members = SmallVec<[WorkerId; 16]>;

type Shut<'a> = SmallVec<[(Gate, Candidate<'a>); 8]>;

/// What is looked at to decide on a request.
pub(super) struct Survey<'a> {
    pub(super) state: &'a State,
    pub(super) now_ns: u64,
    pub(super) request: &'a RouteRequest<'a>,
    pub(super) matches: &'a Matches,
}

/// Healthy workers that were tried before.
#[derive(Default)]
struct Tried {
    workers: usize,
    /// The breaker of one of them lets requests through.
    one_admits: bool,
}

impl<'a> Survey<'a> {
    /// All that the policy's choice may depend on; `members` takes all workers of the scope that are to stay.
    pub(super) fn decision(&self, members: &'a mut Members) -> Result<Decision<'a>, Unroutable> {
        let candidates = self.candidates(members)?;
        Ok(Decision {
            now_ns: self.now_ns,
            request: self.request,
            candidates,
            members,
            prompt_chars: self.matches.prompt_chars(),
            seed: self.state.config.seed,
            bookings: self.state.ledger.bookings(),
        })
    }

    /// The rows that the policy may choose from.
    fn candidates(&self, members: &mut Members) -> Result<Candidates<'a>, Unroutable> {
        let State { config, fleet, ledger } = self.state;
        let mut accounts = Cursor::new(ledger.accounts(), Account::worker);
        let mut matched = Cursor::new(self.matches.rows(), |row| row.0);
        let mut rows = SmallVec::with_capacity(fleet.workers().len());
        let mut shut = Shut::new();
        let mut tried = Tried::default();
        // One that is draining is as good as gone.
        for worker in fleet.members(self.request.scope).filter(|worker| !worker.draining) {
            members.push(worker.id);
            if !worker.healthy {
                continue;
            }
            let account = accounts.find(worker.id);
            let gate = account.map_or(Gate::Admits, |account| account.gate(self.now_ns));
            if self.request.exclude.contains(&worker.id) {
                tried.workers += 1;
                tried.one_admits |= gate == Gate::Admits;
                continue;
            }
            let row = self.row(worker, account, matched.find(worker.id).map_or(0, |row| row.1));
            match gate {
                Gate::Admits => rows.push(row),
                Gate::ShutUntil(_) | Gate::Probing => shut.push((gate, row)),
            }
        }
        let try_least_bad = config.breaker.is_some_and(|breaker| breaker.try_least_bad);
        if rows.is_empty() && try_least_bad && !tried.one_admits {
            rows.extend(least_bad(&shut));
        }
        Candidates::new(rows).ok_or_else(|| self.refusal(members.len(), &tried, &shut))
    }

    fn row(&self, worker: &'a Worker, account: Option<&Account>, matched_chars: u64) -> Candidate<'a> {
        Candidate {
            worker: worker.id,
            url: &worker.url,
            load: account.map_or_else(Load::default, Account::load),
            reported: account.and_then(|account| account.reported(self.now_ns)),
            matched_chars,
        }
    }

    fn refusal(&self, workers: usize, tried: &Tried, shut: &Shut<'_>) -> Unroutable {
        if workers == 0 {
            return Unroutable::NoWorkers;
        }
        if tried.workers > 0 {
            return Unroutable::AllTried { tried: tried.workers };
        }
        let waits = shut.iter().map(|(gate, _)| match gate {
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
/// if none is open those on trial, which else are spared more than their permits.
fn least_bad<'s, 'a>(shut: &'s Shut<'a>) -> impl Iterator<Item = Candidate<'a>> + use<'s, 'a> {
    let badness = |(gate, row): &(Gate, Candidate<'_>)| (*gate, row.load.requests);
    let least = shut.iter().map(badness).min();
    shut.iter().filter(move |row| Some(badness(row)) == least).map(|(_, row)| *row)
}
