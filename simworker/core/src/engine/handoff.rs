//! What the world tells an engine of the other side of a hand-off.

use super::{Engine, Event, Phase, Refusal, Submit, Ticks, Until};
use crate::handoff::{EngineRole, HandoffFault};

impl Engine {
    /// Prefill: the decode side has slots for the request of that room. False when no request waits for this.
    ///
    /// It may come before the request itself: then it is remembered, for as long as a request would wait for it.
    pub fn kv_wanted(&mut self, now_ns: u64, room: u64, events: &mut Vec<Event>) -> bool {
        self.catch_up(now_ns, Until::Before, events);
        let id = self.rooms.get(&room).copied();
        let found = self.scheduler.kv_wanted(now_ns, room, id);
        if found {
            self.wake(now_ns);
        }
        found
    }

    /// Decode: the KV of that room has arrived; the prefill side had found `cached_tokens` of it in its cache. False
    /// when no request waits for it.
    pub fn kv_arrived(
        &mut self,
        now_ns: u64,
        room: u64,
        cached_tokens: u32,
        events: &mut Vec<Event>,
    ) -> bool {
        self.catch_up(now_ns, Until::Before, events);
        let Some(id) = self.rooms.get(&room).copied() else { return false };
        let found = self.scheduler.kv_arrived(id, cached_tokens);
        if found {
            self.wake(now_ns);
        }
        found
    }

    /// Both roles: the KV of that room will not be handed over, and the request ends with an error: at once, or if it
    /// is being computed with the next result. False when no request depends on it.
    pub fn handoff_failed(
        &mut self,
        now_ns: u64,
        room: u64,
        fault: HandoffFault,
        events: &mut Vec<Event>,
    ) -> bool {
        self.catch_up(now_ns, Until::Before, events);
        let Some(id) = self.rooms.get(&room).copied() else {
            self.scheduler.forget_room(room);
            return false;
        };
        let before = events.len();
        let found = self.scheduler.handoff_failed(now_ns, id, fault, events);
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

    /// The room of a request that may come in.
    pub(super) fn room_of(&self, request: &Submit) -> Result<Option<u64>, Refusal> {
        if self.role == EngineRole::Whole {
            return Ok(None);
        }
        let room = request.room.ok_or(Refusal::NoRoom)?;
        if self.rooms.contains_key(&room) {
            return Err(Refusal::RoomTaken { room });
        }
        Ok(Some(room))
    }

    pub(super) fn check_rooms(&self) -> Result<(), String> {
        let rooms = if self.role == EngineRole::Whole { 0 } else { self.live.len() };
        if self.rooms.len() != rooms {
            return Err(format!("{} rooms, {rooms} requests in one", self.rooms.len()));
        }
        if let (Phase::Step(_), true) = (self.phase, self.is_idle()) {
            return Err("a step without requests is in progress".into());
        }
        Ok(())
    }
}
