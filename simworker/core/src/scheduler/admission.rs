//! Which requests the next prefill batch takes.

use super::Scheduler;
use super::admitted::Admitted;
use super::budget::{Budget, Verdict};
use super::host_tier;
use super::order::Facts;
use super::request::Request;
use crate::config::Schedule;
use crate::cost::PrefillWork;
use crate::request::Event;

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

    /// Whether one of them asks for log probabilities of its prompt.
    pub(super) fn wants_logprobs(&self) -> bool {
        self.whole.iter().chain(&self.chunk).any(|admitted| admitted.request.wants_logprobs())
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
    pub(super) fn admit(&mut self, at_ns: u64, events: &mut Vec<Event>) -> Option<PrefillBatch> {
        if self.interval.defers(self.passes, self.running.len()) {
            return None;
        }
        let preempts = self.preemption().is_some();
        if preempts || self.running.is_empty() {
            self.full = false;
        }
        if !self.may_admit() {
            return None;
        }
        if self.chunked.is_none() && !preempts && self.slots_taken() >= self.config.max_running as usize {
            self.full = true;
            return None;
        }
        self.running.settle(&mut self.cache);
        let reserved = self.running.reserved(self.new_token_ratio());
        let mut budget = Budget::new(&self.config, reserved, self.mixed_rows());
        self.prepare();
        let mut parts = Vec::new();
        if let Some(chunked) = self.chunked.take() {
            if self.waiting.schedule() == Schedule::ShortestPrefillFirst {
                budget.spare(chunked.rest(), self.waiting.in_order());
            }
            let tokens = budget.go_on(&chunked.request, chunked.rest());
            let takes = self.cache.extend_cost(&chunked.hold, tokens);
            if tokens == 0 || takes > self.cache.free() + self.cache.evictable() {
                // The running requests fill the step, or have taken the KV since the last part: decode steps that come
                // between two parts do that, and SGLang then runs out of memory.
                self.chunked = Some(chunked);
                return None;
            }
            parts.push(Part(chunked, tokens));
        }
        let already = parts.len();
        if !self.full {
            self.admit_waiting(at_ns, &mut budget, &mut parts, events);
        }
        let cached = parts[already..].iter().map(|part| part.0.hold.matched_len() as u64).sum();
        (!parts.is_empty()).then(|| self.take_slots(parts, cached))
    }

    /// Shares what a chunked request has computed, and orders the queue.
    fn prepare(&mut self) {
        if self.config.share_chunks_first {
            self.share_chunk();
        }
        self.waiting.order(&mut self.cache, &Facts { pass: self.passes, running: &self.running });
        if !self.config.share_chunks_first {
            self.share_chunk();
        }
    }

    fn share_chunk(&mut self) {
        self.chunked.iter_mut().for_each(|chunked| chunked.checkpoint(&mut self.cache));
    }

    /// Places for requests that are in use.
    fn slots_taken(&self) -> usize {
        self.occupied() + self.side.in_flight()
    }

    fn admit_waiting(
        &mut self,
        at_ns: u64,
        budget: &mut Budget,
        parts: &mut Vec<Part>,
        events: &mut Vec<Event>,
    ) {
        let mut preempted = Vec::new();
        let stopped_by = loop {
            // A spent step looks at nobody, but a lack of KV is found out for each anew.
            if budget.spent(&self.cache) == Some(Verdict::Stop) || self.waiting.is_empty() {
                break None;
            }
            if !self.has_place(at_ns, budget, parts.len(), &mut preempted, events) {
                break None;
            }
            let verdict = self.offer(at_ns, budget, parts);
            if !matches!(verdict, Verdict::Take(_)) {
                break Some(verdict);
            }
            if let Some(reason) = budget.spent(&self.cache) {
                break Some(reason);
            }
        };
        preempted.into_iter().for_each(|request| self.wait_again(at_ns, request, events));
        // SGLang marks the running batch, and also when only the new batch has members; but an empty running batch is
        // replaced by the new one, mark and all, before it is looked at again (`scheduler.py`,
        // `get_next_batch_to_run`). So with nothing running the next pass tries anew.
        if stopped_by == Some(Verdict::NoTokens) {
            self.full = !self.running.is_empty();
        }
    }

    /// Whether one more request may run, because somebody gives way perhaps. Once places are short in a pass, each further
    /// request needs somebody to give way.
    fn has_place(
        &mut self,
        at_ns: u64,
        budget: &mut Budget,
        joining: usize,
        preempted: &mut Vec<Request>,
        events: &mut Vec<Event>,
    ) -> bool {
        let most = self.config.max_running as usize;
        self.full |= self.slots_taken() + joining >= most;
        if !self.full {
            return true;
        }
        if self.preemption().is_none() {
            return false;
        }
        if self.hidden.is_some() {
            self.reveal(at_ns, events);
            self.full = self.slots_taken() + joining >= most;
        }
        !self.full || self.preempt_for_front(budget, preempted)
    }

    /// Lets the first of the queue into the batch if the budget allows it.
    fn offer(&mut self, at_ns: u64, budget: &mut Budget, parts: &mut Vec<Part>) -> Verdict {
        let Some(request) = self.waiting.front() else { return Verdict::Stop };
        let spelled = request.spelled(self.cache.spelling());
        let mut hold = self.cache.acquire(request.to_match(&spelled), request.namespace);
        let verdict = match self.config.prefill_max_requests {
            Some(most) if parts.len() >= most as usize => Verdict::Stop,
            _ => host_tier::offer(budget, &mut self.cache, request, &mut hold, parts.is_empty()),
        };
        match (verdict, self.waiting.pop_if(matches!(verdict, Verdict::Take(_)))) {
            (Verdict::Take(tokens), Some(request)) => {
                self.send_found(at_ns, request.id, hold.matched_len());
                parts.push(Part(Admitted::new(request, hold, at_ns), tokens));
            }
            _ => self.cache.refuse(hold),
        }
        verdict
    }

    /// All are matched before any takes slots: those with the same new prefix all compute it.
    fn take_slots(&mut self, parts: Vec<Part>, cached: u64) -> PrefillBatch {
        let mut batch = PrefillBatch { cached, ..PrefillBatch::default() };
        let tokens = parts.iter().map(|part| part.1 as u64).sum();
        self.cache.evict_to_free(self.cache.prefill_demand(tokens, parts.len() as u64));
        for Part(mut admitted, tokens) in parts {
            batch.work.add(tokens as u64, admitted.hold.kv_len() as u64);
            batch.work.load(admitted.hold.take_loading() as u64);
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
