//! Admission: how many requests are worked on at a time, and how fast new ones are let in.
//!
//! A request needs a permit, which it holds until it is released, and a token, which it uses up. What gets neither waits in
//! a queue of bounded length for a bounded time, and beyond that is turned away at once. The queue is strictly first in,
//! first out: a newcomer never overtakes it, not even when it could be admitted.
//!
//! A request that was admitted may lay its permit by while it has no use for it (its body comes slowly), and resume later.
//! It has used up its token and waited its turn: it needs a permit only, comes before those who wait to be admitted, and is
//! never turned away. How many may have laid theirs by is the caller's matter.

mod bucket;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use bucket::Bucket;

/// Bounds of what a client is told to wait, in nanoseconds: one that comes again sooner is a nuisance, and what is said of
/// times further away is a guess.
const LEAST_RETRY_AFTER_NS: u64 = 1_000_000_000;
const MOST_RETRY_AFTER_NS: u64 = 60_000_000_000;

/// Weight of the newest in the mean time between two releases.
const WEIGHT: f64 = 1.0 / 8.0;

/// How many requests are let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionConfig {
    /// Most requests at a time; `None` is without limit.
    pub max_concurrent: Option<NonZeroU32>,
    /// Most requests that wait.
    pub queue_size: u32,
    /// Nanoseconds that a request waits at most.
    pub queue_timeout_ns: u64,
    /// Requests per second, of which as many may come at once as come in one second; `None` is without limit.
    pub tokens_per_second: Option<NonZeroU32>,
}

/// A place in the queue; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// What becomes of a request that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It holds a permit, and must give it back with [`Admission::release`].
    Admitted,
    /// It waits until [`Admission::settle`] names its ticket, or [`Admission::abandon`].
    Queued(Ticket),
    /// It is turned away.
    Full {
        /// Nanoseconds after which there is a prospect of getting in; 1 to 60 s.
        retry_after_ns: u64,
    },
}

/// Permits, tokens and the queue for both.
#[derive(Debug)]
pub struct Admission {
    config: AdmissionConfig,
    bucket: Option<Bucket>,
    in_use: u32,
    /// When each waiting request has waited long enough, in the order of arrival.
    queue: Line,
    /// The same for those that resume.
    resuming: Line,
    tickets: u64,
    /// The latest time that was heard of.
    now_ns: u64,
    pace: Pace,
}

/// Who waits, until when.
type Line = BTreeMap<Ticket, u64>;

/// How fast permits come back while all are wanted.
#[derive(Debug, Default)]
struct Pace {
    /// Mean time between two releases.
    mean_ns: Option<f64>,
    /// Since when the next one is waited for; `None` while permits are free.
    since_ns: Option<u64>,
}

// === impl AdmissionConfig ===

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self {
            max_concurrent: None,
            queue_size: 100,
            queue_timeout_ns: 60_000_000_000,
            tokens_per_second: None,
        }
    }
}

// === impl Admission ===

impl Admission {
    /// All permits free, and as many tokens as there can be.
    #[must_use]
    pub fn new(config: AdmissionConfig) -> Self {
        let bucket = config.tokens_per_second.map(Bucket::full);
        Self {
            config,
            bucket,
            in_use: 0,
            queue: Line::new(),
            resuming: Line::new(),
            tickets: 0,
            now_ns: 0,
            pace: Pace::default(),
        }
    }

    /// Whether every request is admitted at once.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.config.max_concurrent.is_none() && self.bucket.is_none()
    }

    /// A request has come.
    pub fn arrive(&mut self, now_ns: u64) -> Arrival {
        self.advance(now_ns);
        if self.queue.is_empty() && self.admit() {
            return Arrival::Admitted;
        }
        if self.queue.len() >= self.config.queue_size as usize {
            return Arrival::Full { retry_after_ns: self.retry_after_ns(now_ns) };
        }
        let (ticket, until_ns) = self.ticket();
        self.queue.insert(ticket, until_ns);
        Arrival::Queued(ticket)
    }

    /// A request that was admitted and has laid its permit by, which is [`Admission::release`], wants one again.
    pub fn resume(&mut self, now_ns: u64) -> Arrival {
        self.advance(now_ns);
        if self.resuming.is_empty() && self.has_permit() {
            self.take_permit();
            return Arrival::Admitted;
        }
        let (ticket, until_ns) = self.ticket();
        self.resuming.insert(ticket, until_ns);
        Arrival::Queued(ticket)
    }

    /// A request that was admitted is over. [`Admission::settle`] then says who gets its permit.
    pub fn release(&mut self, now_ns: u64) {
        self.advance(now_ns);
        debug_assert!(self.in_use > 0, "a permit came back that nobody had");
        self.in_use = self.in_use.saturating_sub(1);
        self.pace.released(self.now_ns, self.waiting() > 0);
    }

    /// A waiting request does not want to any more. False if it does not wait: if it was admitted in the meantime, it holds
    /// a permit.
    pub fn abandon(&mut self, now_ns: u64, ticket: Ticket) -> bool {
        self.advance(now_ns);
        self.resuming.remove(&ticket).or_else(|| self.queue.remove(&ticket)).is_some()
    }

    /// Appends the waiting requests that are admitted now, those that resume first, else in the order in which they came, and
    /// those whose time is over.
    /// Due after every release and abandoning, and at [`Admission::next_deadline`].
    pub fn settle(&mut self, now_ns: u64, admitted: &mut Vec<Ticket>, expired: &mut Vec<Ticket>) {
        self.advance(now_ns);
        while let Some((&ticket, &until_ns)) = self.resuming.first_key_value() {
            if until_ns <= self.now_ns {
                expired.push(ticket);
            } else if self.has_permit() {
                self.take_permit();
                admitted.push(ticket);
            } else {
                break;
            }
            self.resuming.remove(&ticket);
        }
        while let Some((&ticket, &until_ns)) = self.queue.first_key_value() {
            if until_ns <= self.now_ns {
                expired.push(ticket);
            } else if self.admit() {
                admitted.push(ticket);
            } else {
                break;
            }
            self.queue.remove(&ticket);
        }
    }

    /// When [`Admission::settle`] has something to do, if nothing is released before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        let token_ns = || self.bucket.as_ref().map_or(self.now_ns, Bucket::next_token_ns);
        let resumed_ns = self.resuming.first_key_value().map(|(_, until_ns)| *until_ns);
        let queue = self.queue.first_key_value();
        let admitted_ns =
            queue.map(|(_, until_ns)| if self.has_permit() { token_ns().min(*until_ns) } else { *until_ns });
        resumed_ns.into_iter().chain(admitted_ns).min()
    }

    /// How many requests wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len() + self.resuming.len()
    }

    /// How many permits are held.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.in_use
    }

    /// Nanoseconds after which a request that comes now could get in, as an estimate: one more than those who wait have to
    /// be admitted, each of them when a permit comes back or a token is due, whichever takes longer. 1 to 60 s.
    #[must_use]
    pub fn retry_after_ns(&self, now_ns: u64) -> u64 {
        let permit_ns = self.pace.interval_ns(now_ns.max(self.now_ns));
        let token_ns = self.bucket.as_ref().map_or(0.0, Bucket::interval_ns);
        let turns = (self.waiting() + 1) as f64;
        ((turns * permit_ns.max(token_ns)) as u64).clamp(LEAST_RETRY_AFTER_NS, MOST_RETRY_AFTER_NS)
    }

    /// Takes a permit and a token, if both are there.
    fn admit(&mut self) -> bool {
        let admitted = self.has_permit() && self.bucket.as_mut().is_none_or(Bucket::take);
        if admitted {
            self.take_permit();
        }
        admitted
    }

    fn take_permit(&mut self) {
        self.in_use += 1;
        if !self.has_permit() {
            self.pace.exhausted(self.now_ns);
        }
    }

    /// A new ticket, and until when it is good.
    fn ticket(&mut self) -> (Ticket, u64) {
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        (ticket, self.now_ns.saturating_add(self.config.queue_timeout_ns))
    }

    fn has_permit(&self) -> bool {
        self.config.max_concurrent.is_none_or(|most| self.in_use < most.get())
    }

    /// Of clocks read on several threads one may be a little behind: that counts as now.
    fn advance(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        if let Some(bucket) = &mut self.bucket {
            bucket.fill(self.now_ns);
        }
    }
}

// === impl Pace ===

impl Pace {
    /// The last permit was taken.
    fn exhausted(&mut self, now_ns: u64) {
        self.since_ns.get_or_insert(now_ns);
    }

    /// A permit came back; `wanted`: somebody waits for one.
    fn released(&mut self, now_ns: u64, wanted: bool) {
        if let Some(since_ns) = self.since_ns {
            let interval_ns = now_ns.saturating_sub(since_ns) as f64;
            let mean_ns = self.mean_ns.get_or_insert(interval_ns);
            *mean_ns += WEIGHT * (interval_ns - *mean_ns);
        }
        self.since_ns = wanted.then_some(now_ns);
    }

    /// The mean time between two releases, or how long the next one has been waited for if that is longer.
    fn interval_ns(&self, now_ns: u64) -> f64 {
        let waited_ns = self.since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        self.mean_ns.unwrap_or(0.0).max(waited_ns as f64)
    }
}

#[cfg(test)]
mod tests;
