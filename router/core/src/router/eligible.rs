//! Which workers may have a request, and if none may, why.

use smallvec::SmallVec;

use super::State;
use crate::breaker::Gate;
use crate::fleet::Workers;
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
}

/// Healthy workers that were tried before.
#[derive(Default)]
struct Tried {
    workers: usize,
    /// The breaker of one of them lets requests through.
    one_admits: bool,
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
            prompt_chars: self.matches.prompt_chars(),
            seed: self.state.config.seed,
            bookings: self.state.ledger.bookings(),
        })
    }

    /// The rows that the policy may choose from.
    fn candidates(&self, workers: &Workers) -> Result<Candidates<'a>, Unroutable> {
        let State { config, ledger, .. } = self.state;
        let mut accounts = Cursor::new(ledger.accounts(), Account::worker);
        let mut matched = Cursor::new(self.matches.rows(), |row| row.worker);
        let mut rows = SmallVec::with_capacity(workers.able.len());
        let mut shut = Shut::new();
        let mut tried = Tried::default();
        for &worker in &workers.able {
            let Some(account) = accounts.find(worker) else { continue };
            let gate = account.gate(self.now_ns);
            if self.request.exclude.contains(&worker) {
                tried.workers += 1;
                tried.one_admits |= gate == Gate::Admits;
                continue;
            }
            let matched_chars = matched.find(worker).map_or(0, |row| row.chars);
            let row = Candidate { worker, matched_chars, account };
            match gate {
                Gate::Admits => rows.push(row),
                Gate::ShutUntil(_) | Gate::Probing => shut.push((gate, row)),
            }
        }
        let try_least_bad = config.breaker.is_some_and(|breaker| breaker.try_least_bad);
        if rows.is_empty() && try_least_bad && !tried.one_admits {
            rows.extend(least_bad(&shut));
        }
        Candidates::new(rows).ok_or_else(|| self.refusal(workers.members.len(), &tried, &shut))
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
    let badness = |(gate, row): &(Gate, Candidate<'_>)| (*gate, row.load().requests);
    let least = shut.iter().map(badness).min();
    shut.iter().filter(move |row| Some(badness(row)) == least).map(|(_, row)| *row)
}
