//! What SGLang's front end counts about requests that have ended, in its buckets (`metrics_collector.py`). Health checks
//! are in no figure.

mod answers;
mod transfers;

use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) use answers::{Answers, Counts, Ended};
pub(crate) use transfers::Transfers;

use crate::latency::{Histogram, Traffic};

/// Upper bounds of the time that `/v1/loads` takes.
const LOADS: &[f64] = &[0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0];
/// Upper bounds of the time in a stage: 0.001·1.62ᵏ.
const STAGES: &[f64] = &{
    let mut bounds = [0.001; 30];
    let mut at = 1;
    while at < bounds.len() {
        bounds[at] = bounds[at - 1] * 1.62;
        at += 1;
    }
    bounds
};
/// Most priorities that are told apart; a request of any further one counts as one without.
const MOST_PRIORITIES: usize = 64;

/// All of it.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    /// Requests without a priority; where priorities do not count, all of them.
    pub(crate) plain: Answers,
    /// Where priorities count, requests by theirs.
    pub(crate) by_priority: BTreeMap<i64, Answers>,
    /// From arrival to the queue.
    pub(crate) process: Histogram,
    /// From the queue to the first token.
    pub(crate) prefill: Histogram,
    /// How long answers to `/v1/loads` took, in real time.
    pub(crate) loads: Histogram,
    /// KV that was sent to decode workers.
    pub(crate) transfers: Transfers,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            plain: Answers::default(),
            by_priority: BTreeMap::new(),
            process: Histogram::new(STAGES),
            prefill: Histogram::new(STAGES),
            loads: Histogram::new(LOADS),
            transfers: Transfers::default(),
        }
    }
}

impl Tally {
    /// The figures of requests with this priority, if priorities count.
    pub(crate) fn of(&mut self, priority: Option<i64>) -> &mut Answers {
        let Some(priority) = priority else { return &mut self.plain };
        if self.by_priority.len() >= MOST_PRIORITIES && !self.by_priority.contains_key(&priority) {
            return &mut self.plain;
        }
        self.by_priority.entry(priority).or_default()
    }

    /// A request has got to the queue, so long after its arrival.
    pub(crate) fn queued(&mut self, traffic: Traffic, since_arrival_ns: u64) {
        if traffic != Traffic::Probe {
            self.process.observe(since_arrival_ns, 1);
        }
    }

    /// A request has ended that had its first token so long after it got to the queue.
    pub(crate) fn prefilled(&mut self, traffic: Traffic, prefill_ns: u64) {
        if traffic != Traffic::Probe {
            self.prefill.observe(prefill_ns, 1);
        }
    }

    /// An answer to `/v1/loads` took so long.
    pub(crate) fn told_loads(&mut self, took: Duration) {
        self.loads.observe_value(took.as_secs_f64(), 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_bounded() {
        let mut tally = Tally::default();
        for priority in 0..2 * MOST_PRIORITIES as i64 {
            tally.of(Some(priority)).first_token(Traffic::Whole, 1);
        }
        tally.of(Some(0)).first_token(Traffic::Whole, 1);
        tally.of(None).first_token(Traffic::Whole, 1);
        assert_eq!(tally.by_priority.len(), MOST_PRIORITIES);
        assert_eq!(tally.by_priority[&0].first_token.whole.count(), 2);
        assert_eq!(tally.plain.first_token.whole.count(), MOST_PRIORITIES as u64 + 1);
    }
}
