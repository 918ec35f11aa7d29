//! The workers of a router: how they come and go, and what is told of them.

use super::seat::Seat;
use super::{Router, State};
use crate::WorkerId;
use crate::breaker::BreakerView;
use crate::fleet::{Role, Worker, WorkerSpec};
use crate::ledger::{Account, Cursor, Load, Tally};
use crate::request::Assignment;

/// A worker and what is in flight on it.
#[derive(Debug, Clone, Copy)]
pub struct WorkerView<'a> {
    /// The worker.
    pub worker: &'a Worker,
    /// What this router has in flight on it.
    pub load: Load,
    /// How its legs ended so far.
    pub tally: Tally,
    /// Its breaker.
    pub breaker: BreakerView,
    /// Whether its cache is cold and requests of others are diverted to it; see [`crate::WarmUp`].
    pub warming: bool,
    /// How many requests were diverted to it so far.
    pub diverted: u64,
    /// Decode streams in flight on other workers that go on with what it computed.
    pub derived: u64,
    /// How many routing keys stick to it; `None` under a policy that remembers none.
    pub routing_keys: Option<u64>,
}

impl Router {
    /// Adds a worker behind all others, healthy. Its id is its place in the order of adding, from 0.
    pub fn add_worker(&mut self, now_ns: u64, spec: WorkerSpec) -> WorkerId {
        let id = self.join(spec, true);
        self.cache_is_cold(now_ns, id);
        id
    }

    /// As [`Router::add_worker`], but unhealthy: one that is to have requests as soon as [`Router::set_healthy`] tells that
    /// it has answered.
    pub fn register_worker(&mut self, _now_ns: u64, spec: WorkerSpec) -> WorkerId {
        self.join(spec, false)
    }

    /// Takes a worker out of the fleet; what is in flight on it stays booked until it ends. False if there is no such one.
    pub fn remove_worker(&mut self, _now_ns: u64, id: WorkerId) -> bool {
        let Some(role) = self.role(id) else { return false };
        self.state.fleet.remove(id);
        self.state.ledger.retire(id);
        self.leave_seat(role, id);
        self.doubts.forget(id);
        true
    }

    /// Gives a worker no more requests, whatever sticks to it; what is in flight on it goes on. Final: a worker that is to
    /// have requests again is removed and added anew. Whether that is news.
    pub fn set_draining(&mut self, _now_ns: u64, id: WorkerId) -> bool {
        let changed = self.state.fleet.set_draining(id);
        if let Some(role) = self.role(id).filter(|_| changed) {
            self.seats.get_mut(role).warm_ups.end(id);
        }
        changed
    }

    /// How many legs are in flight on a worker, also on one that was removed.
    #[must_use]
    pub fn leases_of(&self, id: WorkerId) -> usize {
        self.state.ledger.account(id).map_or(0, |account| account.load().requests as usize)
    }

    /// Says whether a worker is well enough for requests; whether that is news. Its breaker is a fact of its own, and is
    /// not moved. A worker that comes back after it was down is taken to have lost its cache: the caller should then clear
    /// it in the prefix index.
    pub fn set_healthy(&mut self, now_ns: u64, id: WorkerId, healthy: bool) -> bool {
        let changed = self.state.fleet.set_healthy(id, healthy);
        if changed {
            self.state.ledger.report(now_ns, id, None);
            self.cache_lost(now_ns, id);
        }
        changed
    }

    /// A worker's cache was lost: it was flushed, or restarted. The caller should clear it in the prefix index.
    pub fn cache_lost(&mut self, now_ns: u64, id: WorkerId) {
        if self.state.fleet.get(id).is_some() {
            self.doubts.settle(id, self.state.ledger.bookings());
            self.cache_is_cold(now_ns, id);
        }
    }

    /// A request's worker reports that it found `cached_tokens` of its prompt in its cache. True if too many in a row have
    /// found too little of what was predicted: the cache has been lost, as in [`Router::cache_lost`], and the caller should
    /// clear the worker in the prefix index.
    ///
    /// Judged are requests of whose prompt at least 128 tokens were believed to be cached, under the belief of now and on
    /// settled [`Grounds`](crate::Grounds). Eight that found less than a tenth of them are too many, unless another one
    /// in between found what was believed before the first of these. A worker whose answers report nothing is never
    /// asked about here, and never doubted. The answer of a pair tells what its prefill worker found: it is told of with
    /// the assignment of that leg, and decode workers are never doubted.
    ///
    /// It can be wrong where an engine has evicted much: with half of all judged requests missing by chance, eight in a
    /// row come once in a few hundred. What is lost then is one computation of each prefix at another worker. A worker
    /// whose cache is off or too small for what it is sent is found guilty again and again, and that is the truth.
    pub fn told_cached(&mut self, now_ns: u64, assignment: &Assignment, cached_tokens: u64) -> bool {
        // What a decode worker tells was found in another one's cache.
        let is_own = self.role(assignment.worker).is_some_and(|role| role != Role::Decode);
        let is_lost = is_own && self.doubts.hear(assignment, cached_tokens);
        if is_lost {
            self.cache_lost(now_ns, assignment.worker);
        }
        is_lost
    }

    /// Says which model a worker serves, as far as that was found out; whether that is news. It changes which scopes the
    /// worker belongs to.
    pub fn set_model(&mut self, id: WorkerId, model: Option<String>) -> bool {
        self.state.fleet.set_model(id, model)
    }

    /// The worker of that id, if it has not been removed.
    #[must_use]
    pub fn worker(&self, id: WorkerId) -> Option<&Worker> {
        self.state.fleet.get(id)
    }

    /// Says what a worker does, as far as that was found out; whether that is news. It moves to the scopes and the policy
    /// of that role; its breaker, its books and what is in flight on it stay.
    pub fn set_role(&mut self, now_ns: u64, id: WorkerId, role: Role) -> bool {
        let Some(before) = self.role(id).filter(|before| *before != role) else { return false };
        self.state.fleet.set_role(id, role);
        self.leave_seat(before, id);
        if let Some(worker) = self.state.fleet.get(id) {
            self.seats.get_mut(role).policy.worker_added(worker);
        }
        self.cache_is_cold(now_ns, id);
        true
    }

    /// The fleet at `now_ns`, in the order of adding.
    pub fn workers(&self, now_ns: u64) -> impl Iterator<Item = WorkerView<'_>> {
        let mut accounts = Cursor::new(self.state.ledger.accounts(), Account::worker);
        self.state.fleet.workers().iter().map(move |worker| {
            let account = accounts.find(worker.id);
            let Seat { policy, warm_ups, .. } = self.seats.get(worker.role);
            WorkerView {
                worker,
                load: account.map_or_else(Load::default, Account::load),
                tally: account.map_or_else(Tally::default, Account::tally),
                breaker: account.map_or_else(BreakerView::default, |account| account.breaker(now_ns)),
                warming: warm_ups.is_warming(now_ns, worker.id),
                diverted: warm_ups.diverted(worker.id),
                derived: account.map_or(0, Account::derived),
                routing_keys: policy.remembered_keys().map(|_| policy.keys_of(worker.id)),
            }
        })
    }

    fn join(&mut self, spec: WorkerSpec, healthy: bool) -> WorkerId {
        let worker = self.state.fleet.add(spec, healthy);
        self.state.ledger.open(worker.id);
        self.seats.get_mut(worker.role).policy.worker_added(worker);
        worker.id
    }

    fn role(&self, id: WorkerId) -> Option<Role> {
        self.state.fleet.get(id).map(|worker| worker.role)
    }

    /// A worker is none of a role any more.
    fn leave_seat(&mut self, role: Role, id: WorkerId) {
        let seat = self.seats.get_mut(role);
        seat.policy.worker_removed(id);
        seat.warm_ups.forget(id);
    }

    /// A worker with a cold cache warms up from now on, if it takes requests and others of its role have worked. Under a
    /// policy that follows no prefixes nothing leads past it.
    fn cache_is_cold(&mut self, now_ns: u64, id: WorkerId) {
        let Some(worker) = self.state.fleet.get(id) else { return };
        let seat = self.seats.get_mut(worker.role);
        let follows_prefixes = seat.signals.prefix_index.is_some();
        if worker.takes_requests() && follows_prefixes && self.state.others_have_worked(worker) {
            seat.warm_ups.begin(now_ns, id);
        } else {
            seat.warm_ups.end(id);
        }
    }
}

impl State {
    fn others_have_worked(&self, worker: &Worker) -> bool {
        let mut accounts = Cursor::new(self.ledger.accounts(), Account::worker);
        self.fleet.workers().iter().any(|other| {
            let has_worked = accounts.find(other.id).is_some_and(|account| account.tally().assigned > 0);
            has_worked && other.role == worker.role && other.id != worker.id
        })
    }
}
