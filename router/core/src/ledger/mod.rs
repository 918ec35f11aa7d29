//! The ledger: what this router has assigned and not yet seen the end of, in requests and in tokens.
//!
//! Every assignment is booked here, on every path and under every policy, and gives a lease. Ending the lease takes back
//! exactly what it had added, once: a counter cannot drift, because what is subtracted is read from the lease and not from
//! the caller. A worker that is removed keeps its account until its last lease has ended, and the last one on another
//! worker that goes on with what it computed.

mod check;
mod cursor;
pub(crate) mod loads;

use std::collections::{BTreeMap, VecDeque};

use crate::WorkerId;
use crate::breaker::{Breaker, BreakerChange, BreakerConfig, BreakerView, Gate, Pass};
pub(crate) use cursor::Cursor;
use loads::{Feed, ReportedLoad};

/// Most tokens that one lease may count, prompt and output each. No context window comes near it, and sums of any
/// number of leases that fits in memory stay far from overflow, whatever a client or a worker claims.
const MAX_LEASE_TOKENS: u64 = 1 << 32;

/// The booking of one leg on one worker; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// What is in flight: assigned and not finished.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests.
    pub requests: u64,
    /// Prompt tokens of the requests that have no first token yet.
    pub queued_prefill_tokens: u64,
    /// Prompt tokens, and output tokens as far as they were reported.
    pub tokens: u64,
}

/// How a leg ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The worker answered to the end.
    Completed,
    /// The worker turned the request away, or lost it, without a fault of its own. It says nothing about its health.
    Refused,
    /// It failed, or was given up.
    Failed,
    /// The client left.
    ClientGone,
}

impl Outcome {
    /// How a leg ended whose answer of this HTTP status came in full. What a client did wrong (4xx) and a queue that is
    /// full (503) are refusals; other statuses of 500 and above are the worker's failure.
    #[must_use]
    pub fn of_status(status: u16) -> Self {
        match status {
            ..400 => Self::Completed,
            400..500 | 503 => Self::Refused,
            500.. => Self::Failed,
        }
    }
}

/// How many legs of a worker ended in which way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Assigned since the worker was added.
    pub assigned: u64,
    /// Answered to the end.
    pub completed: u64,
    /// Turned away.
    pub refused: u64,
    /// Failed.
    pub failed: u64,
    /// Left by their client.
    pub client_gone: u64,
}

/// What came of ending a lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Finished {
    /// False if it had ended before: then nothing happened.
    pub existed: bool,
    /// How that moved the worker's breaker, if it did.
    pub breaker: Option<BreakerChange>,
}

/// What one lease has added to its worker's account.
#[derive(Debug)]
struct Lease {
    worker: WorkerId,
    prompt_tokens: u64,
    output_tokens: u64,
    /// No first token yet.
    queued: bool,
    /// The index's clock when the prompt was looked up.
    looked: u64,
    /// By which it was let through; absent without a breaker.
    pass: Option<Pass>,
    /// The prefill worker that computed its prompt; absent where its own worker does.
    source: Option<WorkerId>,
}

/// One worker's account.
#[derive(Debug)]
pub(crate) struct Account {
    worker: WorkerId,
    load: Load,
    tally: Tally,
    /// (index's clock at the lookup, lease) of all that have no first token yet, in order. The oldest usually go first, and
    /// there may be very many.
    computing: VecDeque<(u64, LeaseId)>,
    /// What the worker says of itself; absent where no policy wants to know.
    feed: Option<Feed>,
    /// Absent where breakers are off.
    breaker: Option<Breaker>,
    /// Leases on other workers that go on with what this one computed.
    derived: u64,
    /// The worker has left the fleet.
    retired: bool,
}

/// All accounts and leases.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// Ordered by worker.
    accounts: Vec<Account>,
    leases: BTreeMap<LeaseId, Lease>,
    bookings: u64,
    /// How long a load report is believed, in nanoseconds; `None` if nobody wants reports.
    report_ttl_ns: Option<u64>,
    /// `None` if there are no breakers.
    breaker: Option<BreakerConfig>,
}

// === impl Load ===

impl Load {
    /// Takes `amount` from a counter that holds at least as much, as only a lease's own bookings are ever taken.
    fn take(counter: &mut u64, amount: u64) {
        debug_assert!(*counter >= amount, "a lease took {amount} from a counter that holds {counter}");
        *counter = counter.saturating_sub(amount);
    }

    fn add(&mut self, other: Load) {
        self.requests += other.requests;
        self.queued_prefill_tokens += other.queued_prefill_tokens;
        self.tokens += other.tokens;
    }

    fn subtract(&mut self, other: Load) {
        Self::take(&mut self.requests, other.requests);
        Self::take(&mut self.queued_prefill_tokens, other.queued_prefill_tokens);
        Self::take(&mut self.tokens, other.tokens);
    }
}

// === impl Lease ===

impl Lease {
    fn load(&self) -> Load {
        Load {
            requests: 1,
            queued_prefill_tokens: if self.queued { self.prompt_tokens } else { 0 },
            tokens: self.prompt_tokens + self.output_tokens,
        }
    }
}

// === impl Tally ===

impl Tally {
    fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Completed => self.completed += 1,
            Outcome::Refused => self.refused += 1,
            Outcome::Failed => self.failed += 1,
            Outcome::ClientGone => self.client_gone += 1,
        }
    }
}

// === impl Account ===

impl Account {
    pub(crate) fn worker(&self) -> WorkerId {
        self.worker
    }

    pub(crate) fn load(&self) -> Load {
        self.load
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// Legs on other workers that go on with what this one computed and have not ended.
    pub(crate) fn derived(&self) -> u64 {
        self.derived
    }

    /// The worker's last load report brought up to `now_ns`; `None` if there is none or it has expired.
    pub(crate) fn reported(&self, now_ns: u64) -> Option<ReportedLoad> {
        self.feed.as_ref()?.reported(now_ns, self.load)
    }

    /// Whether the worker's breaker lets a request through.
    pub(crate) fn gate(&self, now_ns: u64) -> Gate {
        self.breaker.as_ref().map_or(Gate::Admits, |breaker| breaker.gate(now_ns))
    }

    /// The worker's breaker at `now_ns`.
    pub(crate) fn breaker(&self, now_ns: u64) -> BreakerView {
        self.breaker.map_or_else(BreakerView::default, |breaker| breaker.view(now_ns))
    }

    /// The index's clock at the lookup of the prompt that has been waiting for its first token since the earliest one;
    /// `None` if none waits.
    pub(crate) fn computing_since(&self) -> Option<u64> {
        self.computing.front().map(|first| first.0)
    }

    fn begin(&mut self, looked: u64, id: LeaseId) {
        let at = self.computing.partition_point(|row| *row < (looked, id));
        self.computing.insert(at, (looked, id));
    }

    /// It has its first token, or has ended without one.
    fn computed(&mut self, looked: u64, id: LeaseId) {
        if let Ok(at) = self.computing.binary_search(&(looked, id)) {
            self.computing.remove(at);
        }
    }

    /// Changes the load, and tells those who must know what it was when.
    fn change(&mut self, now_ns: u64, change: impl FnOnce(&mut Load)) {
        change(&mut self.load);
        if let Some(feed) = &mut self.feed {
            feed.changed(now_ns, self.load);
        }
    }
}

// === impl Ledger ===

impl Ledger {
    pub(crate) fn new(report_ttl_ns: Option<u64>, breaker: Option<BreakerConfig>) -> Self {
        Self { accounts: Vec::new(), leases: BTreeMap::new(), bookings: 0, report_ttl_ns, breaker }
    }

    /// Counts on from so many bookings, but never from fewer than there were: leases have their numbers by them.
    pub(crate) fn resume(&mut self, bookings: u64) {
        self.bookings = self.bookings.max(bookings);
    }

    /// Opens the account of a worker; ids come in ascending order.
    pub(crate) fn open(&mut self, worker: WorkerId) {
        debug_assert!(
            self.accounts.last().is_none_or(|last| last.worker < worker),
            "{worker:?} came out of order"
        );
        let feed = self.report_ttl_ns.map(|ttl_ns| Feed::new(ttl_ns, Load::default()));
        self.accounts.push(Account {
            worker,
            load: Load::default(),
            computing: VecDeque::new(),
            tally: Tally::default(),
            feed,
            breaker: self.breaker.map(Breaker::new),
            derived: 0,
            retired: false,
        });
    }

    /// Says how long load reports are believed from now on; `None` if nobody wants them any more. Those that are there stay
    /// if somebody does.
    pub(crate) fn set_report_ttl(&mut self, report_ttl_ns: Option<u64>) {
        self.report_ttl_ns = report_ttl_ns;
        for account in &mut self.accounts {
            let feed = account.feed.take();
            account.feed = report_ttl_ns.map(|ttl_ns| match feed {
                Some(feed) => feed.with_ttl(ttl_ns),
                None => Feed::new(ttl_ns, account.load),
            });
        }
    }

    /// Closes the account of a worker that has left, now or when the last lease ends that it says something of.
    pub(crate) fn retire(&mut self, worker: WorkerId) {
        if let Some(at) = self.place(worker) {
            self.accounts[at].retired = true;
            self.drop_if_done(at);
        }
    }

    /// Books a leg on a worker that has an account.
    ///
    /// `looked` is the index's clock when its prompt was looked up; `source` the worker that computes its prompt, if that
    /// is another one, which has an account as well.
    pub(crate) fn book(
        &mut self,
        now_ns: u64,
        worker: WorkerId,
        prompt_tokens: u64,
        looked: u64,
        source: Option<WorkerId>,
    ) -> LeaseId {
        self.bookings += 1;
        let id = LeaseId(self.bookings);
        let prompt_tokens = prompt_tokens.min(MAX_LEASE_TOKENS);
        let place = self.place(worker);
        debug_assert!(place.is_some(), "{worker:?} is booked without an account");
        if let Some(at) = place {
            let account = &mut self.accounts[at];
            let pass = account.breaker.as_mut().map(|breaker| breaker.book(now_ns));
            let lease = Lease { worker, prompt_tokens, output_tokens: 0, queued: true, looked, pass, source };
            account.tally.assigned += 1;
            account.change(now_ns, |load| load.add(lease.load()));
            account.begin(looked, id);
            self.leases.insert(id, lease);
            if let Some(at) = source.and_then(|source| self.place(source)) {
                self.accounts[at].derived += 1;
            }
        }
        id
    }

    /// The leg's first token came: its prompt is no longer queued. False if the lease has ended.
    pub(crate) fn first_token(&mut self, now_ns: u64, id: LeaseId) -> bool {
        self.revise(now_ns, id, |lease| lease.queued = false)
    }

    /// The leg has given `output_tokens` so far (a smaller number than before is ignored). False if the lease has ended.
    pub(crate) fn progress(&mut self, now_ns: u64, id: LeaseId, output_tokens: u64) -> bool {
        let output_tokens = output_tokens.min(MAX_LEASE_TOKENS);
        self.revise(now_ns, id, |lease| lease.output_tokens = lease.output_tokens.max(output_tokens))
    }

    /// Ends the lease, unless it has ended before.
    pub(crate) fn finish(&mut self, now_ns: u64, id: LeaseId, outcome: Outcome) -> Finished {
        let Some(lease) = self.leases.remove(&id) else { return Finished::default() };
        let mut change = None;
        if let Some(at) = self.place(lease.worker) {
            let account = &mut self.accounts[at];
            account.tally.count(outcome);
            account.change(now_ns, |load| load.subtract(lease.load()));
            account.computed(lease.looked, id);
            if let (Some(breaker), Some(pass)) = (&mut account.breaker, lease.pass) {
                change = breaker.settle(now_ns, pass, outcome);
            }
            self.drop_if_done(at);
        }
        if let Some(at) = lease.source.and_then(|source| self.place(source)) {
            Load::take(&mut self.accounts[at].derived, 1);
            self.drop_if_done(at);
        }
        let worker = lease.worker;
        Finished { existed: true, breaker: change.map(|(from, to)| BreakerChange { worker, from, to }) }
    }

    /// The report that a worker gave, or `None` if it gave none that can be used.
    pub(crate) fn report(&mut self, asked_ns: u64, worker: WorkerId, report: Option<loads::LoadReport>) {
        if let Some(at) = self.place(worker)
            && let Some(feed) = &mut self.accounts[at].feed
        {
            feed.report(asked_ns, report);
        }
    }

    /// All accounts, those of removed workers too, ordered by worker.
    pub(crate) fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    /// The account of a worker; of one that was removed, until its last lease has ended.
    pub(crate) fn account(&self, worker: WorkerId) -> Option<&Account> {
        self.place(worker).map(|at| &self.accounts[at])
    }

    /// How many legs were booked so far.
    pub(crate) fn bookings(&self) -> u64 {
        self.bookings
    }

    /// How many leases have not ended.
    pub(crate) fn open_leases(&self) -> usize {
        self.leases.len()
    }

    /// Changes a lease, and its worker's account by the difference.
    fn revise(&mut self, now_ns: u64, id: LeaseId, change: impl FnOnce(&mut Lease)) -> bool {
        let Some(lease) = self.leases.get_mut(&id) else { return false };
        let (before, was_queued) = (lease.load(), lease.queued);
        change(lease);
        let Lease { worker, queued, looked, .. } = *lease;
        let after = lease.load();
        let has_changed = before != after || was_queued != queued;
        if let Some(at) = self.place(worker).filter(|_| has_changed) {
            let account = &mut self.accounts[at];
            account.change(now_ns, |load| {
                load.subtract(before);
                load.add(after);
            });
            if !queued {
                account.computed(looked, id);
            }
        }
        true
    }

    fn drop_if_done(&mut self, at: usize) {
        let account = &self.accounts[at];
        if account.retired && account.load.requests == 0 && account.derived == 0 {
            self.accounts.remove(at);
        }
    }

    fn place(&self, worker: WorkerId) -> Option<usize> {
        self.accounts.binary_search_by_key(&worker, |account| account.worker).ok()
    }
}

#[cfg(test)]
mod tests;
