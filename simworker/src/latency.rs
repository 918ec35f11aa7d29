//! Latencies of requests as histograms, in engine time: what SGLang's `/metrics` shows under the same names, in its
//! buckets (`metrics_collector.py`).

use crate::quantiles::Quantiles;

/// Upper bounds of the time to the first token, in seconds.
pub(crate) const FIRST_TOKEN: &[f64] =
    &[0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0];
/// Upper bounds of the time between two tokens, and of the time for a token.
pub(crate) const TOKEN: &[f64] = &[
    0.002, 0.004, 0.006, 0.008, 0.010, 0.015, 0.020, 0.025, 0.030, 0.035, 0.040, 0.060, 0.080, 0.100, 0.200,
    0.400, 0.600, 0.800, 1.0, 2.0, 4.0, 6.0, 8.0,
];
/// Upper bounds of the time from arrival to the end.
pub(crate) const WHOLE: &[f64] = &[
    0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0,
    600.0, 1200.0, 1800.0, 2400.0,
];
/// Upper bounds of the time in the queue.
const QUEUE: &[f64] = &[
    0.0, 0.001, 0.005, 0.010, 0.050, 0.100, 0.200, 0.500, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 15.0, 20.0, 30.0,
    40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0, 900.0,
    1000.0, 1200.0, 1400.0, 1600.0, 1800.0, 2000.0, 2500.0, 3000.0,
];

/// What a request is, for the books.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// The worker's own, a health check, or one that its client wants to be counted nowhere. It is in no histogram.
    Probe,
    /// A client's who gets one whole answer.
    Whole,
    /// A client's who gets a stream.
    Streamed,
}

/// Observations by the least bound they do not exceed.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    bounds: &'static [f64],
    /// One more than there are bounds: the last is for what exceeds them all.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// Observes `span_ns` so many times.
    pub(crate) fn observe(&mut self, span_ns: u64, times: u64) {
        self.observe_value(span_ns as f64 / 1e9, times);
    }

    /// Observes a value of the unit of its bounds so many times.
    pub(crate) fn observe_value(&mut self, value: f64, times: u64) {
        self.counts[self.bounds.partition_point(|bound| *bound < value)] += times;
        self.sum += value * times as f64;
    }

    /// Each bound with the number of observations up to it, `+Inf` as the last.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let mut sum = 0;
        bounds.zip(&self.counts).map(move |(bound, count)| {
            sum += count;
            (bound, sum)
        })
    }

    /// The sum of all observations, in the unit of the bounds.
    pub(crate) fn sum(&self) -> f64 {
        self.sum
    }

    /// How many observations there are.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// A histogram for whole answers and one for streams.
#[derive(Debug, Clone)]
pub(crate) struct ByAnswer {
    pub(crate) whole: Histogram,
    pub(crate) streamed: Histogram,
}

impl ByAnswer {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        Self { whole: Histogram::new(bounds), streamed: Histogram::new(bounds) }
    }

    pub(crate) fn observe(&mut self, traffic: Traffic, span_ns: u64) {
        match traffic {
            Traffic::Probe => {}
            Traffic::Whole => self.whole.observe(span_ns, 1),
            Traffic::Streamed => self.streamed.observe(span_ns, 1),
        }
    }
}

/// The latencies of a worker since its start that are of all its requests together.
#[derive(Debug, Clone)]
pub(crate) struct Latencies {
    pub(crate) inter_token: Histogram,
    pub(crate) queue: Histogram,
    /// The first tokens of streams once more, exactly.
    pub(crate) exact_first_token: Quantiles,
    /// All later tokens once more, exactly.
    pub(crate) exact_inter_token: Quantiles,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            inter_token: Histogram::new(TOKEN),
            queue: Histogram::new(QUEUE),
            exact_first_token: Quantiles::default(),
            exact_inter_token: Quantiles::default(),
        }
    }
}

impl Latencies {
    /// A request has its first token, so long after its arrival.
    pub(crate) fn first_token(&mut self, traffic: Traffic, since_arrival_ns: u64) {
        if traffic == Traffic::Streamed {
            self.exact_first_token.observe(since_arrival_ns, 1);
        }
    }

    /// So many requests have got another token, so long after the one before.
    pub(crate) fn tokens(&mut self, gap_ns: u64, tokens: u32) {
        self.inter_token.observe(gap_ns, u64::from(tokens));
        self.exact_inter_token.observe(gap_ns, u64::from(tokens));
    }

    /// A request has ended that was so long in the queue. None for one that was never scheduled.
    pub(crate) fn ended(&mut self, traffic: Traffic, queue_ns: Option<u64>) {
        if let Some(queue_ns) = queue_ns.filter(|_| traffic != Traffic::Probe) {
            self.queue.observe(queue_ns, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let mut histogram = Histogram::new(&[0.0, 0.1, 0.2]);
        for (ns, times) in [(0, 1), (100_000_000, 2), (100_000_001, 3), (9_000_000_000, 1)] {
            histogram.observe(ns, times);
        }
        let cumulative: Vec<(f64, u64)> = histogram.cumulative().collect();
        assert_eq!(cumulative, [(0.0, 1), (0.1, 3), (0.2, 6), (f64::INFINITY, 7)]);
        assert_eq!(histogram.count(), 7);
        assert!((histogram.sum() - 9.5).abs() < 1e-6);
    }

    #[test]
    fn probes_are_not_counted() {
        let mut latencies = Latencies::default();
        for traffic in [Traffic::Probe, Traffic::Whole, Traffic::Streamed, Traffic::Streamed] {
            latencies.first_token(traffic, 5);
            latencies.ended(traffic, Some(3));
        }
        latencies.ended(Traffic::Whole, None);
        assert_eq!((latencies.exact_first_token.count(), latencies.queue.count()), (2, 3));
    }
}
