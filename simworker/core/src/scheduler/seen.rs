//! What can be seen of a scheduler: counts, progress, and the proof that they add up.

use super::Scheduler;
use super::admission::PrefillBatch;
use super::admitted::Admitted;
use super::meters::{EngineTotals, Meters};
use super::results::Hidden;
use super::running::RunningBatch;
use super::side::Side;
use crate::cache::KvCache;
use crate::request::RequestId;

impl Scheduler {
    pub(crate) fn cache(&self) -> &KvCache {
        &self.cache
    }

    pub(crate) fn totals(&self) -> EngineTotals {
        EngineTotals {
            evicted_tokens: self.cache.evicted_total(),
            host: self.cache.host_totals(),
            ..self.meters.totals
        }
    }

    pub(crate) fn meters(&self) -> &Meters {
        &self.meters
    }

    pub(crate) fn overlaps(&self) -> bool {
        self.config.overlap
    }

    pub(crate) fn running(&self) -> &RunningBatch {
        &self.running
    }

    /// Requests that wait for anything, KV on its way included.
    pub(crate) fn waiting_len(&self) -> usize {
        match &self.side {
            Side::Whole => self.waiting.len(),
            Side::Prefill(sender) => self.waiting.len() + sender.bootstrapping_len(),
            Side::Decode(receiver) => receiver.len(),
        }
    }

    pub(crate) fn new_token_ratio(&self) -> f64 {
        self.ratio.at(self.running.launched())
    }

    /// Tokens of KV that are neither free nor merely cached.
    pub(crate) fn used_tokens(&self) -> u64 {
        self.cache.capacity() - self.running.free(&self.cache) - self.cache.evictable()
    }

    /// Tokens of the waiting requests that hold no KV.
    pub(crate) fn waiting_tokens(&self) -> u64 {
        self.waiting.tokens() + self.side.without_kv().map(|request| request.len() as u64).sum::<u64>()
    }

    /// Tokens that waiting requests and the rest of a chunked one will have to compute: what the order of the queue
    /// found for each, or where it does not look, by the recent hit rate.
    pub(crate) fn uncached_tokens(&self) -> u64 {
        let chunked = self.chunked.as_ref().or_else(|| self.prefill.as_ref()?.chunk());
        let rest = chunked.map_or(0, Admitted::rest);
        if self.waiting.is_cache_aware() {
            return rest
                + self.waiting.iter().map(|r| (r.len() as u64).saturating_sub(r.matched)).sum::<u64>();
        }
        rest + (self.waiting.tokens() as f64 * (1.0 - self.meters.hit_rate())) as u64
    }

    /// Proves the invariants of queue, batches and cache, in time linear in their size.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.cache.check()?;
        self.running.check()?;
        self.waiting.check()?;
        let untold = self.hidden.as_ref().map_or(0, Hidden::joined);
        let leaving_told = self.hidden.as_ref().map_or(0, Hidden::leaving_told);
        if self.running.told() as usize + untold != self.running.len() + leaving_told {
            return Err(format!("{} token times for {} members", self.running.told(), self.running.len()));
        }
        if self.running.free(&self.cache) > self.cache.capacity() {
            return Err("more tokens are free than there are".into());
        }
        if self.running.has_surprises() && self.hidden.is_none() {
            return Err("a request whose end is known is still in the batch".into());
        }
        if self.joined > 0 {
            return Err(format!("{} requests have joined unnoticed", self.joined));
        }
        let computing = self.prefill.as_ref().map_or(0, PrefillBatch::len)
            + usize::from(self.chunked.is_some())
            + self.hidden.as_ref().map_or(0, Hidden::leaving);
        self.side.check(computing)
    }

    /// Requests that have not ended.
    pub(crate) fn requests(&self) -> usize {
        let prefilling = self.prefill.as_ref().map_or(0, PrefillBatch::len);
        self.waiting.len()
            + prefilling
            + usize::from(self.chunked.is_some())
            + self.occupied()
            + self.side.len()
    }

    /// Requests that run, or have run and hold their KV until their end is known.
    pub(crate) fn occupied(&self) -> usize {
        self.running.len() + self.hidden.as_ref().map_or(0, Hidden::leaving)
    }

    /// The requests that decode, or whose end is not known, with at least one token known: how many are.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = (RequestId, u32)> {
        let len = self.running.len();
        // Of these and all after them, the newest token is hidden.
        let hidden_from = match &self.hidden {
            None => len,
            Some(hidden) if hidden.stepped() => 0,
            Some(hidden) => len - hidden.joined(),
        };
        let known = move |(at, (id, made))| (id, made - u32::from(at >= hidden_from));
        let leaving = self.hidden.iter().flat_map(Hidden::leaving_outputs);
        self.running.outputs().enumerate().map(known).chain(leaving).filter(|(_, made)| *made > 0)
    }
}
