//! When events about blocks leave the engine.
//!
//! SGLang publishes them with its reports: after each prefill, once in so many decode steps
//! ([`decode_log_interval`](crate::EngineConfig::decode_log_interval)), and when there is nothing to do. So in steady
//! decode they lag behind what they tell of.

use super::Scheduler;
use super::results::Hidden;
use crate::request::Event;

impl Scheduler {
    /// Whether SGLang reports after these results.
    pub(super) fn reports(&self, results: Option<&Hidden>) -> bool {
        match results {
            None => false,
            Some(hidden) if hidden.is_prefill() => true,
            Some(_) => {
                self.meters.totals.decode_steps.is_multiple_of(u64::from(self.config.decode_log_interval))
            }
        }
    }

    /// Hands out what has been recorded, if anything has.
    pub(super) fn flush_kv_events(&mut self, at_ns: u64, events: &mut Vec<Event>) {
        let recorded = self.cache.take_events();
        if !recorded.is_empty() {
            events.push(Event::Kv { rank: self.rank, at_ns, events: recorded });
        }
    }
}
