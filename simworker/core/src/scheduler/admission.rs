//! Which requests the next prefill batch takes.

use super::Scheduler;
use super::admitted::Admitted;
use super::budget::{Budget, Verdict};
use crate::cost::PrefillWork;

/// The requests of one prefill step. Their slots are taken.
#[derive(Debug, Default)]
pub(crate) struct PrefillBatch {
    /// Those whose prefill is complete with this step.
    whole: Vec<Admitted>,
    /// The one of which more is to come.
    chunk: Option<Admitted>,
    work: PrefillWork,
    /// Tokens of admitted requests that were found in the cache.
    cached: u64,
}

impl PrefillBatch {
    pub(crate) fn len(&self) -> usize {
        self.whole.len() + usize::from(self.chunk.is_some())
    }

    pub(crate) fn members_mut(&mut self) -> impl Iterator<Item = &mut Admitted> {
        self.whole.iter_mut().chain(&mut self.chunk)
    }

    pub(crate) fn work(&self) -> PrefillWork {
        self.work
    }

    pub(crate) fn cached(&self) -> u64 {
        self.cached
    }

    pub(crate) fn chunk(&self) -> Option<&Admitted> {
        self.chunk.as_ref()
    }

    pub(crate) fn into_parts(self) -> (Vec<Admitted>, Option<Admitted>) {
        (self.whole, self.chunk)
    }
}

/// A request and how many tokens of it the step computes.
struct Part(Admitted, usize);

impl Scheduler {
    /// Puts the next prefill batch together and takes its slots. None when there is nothing to prefill, or no room.
    pub(super) fn admit(&mut self, at_ns: u64) -> Option<PrefillBatch> {
        if self.running.is_empty() {
            self.full = false;
        }
        if !self.may_admit() {
            return None;
        }
        if self.chunked.is_none() && self.slots_taken() >= self.config.max_running as usize {
            self.full = true;
            return None;
        }
        self.running.settle(&mut self.cache);
        let mut budget = Budget::new(&self.config, self.running.reserved(self.new_token_ratio()));
        let mut parts = Vec::new();
        let mut chunked = self.chunked.take();
        self.prepare(&mut chunked);
        if let Some(chunked) = chunked {
            let tokens = budget.go_on(&chunked.request, chunked.rest());
            parts.push(Part(chunked, tokens));
        }
        let already = parts.len();
        if !self.full {
            self.admit_waiting(at_ns, &mut budget, &mut parts);
        }
        let cached = parts[already..].iter().map(|part| part.0.hold.matched_len() as u64).sum();
        (!parts.is_empty()).then(|| self.take_slots(parts, cached))
    }

    /// Shares what a chunked request has computed, and orders the queue.
    fn prepare(&mut self, chunked: &mut Option<Admitted>) {
        if self.config.share_chunks_first {
            chunked.iter_mut().for_each(|chunked| chunked.checkpoint(&mut self.cache));
        }
        if !self.full {
            self.waiting.order(&mut self.cache);
        }
        if !self.config.share_chunks_first {
            chunked.iter_mut().for_each(|chunked| chunked.checkpoint(&mut self.cache));
        }
    }

    /// Places for requests that are in use.
    fn slots_taken(&self) -> usize {
        self.occupied() + self.side.in_flight()
    }

    fn admit_waiting(&mut self, at_ns: u64, budget: &mut Budget, parts: &mut Vec<Part>) {
        let stopped_by = loop {
            let Some(request) = self.waiting.front() else { return };
            if self.slots_taken() + parts.len() >= self.config.max_running as usize {
                self.full = true;
                return;
            }
            let hold = self.cache.acquire(&request.tokens(), request.namespace);
            let verdict = budget.offer(&self.cache, request, hold.matched_len() as u64, parts.is_empty());
            match (verdict, self.waiting.pop_if(matches!(verdict, Verdict::Take(_)))) {
                (Verdict::Take(tokens), Some(request)) => {
                    self.send_found(at_ns, request.id, hold.matched_len());
                    parts.push(Part(Admitted::new(request, hold, at_ns), tokens));
                }
                (refused, _) => {
                    self.cache.refuse(hold);
                    break refused;
                }
            }
            if let Some(reason) = budget.spent(&self.cache) {
                break reason;
            }
        };
        // SGLang marks the running batch, and also when only the new batch has members; but an empty running batch is
        // replaced by the new one, mark and all, before it is looked at again (`scheduler.py`,
        // `get_next_batch_to_run`). So with nothing running the next pass tries anew.
        self.full = stopped_by == Verdict::NoTokens && !self.running.is_empty();
    }

    /// All are matched before any takes slots: those with the same new prefix all compute it.
    fn take_slots(&mut self, parts: Vec<Part>, cached: u64) -> PrefillBatch {
        let mut batch = PrefillBatch { cached, ..PrefillBatch::default() };
        let tokens = parts.iter().map(|part| part.1 as u64).sum();
        self.cache.evict_to_free(self.cache.prefill_demand(tokens, parts.len() as u64));
        for Part(mut admitted, tokens) in parts {
            batch.work.add(tokens as u64, admitted.hold.kv_len() as u64);
            let taken = self.cache.extend(&mut admitted.hold, tokens);
            debug_assert!(taken.is_ok(), "the budget covers whole pages of all that it lets in");
            if admitted.rest() == 0 {
                batch.whole.push(admitted);
            } else {
                batch.chunk = Some(admitted);
            }
        }
        batch
    }
}
