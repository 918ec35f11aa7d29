//! Warm-up: a worker whose cache is cold gets its share of the work although nothing leads to it.
//!
//! A policy that follows prefixes sends a request to a worker that knows its prompt, and a worker that knows nothing gets
//! only what nobody knows: under steady traffic, next to nothing, for ever. So for a while after it has begun to take
//! requests, some that others would get are diverted to it, until it has been assigned as many prompt tokens as the mean of
//! the others. What it computes for them it knows from then on, and as one of several owners of these prefixes it keeps
//! its share when the warm-up is over.
//!
//! The others are the *established* workers: the candidates that are not warming themselves. Where all are cold there is
//! nobody to be diverted from, and the policy's own rule for prompts that nobody knows spreads them.
//!
//! What is given up: each diverted request computes a prefix once more. Its worker is spared above the mean load, as cold
//! requests are slow ones.

use std::collections::BTreeMap;

use crate::WorkerId;
use crate::policy::{Candidate, Choice, Decision, WARM_UP};

/// How workers with a cold cache are brought to their share, under policies that follow prefixes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WarmUp {
    /// Nanoseconds that it takes.
    pub duration_ns: u64,
    /// Up to this times the mean prompt tokens of the others are assigned to the worker meanwhile; 0 or more.
    pub share: f64,
}

impl Default for WarmUp {
    /// A minute, and no more than its share.
    fn default() -> Self {
        Self { duration_ns: 60_000_000_000, share: 1.0 }
    }
}

/// Who is warming up.
#[derive(Debug)]
pub(super) struct WarmUps {
    /// `None`: nobody ever.
    config: Option<WarmUp>,
    /// Ordered by worker; some may be over.
    warming: Vec<Warming>,
    /// Requests diverted to each worker so far.
    diverted: BTreeMap<WorkerId, u64>,
}

#[derive(Debug)]
struct Warming {
    worker: WorkerId,
    until_ns: u64,
    /// Prompt tokens that it was assigned since it began.
    own_tokens: f64,
    /// Of what the established workers were assigned meanwhile, the part of one: each request's tokens over their number.
    /// Summed up request by request, so that it stays true when workers come and go.
    mean_tokens: f64,
}

// === impl WarmUps ===

impl WarmUps {
    pub(super) fn new(config: Option<WarmUp>) -> Self {
        Self { config, warming: Vec::new(), diverted: BTreeMap::new() }
    }

    /// A worker begins to take requests with a cold cache.
    pub(super) fn begin(&mut self, now_ns: u64, worker: WorkerId) {
        let Some(config) = self.config else { return };
        let until_ns = now_ns.saturating_add(config.duration_ns);
        let afresh = Warming { worker, until_ns, own_tokens: 0.0, mean_tokens: 0.0 };
        match self.place(worker) {
            Ok(at) => self.warming[at] = afresh,
            Err(at) => self.warming.insert(at, afresh),
        }
    }

    /// A worker takes no requests for now.
    pub(super) fn end(&mut self, worker: WorkerId) {
        if let Ok(at) = self.place(worker) {
            self.warming.remove(at);
        }
    }

    /// Nobody is warming any more.
    pub(super) fn end_all(&mut self) {
        self.warming.clear();
    }

    /// A worker is gone for good.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.end(worker);
        self.diverted.remove(&worker);
    }

    pub(super) fn is_warming(&self, now_ns: u64, worker: WorkerId) -> bool {
        self.place(worker).is_ok_and(|at| self.warming[at].until_ns > now_ns)
    }

    /// Requests diverted to the worker so far.
    pub(super) fn diverted(&self, worker: WorkerId) -> u64 {
        self.diverted.get(&worker).copied().unwrap_or(0)
    }

    /// The policy's choice, or instead of an established worker the warming one that is furthest behind.
    pub(super) fn divert<'d>(&self, decision: &'d Decision<'_>, choice: Choice<'d>) -> Choice<'d> {
        let Some(config) = self.config.filter(|_| !self.warming.is_empty()) else { return choice };
        let lag = |warming: &Warming| config.share * warming.mean_tokens - warming.own_tokens;
        if self.is_warming(decision.now_ns, choice.candidate.worker)
            || self.warming.iter().all(|warming| lag(warming) <= 0.0)
        {
            return choice;
        }
        let cold = || self.cold(decision);
        let established = (decision.candidates.len() - cold().count()) as u64;
        let all_requests: u64 = decision.candidates.iter().map(|row| row.load().requests).sum();
        let their_requests = all_requests - cold().map(|(_, row)| row.load().requests).sum::<u64>();
        let is_spared =
            |row: &Candidate<'_>| row.load().requests.saturating_mul(established) > their_requests;
        let behind = cold().map(|(warming, row)| (lag(warming), row));
        let behind = behind.filter(|(lag, row)| *lag > 0.0 && !is_spared(row));
        // Of equal ones the first.
        let furthest = behind.reduce(|most, next| if next.0 > most.0 { next } else { most });
        furthest.map_or(choice, |(_, row)| Choice::new(row, WARM_UP))
    }

    /// The choice was booked.
    pub(super) fn booked(&mut self, decision: &Decision<'_>, choice: Choice<'_>) {
        let chosen = choice.candidate.worker;
        if choice.reason == WARM_UP {
            *self.diverted.entry(chosen).or_default() += 1;
        }
        self.warming.retain(|warming| warming.until_ns > decision.now_ns);
        let tokens = decision.request.prompt_tokens as f64;
        if let Ok(at) = self.place(chosen) {
            self.warming[at].own_tokens += tokens;
            return;
        }
        let established = decision.candidates.len() - self.cold(decision).count();
        for warming in &mut self.warming {
            if decision.candidates.get(warming.worker).is_some() {
                warming.mean_tokens += tokens / established as f64;
            }
        }
    }

    fn place(&self, worker: WorkerId) -> Result<usize, usize> {
        self.warming.binary_search_by_key(&worker, |warming| warming.worker)
    }

    /// The candidates that are warming.
    fn cold<'s, 'd>(
        &'s self,
        decision: &'d Decision<'_>,
    ) -> impl Iterator<Item = (&'s Warming, &'d Candidate<'d>)> {
        let now = self.warming.iter().filter(|warming| warming.until_ns > decision.now_ns);
        now.filter_map(|warming| Some((warming, decision.candidates.get(warming.worker)? as _)))
    }
}

#[cfg(test)]
mod tests;
