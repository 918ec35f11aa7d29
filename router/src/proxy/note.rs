//! What is written down about a request when it ends.

use http::StatusCode;
use router_core::{Assignment, Outcome};

use super::meter::Counts;
use crate::shared::Shared;

/// The facts of one request that its end needs.
#[derive(Debug)]
pub(crate) struct Note {
    endpoint: usize,
    arrived_ns: u64,
    predicted: Option<u64>,
    first_token_ns: Option<u64>,
}

impl Note {
    pub(crate) fn new(endpoint: usize, arrived_ns: u64, assignment: &Assignment) -> Self {
        Self { endpoint, arrived_ns, predicted: assignment.predicted_cached_tokens, first_token_ns: None }
    }

    pub(crate) fn first_token(&mut self, now_ns: u64) {
        self.first_token_ns = Some(now_ns);
    }

    /// The answer is over. Refusals of the worker and broken answers have no place in the histograms.
    pub(crate) fn finish(
        self,
        shared: &Shared,
        now_ns: u64,
        status: StatusCode,
        counts: Counts,
        outcome: &Outcome,
    ) {
        if !status.is_success() || !matches!(outcome, Outcome::Completed { .. }) {
            return;
        }
        let endpoint = shared.metrics.endpoint(self.endpoint);
        endpoint.duration.observe(self.seconds_to(now_ns));
        if let Some(first_ns) = self.first_token_ns {
            endpoint.first_token.observe(self.seconds_to(first_ns));
        }
        if let (Some(cached), Some(prompt)) = (counts.cached_tokens, counts.prompt_tokens) {
            let cache = &shared.metrics.cache;
            cache.predicted.inc_by(self.predicted.unwrap_or(0));
            cache.actual.inc_by(cached);
            cache.prompt.inc_by(prompt);
        }
    }

    fn seconds_to(&self, at_ns: u64) -> f64 {
        at_ns.saturating_sub(self.arrived_ns) as f64 / 1e9
    }
}
