//! Doubt: does a worker's cache hold what the index believes?
//!
//! An engine that was flushed or restarted behind our back answers health checks as before, and the index goes on sending
//! it the prompts whose prefixes it no longer has. But it also reports how much of each prompt it found in its cache.
//! Where much was predicted and next to nothing found, doubt grows, by more where the prefix cannot have been still under
//! computation; one request that found its prefix takes all doubt away. So after eight to sixteen judged requests in a row
//! the belief is given up.

use std::collections::BTreeMap;

use crate::WorkerId;
use crate::request::Assignment;

/// Prompt tokens below which a prediction is not judged: engines cache whole pages, and few tokens may agree by accident.
const JUDGED_TOKENS: u64 = 128;

/// A request takes all doubt away that found at least one in so many of the predicted tokens.
const FOUND_PART: u64 = 10;

/// Doubt at which the belief is given up.
const VERDICT: u32 = 16;

/// What is doubted of each worker.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    workers: BTreeMap<WorkerId, Doubt>,
}

#[derive(Debug, Default)]
struct Doubt {
    level: u32,
    /// Requests up to this booking were predicted from a belief that has been given up.
    settled_bookings: u64,
}

// === impl Doubts ===

impl Doubts {
    /// The belief in this worker's cache has been given up after so many bookings.
    pub(super) fn settle(&mut self, worker: WorkerId, bookings: u64) {
        self.workers.insert(worker, Doubt { level: 0, settled_bookings: bookings });
    }

    /// A worker is gone for good.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.workers.remove(&worker);
    }

    /// A request found `cached_tokens` in its worker's cache. True if the belief is to be given up.
    pub(super) fn hear(&mut self, assignment: &Assignment, cached_tokens: u64) -> bool {
        let predicted = assignment.predicted_cached_tokens.unwrap_or(0);
        let doubt = self.workers.entry(assignment.worker).or_default();
        if predicted < JUDGED_TOKENS || assignment.lease.0 <= doubt.settled_bookings {
            return false;
        }
        doubt.level = match cached_tokens.saturating_mul(FOUND_PART) >= predicted {
            true => 0,
            false if assignment.no_prefill_ahead => doubt.level + 2,
            false => doubt.level + 1,
        };
        doubt.level >= VERDICT
    }
}

#[cfg(test)]
mod tests;
