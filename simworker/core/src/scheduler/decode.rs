//! Room for the next decode step, and who gives way when there is none.

use super::ratio::retraction_headroom;
use super::{Request, Scheduler, Side};
use crate::request::{Event, FinishReason};

impl Scheduler {
    /// Makes sure that the running batch can take its next step: evicts, then retracts. False when nothing is left
    /// of the batch.
    pub(super) fn make_room(&mut self, at_ns: u64, events: &mut Vec<Event>) -> bool {
        if self.has_room() {
            return true;
        }
        self.running.settle(&mut self.cache);
        let mut retracted = 0;
        loop {
            let demand = self.running.demand();
            self.cache.evict_to_free(demand);
            if self.cache.free() >= demand {
                break;
            }
            if self.hidden.is_some() {
                // Who gives way depends on what each has made, and who has ended gives up KV anyway.
                self.reveal(at_ns, events);
                if self.running.is_empty() {
                    return false;
                }
                continue;
            }
            if self.running.len() == 1 {
                self.fail_last(at_ns, events);
                return false;
            }
            self.retract(at_ns, events);
            retracted += 1;
        }
        if retracted > 0 {
            let (produced, max_new) = self.running.progress();
            self.ratio.retracted(self.running.launched(), self.running.len() as u64, produced, max_new);
        }
        self.cache.evict_to_free(self.cache.decode_demand(self.running.len() as u64));
        true
    }

    /// Whether the step has its slots and no eviction would be asked for, or none would be answered.
    fn has_room(&self) -> bool {
        let free = self.running.free(&self.cache);
        let asked = self.cache.decode_demand(self.running.len() as u64);
        free >= self.running.demand() && (free >= asked || self.cache.evictable() == 0)
    }

    /// Throws the cheapest request out. It keeps its outputs and waits, as the last, to be prefilled with them.
    fn retract(&mut self, at_ns: u64, events: &mut Vec<Event>) {
        let Some(victim) = self.running.take_victim(&mut self.cache) else { return };
        let mut request = victim.withdraw(&mut self.cache);
        request.retractions += 1;
        self.meters.retracted(&request);
        self.wait_again(at_ns, request, events);
        self.full = false;
        self.evict_for_retraction();
    }

    /// After a request has lost its KV, some more is made free for those that go on.
    pub(super) fn evict_for_retraction(&mut self) {
        self.cache.evict_to_free(retraction_headroom(self.running.len()));
    }

    /// Puts a request that has lost its KV where those wait that come back. The bound on the queue holds for it as for any
    /// other one.
    pub(super) fn wait_again(&mut self, at_ns: u64, mut request: Request, events: &mut Vec<Event>) {
        if let Side::Decode(receiver) = &mut self.side {
            return receiver.retract(request);
        }
        request.waits_since_ns = at_ns;
        if self.is_queue_full() && !self.displace(at_ns, request.priority, events) {
            let message = "The request queue is full.";
            return self.end(request.finish(at_ns, FinishReason::Error { status: 503, message }), events);
        }
        self.waiting.push(request);
    }

    /// A single request that does not fit can never go on.
    fn fail_last(&mut self, at_ns: u64, events: &mut Vec<Event>) {
        let Some(victim) = self.running.take_victim(&mut self.cache) else { return };
        let message = "Out of memory even after retracting all other requests of the batch.";
        let request = victim.withdraw(&mut self.cache);
        self.end(request.finish(at_ns, FinishReason::Error { status: 500, message }), events);
        self.full = false;
    }
}
