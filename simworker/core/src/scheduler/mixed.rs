//! Prefill steps in which running requests make a token too (`--enable-mixed-chunk`), and steps in which prefill waits
//! (`--prefill-decode-interval`).

use super::Scheduler;
use super::admission::PrefillBatch;
use crate::config::PrefillInterval;

impl Scheduler {
    /// Running requests that a prefill batch leaves room for.
    pub(super) fn mixed_rows(&self) -> u64 {
        if self.mixes() { self.running.len() as u64 } else { 0 }
    }

    fn mixes(&self) -> bool {
        self.config.mixed_chunk && self.config.chunked_prefill.is_some()
    }

    /// Lets the running batch take part in the prefill step that is about to be launched, if it has room for it: it does
    /// not retract anybody for that. Tells whether it does. Requests with log probabilities of the prompt are never
    /// mixed with others.
    pub(super) fn mix_in(&mut self, batch: &PrefillBatch) -> bool {
        if !self.mixes() || self.running.is_empty() {
            return false;
        }
        if batch.wants_logprobs() || self.running.wants_logprobs() {
            return false;
        }
        let demand = self.running.demand();
        self.cache.evict_to_free(demand);
        if self.running.free(&self.cache) < demand {
            return false;
        }
        self.cache.evict_to_free(self.cache.decode_demand(self.running.len() as u64));
        self.running.launch();
        // The bet on early ends does not get bolder with it.
        self.ratio.skip_step();
        true
    }
}

/// How long prefill has still to wait.
#[derive(Debug, Default)]
pub(super) struct Interval {
    config: PrefillInterval,
    /// Decode steps to come before the next prefill step.
    left: u32,
    /// The last pass, and whether prefill waits in it: a pass may ask more than once.
    asked: Option<(u64, bool)>,
}

impl Interval {
    pub(super) fn new(config: PrefillInterval) -> Self {
        Self { config, ..Self::default() }
    }

    /// A prefill step has been launched.
    pub(super) fn prefilled(&mut self) {
        self.left = self.config.steps;
    }

    /// Whether prefill waits in this pass, with so many running. With nobody running SGLang's loop would count down
    /// without doing anything, at once.
    pub(super) fn defers(&mut self, pass: u64, running: usize) -> bool {
        if running == 0 {
            self.left = 0;
            return false;
        }
        if let Some((asked, answer)) = self.asked
            && asked == pass
        {
            return answer;
        }
        if running < self.config.min_batch as usize {
            self.left = 0;
        }
        let answer = self.left > 0;
        self.left = self.left.saturating_sub(1);
        self.asked = Some((pass, answer));
        answer
    }
}
