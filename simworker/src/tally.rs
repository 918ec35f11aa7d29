//! What SGLang's front end counts about requests that have ended, in its buckets (`metrics_collector.py`). Health checks
//! are in no figure.

use std::time::Duration;

use crate::latency::{ByAnswer, Histogram, Traffic};

/// Upper bounds of lengths, in tokens.
const LENGTHS: &[f64] = &[
    1e2, 3e2, 5e2, 7e2, 1e3, 1.5e3, 2e3, 3e3, 4e3, 5e3, 6e3, 7e3, 8e3, 9e3, 1e4, 1.25e4, 1.5e4, 1.75e4, 2e4,
    2.25e4, 2.5e4, 2.75e4, 3e4, 3.5e4, 4e4, 6e4, 8e4, 1e5, 2e5, 3e5, 4e5, 6e5, 8e5, 1e6, 1.1e6,
];
/// Upper bounds of the time for a token.
const PER_TOKEN: &[f64] = &[
    0.002, 0.004, 0.006, 0.008, 0.010, 0.015, 0.020, 0.025, 0.030, 0.035, 0.040, 0.060, 0.080, 0.100, 0.200,
    0.400, 0.600, 0.800, 1.0, 2.0, 4.0, 6.0, 8.0,
];
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

/// A request that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) traffic: Traffic,
    pub(crate) prompt_tokens: u32,
    pub(crate) cached_tokens: u32,
    pub(crate) output_tokens: u32,
    /// From its first token to its end, if it had one.
    pub(crate) decode_ns: Option<u64>,
    /// From the queue to its first token, if it had one.
    pub(crate) prefill_ns: Option<u64>,
}

/// Sums over requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) prompt_tokens: u64,
    pub(crate) generated_tokens: u64,
}

/// All of it.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    pub(crate) whole: Counts,
    pub(crate) streamed: Counts,
    pub(crate) prompt: Histogram,
    pub(crate) uncached: Histogram,
    pub(crate) generated: Histogram,
    pub(crate) per_token: ByAnswer,
    /// From arrival to the queue.
    pub(crate) process: Histogram,
    /// From the queue to the first token.
    pub(crate) prefill: Histogram,
    /// How long answers to `/v1/loads` took, in real time.
    pub(crate) loads: Histogram,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            whole: Counts::default(),
            streamed: Counts::default(),
            prompt: Histogram::new(LENGTHS),
            uncached: Histogram::new(LENGTHS),
            generated: Histogram::new(LENGTHS),
            per_token: ByAnswer::new(PER_TOKEN),
            process: Histogram::new(STAGES),
            prefill: Histogram::new(STAGES),
            loads: Histogram::new(LOADS),
        }
    }
}

impl Tally {
    /// A request has ended.
    pub(crate) fn ended(&mut self, ended: &Ended) {
        let counts = match ended.traffic {
            Traffic::Probe => return,
            Traffic::Whole => &mut self.whole,
            Traffic::Streamed => &mut self.streamed,
        };
        let Ended { traffic, prompt_tokens, cached_tokens, output_tokens, decode_ns, prefill_ns } = *ended;
        counts.requests += 1;
        counts.prompt_tokens += u64::from(prompt_tokens);
        counts.generated_tokens += u64::from(output_tokens);
        self.prompt.observe_value(f64::from(prompt_tokens), 1);
        self.uncached.observe_value(f64::from(prompt_tokens.saturating_sub(cached_tokens)), 1);
        self.generated.observe_value(f64::from(output_tokens), 1);
        if let Some(ns) = decode_ns.filter(|_| output_tokens > 1) {
            self.per_token.observe(traffic, ns / u64::from(output_tokens - 1));
        }
        if let Some(ns) = prefill_ns {
            self.prefill.observe(ns, 1);
        }
    }

    /// A request has got to the queue, so long after its arrival.
    pub(crate) fn queued(&mut self, traffic: Traffic, since_arrival_ns: u64) {
        if traffic != Traffic::Probe {
            self.process.observe(since_arrival_ns, 1);
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
    fn requests_are_counted_by_their_kind_and_probes_are_not() {
        let mut tally = Tally::default();
        let ended = Ended {
            traffic: Traffic::Whole,
            prompt_tokens: 400,
            cached_tokens: 350,
            output_tokens: 11,
            decode_ns: Some(50_000_000),
            prefill_ns: Some(1_000_000),
        };
        tally.ended(&ended);
        tally.ended(&Ended { traffic: Traffic::Streamed, output_tokens: 1, ..ended });
        tally.ended(&Ended { traffic: Traffic::Probe, ..ended });
        assert_eq!(tally.whole, Counts { requests: 1, prompt_tokens: 400, generated_tokens: 11 });
        assert_eq!(tally.streamed, Counts { requests: 1, prompt_tokens: 400, generated_tokens: 1 });
        let up_to = |histogram: &Histogram, bound: f64| {
            histogram.cumulative().find(|(known, _)| *known >= bound).map(|(_, count)| count)
        };
        assert_eq!((up_to(&tally.prompt, 300.0), up_to(&tally.prompt, 500.0)), (Some(0), Some(2)));
        assert_eq!(up_to(&tally.uncached, 100.0), Some(2));
        assert_eq!((tally.per_token.whole.count(), tally.per_token.streamed.count()), (1, 0));
        assert_eq!(up_to(&tally.per_token.whole, 0.006), Some(1), "5 ms each");
        assert_eq!(up_to(&tally.prefill, 0.001), Some(2));
    }
}
