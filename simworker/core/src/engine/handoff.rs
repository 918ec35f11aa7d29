//! What the world tells an engine of the other side of a hand-off.

use super::{Engine, Event, RequestId, Ticks, Until};
use crate::handoff::HandoffFault;

impl Engine {
    /// Prefill: the decode side has slots for a request. False when the request does not wait for this.
    pub fn kv_wanted(&mut self, now_ns: u64, id: RequestId, events: &mut Vec<Event>) -> bool {
        self.hear(now_ns, events, |engine, _| engine.scheduler.kv_wanted(id))
    }

    /// Decode: the KV of a request has arrived; the prefill side had found `cached_tokens` of it in its cache. False
    /// when the request does not wait for it.
    pub fn kv_arrived(
        &mut self,
        now_ns: u64,
        id: RequestId,
        cached_tokens: u32,
        events: &mut Vec<Event>,
    ) -> bool {
        self.hear(now_ns, events, |engine, _| engine.scheduler.kv_arrived(id, cached_tokens))
    }

    /// Both roles: the KV of a request will not be handed over, and the request ends with an error: at once, or if it
    /// is being computed with the next result. False when the request does not depend on it.
    pub fn handoff_failed(
        &mut self,
        now_ns: u64,
        id: RequestId,
        fault: HandoffFault,
        events: &mut Vec<Event>,
    ) -> bool {
        self.hear(now_ns, events, |engine, events| engine.scheduler.handoff_failed(now_ns, id, fault, events))
    }

    /// Something comes from outside at `now_ns`; `act` tells whether anybody has waited for it.
    fn hear(
        &mut self,
        now_ns: u64,
        events: &mut Vec<Event>,
        act: impl FnOnce(&mut Self, &mut Vec<Event>) -> bool,
    ) -> bool {
        self.catch_up(now_ns, Until::Before, events);
        let before = events.len();
        let found = act(self, events);
        self.forget_ended(&events[before..]);
        if found {
            self.wake(now_ns);
        }
        found
    }

    /// Does what is due at `due_ns` without a step.
    pub(super) fn hand_over(&mut self, due_ns: u64, events: &mut Vec<Event>) {
        let at_ns = due_ns.max(self.clock.ns());
        self.clock = self.clock.max(Ticks::from_ns(due_ns));
        let before = events.len();
        self.scheduler.advance_handoff(at_ns, events);
        if events.len() > before {
            // Who ended has given up what others may wait for.
            self.wake(at_ns);
        }
    }
}
