//! What workers say of their own load, brought up to date by what the ledger knows.
//!
//! A report is old when it arrives and older when it is used, and all routing between two polls would follow it to the
//! same worker. So it is kept as a difference from the router's own books: at the moment of asking the worker had
//! `reported`, and the books `own`; now it has `own now + (reported − own then)`. Nothing is counted twice, since a
//! request that was booked before the asking is in both and one booked after it in neither.
//!
//! A worker whose report is missing, refused, unbelievable or too old is *unknown*, which is neither zero nor worst.

use std::collections::VecDeque;

use super::Load;

/// Changes of load that are kept per worker to look up what the books said at the moment of asking. Above this many within
/// the life of a report the oldest are forgotten, and a report from before them is corrected a little less.
const HISTORY_LEN: usize = 8192;

/// More tokens than this no request holds; the largest context windows have 10 million.
const MOST_TOKENS_PER_REQUEST: u64 = 1 << 24;

/// More requests than this no worker holds.
const MOST_REQUESTS: u64 = 1 << 20;

/// Requests that may hold tokens while they are neither running nor waiting: those in the prefill batch.
const UNCOUNTED_REQUESTS: u64 = 16;

/// One worker's answer to the question for its load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadReport {
    /// Tokens in the KV cache that are in use, and those of queued requests.
    pub total_tokens: u64,
    /// Requests in the running batch.
    pub running: u64,
    /// Requests in the queue.
    pub waiting: u64,
    /// Used share of the KV cache, 0 to 1.
    pub token_usage: f64,
}

/// A worker's load by its own account, brought up to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportedLoad {
    /// Requests running and waiting.
    pub requests: u64,
    /// Tokens in use and queued.
    pub tokens: u64,
}

/// The last report of one worker, and the books since the earliest moment for which one may still come.
#[derive(Debug)]
pub(super) struct Feed {
    ttl_ns: u64,
    last: Option<Last>,
    /// (since when, load), ordered by time.
    history: VecDeque<(u64, Load)>,
    /// The load before the first entry of the history; the load now if that is empty.
    base: Load,
}

/// A report as differences from the books.
#[derive(Debug, Clone, Copy)]
struct Last {
    asked_ns: u64,
    /// `None`: asked, and not known.
    ahead: Option<Ahead>,
}

/// How much more (or less, if negative) the worker had than the books, when it was asked.
#[derive(Debug, Clone, Copy)]
struct Ahead {
    requests: i64,
    tokens: i64,
}

// === impl LoadReport ===

impl LoadReport {
    /// Whether a worker can be in this state. What cannot be is garbage, and garbage must neither draw traffic nor repel it.
    #[must_use]
    pub fn is_plausible(&self) -> bool {
        let requests = self.running.saturating_add(self.waiting);
        let most_tokens = (requests.min(MOST_REQUESTS) + UNCOUNTED_REQUESTS) * MOST_TOKENS_PER_REQUEST;
        requests <= MOST_REQUESTS
            && self.total_tokens <= most_tokens
            && self.token_usage.is_finite()
            && self.token_usage >= 0.0
    }
}

// === impl Feed ===

impl Feed {
    /// The feed of a worker on which `load` is booked.
    pub(super) fn new(ttl_ns: u64, load: Load) -> Self {
        Self { ttl_ns, last: None, history: VecDeque::new(), base: load }
    }

    pub(super) fn with_ttl(self, ttl_ns: u64) -> Self {
        Self { ttl_ns, ..self }
    }

    /// The books say `load` from now on.
    pub(super) fn changed(&mut self, now_ns: u64, load: Load) {
        self.forget(now_ns);
        match self.history.back_mut() {
            // Of clocks read on several threads one may be a little behind.
            Some((since_ns, last)) if *since_ns >= now_ns => *last = load,
            _ => self.history.push_back((now_ns, load)),
        }
    }

    /// Takes a report that was asked for at `asked_ns`, unless a later one is there.
    pub(super) fn report(&mut self, asked_ns: u64, report: Option<LoadReport>) {
        if self.last.is_some_and(|last| last.asked_ns > asked_ns) {
            return;
        }
        let ahead = report.filter(LoadReport::is_plausible).map(|report| {
            let own = self.before(asked_ns);
            Ahead {
                requests: signed(report.running + report.waiting) - signed(own.requests),
                tokens: signed(report.total_tokens) - signed(own.tokens),
            }
        });
        self.last = Some(Last { asked_ns, ahead });
    }

    /// The last report, corrected; `own` is what the books say now.
    pub(super) fn reported(&self, now_ns: u64, own: Load) -> Option<ReportedLoad> {
        let last = self.last.filter(|last| now_ns.saturating_sub(last.asked_ns) <= self.ttl_ns)?;
        let ahead = last.ahead?;
        Some(ReportedLoad {
            // What is in flight from here is there or about to be: engines count a request in prefill neither as running nor
            // as waiting. For tokens there is no such floor, as requests share those of a common prefix.
            requests: unsigned(signed(own.requests) + ahead.requests).max(own.requests),
            tokens: unsigned(signed(own.tokens) + ahead.tokens),
        })
    }

    /// What the books said just before `at_ns`. What was booked in that very nanosecond had not arrived at the worker.
    fn before(&self, at_ns: u64) -> Load {
        let after = self.history.partition_point(|(since_ns, _)| *since_ns < at_ns);
        after.checked_sub(1).map_or(self.base, |at| self.history[at].1)
    }

    /// Drops changes that no report can ask about any more: one asked for before them would be expired.
    fn forget(&mut self, now_ns: u64) {
        let oldest_ns = now_ns.saturating_sub(self.ttl_ns);
        while let Some((since_ns, load)) = self.history.front()
            && (*since_ns < oldest_ns || self.history.len() >= HISTORY_LEN)
        {
            self.base = *load;
            self.history.pop_front();
        }
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
