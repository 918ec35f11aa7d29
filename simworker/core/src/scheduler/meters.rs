//! What is counted: totals since the start, and the figures of the last interval that SGLang reports.

use super::request::Request;
use crate::cache::HostTotals;
use crate::handoff::Stage;
use crate::request::{Event, FinishReason};
use crate::time::Ticks;

/// Decode steps that take so long say nothing about the hardware.
const MOMENT_LIMIT_US: u64 = 2_000_000;

/// Counters since the start of an engine; they only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineTotals {
    /// Requests that ended, whatever the reason.
    pub finished_requests: u64,
    /// Those of them that were aborted or failed.
    pub aborted_requests: u64,
    /// Prompt tokens of requests that ended.
    pub prompt_tokens: u64,
    /// Those of them that were found in the cache.
    pub cached_tokens: u64,
    /// Those of them that were found on the host.
    pub host_tokens: u64,
    /// Output tokens made.
    pub generated_tokens: u64,
    /// Tokens that prefill steps computed.
    pub prefill_uncached_tokens: u64,
    /// Tokens evicted from the cache.
    pub evicted_tokens: u64,
    /// What the second tier of the cache has done.
    pub host: HostTotals,
    /// Times that a request was thrown out of the batch for lack of KV.
    pub retractions: u64,
    /// Prompt tokens of retracted requests.
    pub retracted_input_tokens: u64,
    /// Requests that failed before the two sides of a hand-off had found each other.
    pub bootstrap_failed_requests: u64,
    /// Requests that failed as their KV did not get through.
    pub transfer_failed_requests: u64,
    /// Output tokens that retracted requests had made.
    pub retracted_output_tokens: u64,
    /// Prefill steps.
    pub prefill_steps: u64,
    /// Decode steps.
    pub decode_steps: u64,
    /// Time spent in prefill steps, in nanoseconds.
    pub prefill_busy_ns: u64,
    /// Time spent in decode steps, in nanoseconds.
    pub decode_busy_ns: u64,
}

/// Sums over decode steps that follow a decode step, from which a router can regress step time on batch size. `b` is
/// the batch, `t` the time in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DecodeMoments {
    /// Steps.
    pub steps: u64,
    /// Σb.
    pub batch: u64,
    /// Σt.
    pub us: u64,
    /// Σb².
    pub batch_squared: u64,
    /// Σb·t.
    pub batch_us: u64,
    /// Tokens generated.
    pub generated: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Meters {
    pub(crate) totals: EngineTotals,
    /// Decode steps from one report to the next.
    log_interval: u32,
    moments: DecodeMoments,
    after_decode: bool,
    /// Requests retracted since the last report, and as of it.
    retracted: u64,
    reported_retracted: u64,
    /// Of the last prefill batch: tokens computed, tokens cached.
    last_prefill: (u64, u64),
    interval: Interval,
    prefill_busy: Ticks,
    decode_busy: Ticks,
}

/// Throughput over a number of decode steps.
#[derive(Debug, Default)]
struct Interval {
    steps: u32,
    tokens: u64,
    began_ns: u64,
    /// Output tokens per second of the last complete interval.
    tok_s: f64,
}

impl Meters {
    /// With so many decode steps from one report to the next.
    pub(crate) fn new(log_interval: u32) -> Self {
        Self { log_interval, ..Self::default() }
    }

    pub(crate) fn prefill(&mut self, computed: u64, cached: u64, span: Ticks) {
        self.prefill_busy += span;
        self.totals.prefill_steps += 1;
        self.totals.prefill_uncached_tokens += computed;
        self.totals.prefill_busy_ns = self.prefill_busy.ns();
        self.last_prefill = (computed, cached);
        self.after_decode = false;
        self.report();
    }

    /// A decode step of a batch has made `tokens` tokens: all but those of members that had ended before.
    pub(crate) fn decode(&mut self, batch: u64, tokens: u64, at_ns: u64, span: Ticks) {
        self.decode_busy += span;
        self.totals.decode_steps += 1;
        self.totals.generated_tokens += tokens;
        self.totals.decode_busy_ns = self.decode_busy.ns();
        let us = span.ns() / 1000;
        if std::mem::replace(&mut self.after_decode, true) && us < MOMENT_LIMIT_US {
            let moments = &mut self.moments;
            moments.steps += 1;
            moments.batch += batch;
            moments.us += us;
            moments.batch_squared += batch * batch;
            moments.batch_us += batch * us;
            moments.generated += tokens;
        }
        if self.interval.add(tokens, at_ns, self.log_interval) {
            self.report();
        }
    }

    /// SGLang refreshes its gauges here.
    fn report(&mut self) {
        self.reported_retracted = std::mem::take(&mut self.retracted);
    }

    pub(crate) fn retracted(&mut self, request: &Request) {
        self.retracted += 1;
        self.totals.retractions += 1;
        self.totals.retracted_input_tokens += request.prompt.len() as u64;
        self.totals.retracted_output_tokens += u64::from(request.produced);
    }

    /// A request could not be handed over.
    pub(crate) fn handoff_failed(&mut self, stage: Stage) {
        if stage.is_bootstrap() {
            self.totals.bootstrap_failed_requests += 1;
        } else {
            self.totals.transfer_failed_requests += 1;
        }
    }

    /// A request has ended with this event.
    pub(crate) fn ended(&mut self, finish: &Event) {
        let Event::Finish { reason, prompt_tokens, cached_tokens, host_tokens, .. } = finish else { return };
        self.totals.finished_requests += 1;
        self.totals.aborted_requests +=
            u64::from(!matches!(reason, FinishReason::Length | FinishReason::Stop));
        self.totals.prompt_tokens += u64::from(*prompt_tokens);
        self.totals.cached_tokens += u64::from(*cached_tokens);
        self.totals.host_tokens += u64::from(*host_tokens);
    }

    /// Nothing is left to do.
    pub(crate) fn idle(&mut self) {
        self.interval = Interval::default();
        self.after_decode = false;
    }

    /// Share of the last prefill batch that was found in the cache.
    pub(crate) fn hit_rate(&self) -> f64 {
        let (computed, cached) = self.last_prefill;
        if computed + cached == 0 { 0.0 } else { cached as f64 / (computed + cached) as f64 }
    }

    /// Output tokens per second in the last interval of decode steps that was reported.
    pub(crate) fn throughput(&self) -> f64 {
        self.interval.tok_s
    }

    /// Requests that were retracted between the last two reports.
    pub(crate) fn retracted_lately(&self) -> u64 {
        self.reported_retracted
    }

    /// None before the first step that counts.
    pub(crate) fn moments(&self) -> Option<DecodeMoments> {
        (self.moments.steps > 0).then_some(self.moments)
    }
}

impl Interval {
    /// Counts a step; true when it completes an interval of `length` steps.
    fn add(&mut self, tokens: u64, at_ns: u64, length: u32) -> bool {
        if self.began_ns == 0 {
            self.began_ns = at_ns;
            return false;
        }
        self.steps += 1;
        self.tokens += tokens;
        if self.steps < length {
            return false;
        }
        let tok_s = self.tokens as f64 * 1e9 / (at_ns - self.began_ns).max(1) as f64;
        *self = Self { began_ns: at_ns, tok_s, ..Self::default() };
        true
    }
}
