//! Doubt: does a worker's cache hold what the index believes?
//!
//! An engine that was flushed or restarted behind our back answers health checks as before, and the index goes on sending
//! it the prompts whose prefixes it no longer has. But it also reports how much of each prompt it found in its cache.
//! Where much was predicted and not even the head of that was found, doubt grows; one request that found a head which was
//! believed in before the doubt began takes it away. A head that was credited since then has been computed since, and
//! says nothing about the rest: after a flush each prefix is missed once and found from then on, and its hits must not
//! hide that the others are gone as well. At eight misses the belief is given up.
//!
//! Not judged are requests whose prefix may have been still under computation when they were booked: a burst of one new
//! prefix finds nothing of it although nothing is wrong.

use std::collections::BTreeMap;

use crate::WorkerId;
use crate::index::HEAD_PART;
use crate::request::{Assignment, Grounds};

/// Prompt tokens below which a prediction is not judged: engines cache whole pages, and few tokens may agree by accident.
const JUDGED_TOKENS: u64 = 128;

/// Misses at which the belief is given up.
const VERDICT: u32 = 8;

/// What is doubted of each worker.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    workers: BTreeMap<WorkerId, Doubt>,
}

#[derive(Debug, Default)]
struct Doubt {
    misses: u32,
    /// The index's clock at the lookup of the first of these to be booked.
    since: u64,
    /// Requests up to this booking were predicted from a belief that has been given up.
    settled_bookings: u64,
}

// === impl Doubts ===

impl Doubts {
    /// The belief in this worker's cache has been given up after so many bookings.
    pub(super) fn settle(&mut self, worker: WorkerId, bookings: u64) {
        self.workers.insert(worker, Doubt { settled_bookings: bookings, ..Doubt::default() });
    }

    /// A worker is gone for good.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.workers.remove(&worker);
    }

    /// A request found `cached_tokens` in its worker's cache. True if the belief is to be given up.
    pub(super) fn hear(&mut self, assignment: &Assignment, cached_tokens: u64) -> bool {
        let predicted = assignment.predicted_cached_tokens.unwrap_or(0);
        let Grounds { looked, head_credited, settled } = assignment.grounds;
        if predicted < JUDGED_TOKENS || !settled {
            return false;
        }
        let doubt = self.workers.entry(assignment.worker).or_default();
        if assignment.lease.0 <= doubt.settled_bookings {
            return false;
        }
        if cached_tokens.saturating_mul(HEAD_PART) < predicted {
            // Requests that were booked side by side are heard of in any order.
            doubt.since = if doubt.misses == 0 { looked } else { doubt.since.min(looked) };
            doubt.misses += 1;
        } else if head_credited <= doubt.since {
            doubt.misses = 0;
        }
        doubt.misses >= VERDICT
    }
}

#[cfg(test)]
mod tests;
