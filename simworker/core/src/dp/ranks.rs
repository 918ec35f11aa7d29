//! The engines behind one front end, as one machine without a clock.

mod seen;

use std::collections::HashMap;

use super::DpConfig;
use super::balance::Balancer;
use crate::config::{ConfigError, EngineConfig};
use crate::engine::{Engine, PauseMode, Until};
use crate::handoff::{HandoffFault, Wanted};
use crate::request::{Event, Refusal, RequestId, Submit};

/// Data-parallel ranks behind one front end. With one rank it does exactly what a bare [`Engine`] does.
///
/// # Lockstep
/// With DP attention, ranks make their scheduling passes at the same moments, and a step lasts as long as the longest
/// of them: prefill on one rank stalls decode on the others. A rank without work takes part and waits, so a request
/// that reaches it meanwhile starts with the next step of all.
#[derive(Debug)]
pub struct Ranks {
    engines: Vec<Engine>,
    balancer: Balancer,
    /// Whether all ranks step together.
    is_lockstep: bool,
    /// The requests that have not ended.
    live: HashMap<RequestId, Place>,
    /// Who has which room.
    rooms: HashMap<u64, RequestId>,
    /// Rooms that the decode side has asked for before their requests came.
    early: Wanted,
}

/// Where a request is.
#[derive(Debug, Clone, Copy)]
struct Place {
    rank: u32,
    room: Option<u64>,
}

impl Ranks {
    /// Idle ranks with empty caches.
    ///
    /// # Errors
    /// When the configuration is impossible.
    pub fn new(config: EngineConfig, dp: DpConfig) -> Result<Self, ConfigError> {
        dp.validate(&config)?;
        let early = Wanted::new(config.handoff.bootstrap_timeout_ns);
        let config = dp.of_each(config);
        let engine = |rank| Ok(Engine::new(config.clone())?.of_rank(rank));
        let engines = (0..dp.size).map(engine).collect::<Result<_, ConfigError>>()?;
        Ok(Self {
            engines,
            balancer: Balancer::new(dp.balance, dp.size),
            is_lockstep: dp.is_lockstep(),
            live: HashMap::new(),
            rooms: HashMap::new(),
            early,
        })
    }

    /// Hands in a request at `now_ns`, to `rank` or to the one that the balancing chooses, and tells which that is.
    ///
    /// # Errors
    /// When the request is not accepted. It leaves no event then, and no trace but its turn in the balancing.
    pub fn submit(
        &mut self,
        now_ns: u64,
        request: Submit,
        rank: Option<u32>,
        events: &mut Vec<Event>,
    ) -> Result<u32, Refusal> {
        self.catch_up(now_ns, Until::Before, events);
        // The front end looks at the length before it chooses.
        self.limits().admit(request.prompt.len() as u64, u64::from(request.max_new_tokens))?;
        if self.live.contains_key(&request.id) {
            return Err(Refusal::DuplicateId);
        }
        let (id, room) = (request.id, request.room);
        if let Some(room) = room.filter(|room| self.rooms.contains_key(room)) {
            return Err(Refusal::RoomTaken { room });
        }
        let rank = match rank {
            Some(rank) => self.check_rank(rank, room)?,
            None => {
                let (engines, tokens) = (&self.engines, request.prompt.len() as u64);
                let loads = || engines.iter().map(|engine| engine.reported_loads(now_ns));
                self.balancer.choose(now_ns, room, tokens, loads)?
            }
        };
        let before = events.len();
        self.engines[rank as usize].submit(now_ns, request, events)?;
        // It may have taken the place of another in the queue.
        self.forget_ended(before, events);
        let engine = &mut self.engines[rank as usize];
        self.live.insert(id, Place { rank, room });
        if let Some(room) = room {
            self.rooms.insert(room, id);
            if self.early.take(now_ns, room) {
                engine.kv_wanted(now_ns, id, events);
            }
        }
        Ok(rank)
    }

    fn check_rank(&self, rank: u32, room: Option<u64>) -> Result<u32, Refusal> {
        let size = self.size();
        if rank >= size {
            return Err(Refusal::NoSuchRank { rank, size });
        }
        let Some(room) = room else { return Ok(rank) };
        match self.balancer.rank_of_room(room) {
            Some(expected) if expected != rank => Err(Refusal::RankAgainstRoom { rank, room, expected }),
            _ => Ok(rank),
        }
    }

    /// How many rooms are remembered that were asked for before anybody came with them.
    pub fn remembered_rooms(&mut self, now_ns: u64) -> usize {
        self.early.count(now_ns)
    }

    /// Aborts a request, as [`Engine::abort`] does. False when there is no such request.
    pub fn abort(&mut self, now_ns: u64, id: RequestId, events: &mut Vec<Event>) -> bool {
        self.catch_up(now_ns, Until::Before, events);
        let Some(Place { rank, .. }) = self.live.get(&id).copied() else { return false };
        self.on(rank, events, |engine, events| engine.abort(now_ns, id, events))
    }

    /// Empties the caches of all ranks. False, and nothing done, where one of them [may not](Engine::may_flush).
    pub fn flush(&mut self) -> bool {
        self.engines.iter().all(Engine::may_flush) && self.engines.iter_mut().all(Engine::flush)
    }

    /// Pauses all ranks, as [`Engine::pause`].
    pub fn pause(&mut self, now_ns: u64, mode: PauseMode, events: &mut Vec<Event>) {
        self.on_each(now_ns, events, |engine, events| engine.pause(now_ns, mode, events));
    }

    /// Lets all ranks go on, as [`Engine::resume`].
    pub fn resume(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        self.on_each(now_ns, events, |engine, events| engine.resume(now_ns, events));
    }

    /// Whether the ranks have been paused and not resumed.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.engines.iter().all(Engine::is_paused)
    }

    /// Aborts every request on every rank, as [`Engine::abort_all`].
    pub fn abort_all(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        self.on_each(now_ns, events, |engine, events| {
            engine.abort_all(now_ns, events);
        });
    }

    /// From their next step on, steps of all ranks take `factor` times as long, as [`Engine::set_pace_factor`].
    pub fn set_pace_factor(&mut self, now_ns: u64, factor: f64, events: &mut Vec<Event>) {
        self.on_each(now_ns, events, |engine, events| engine.set_pace_factor(now_ns, factor, events));
    }

    /// Does everything that is due at or before `now_ns`. Time that has passed already is no error.
    pub fn advance(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        self.catch_up(now_ns, Until::Through, events);
    }

    /// When [`Ranks::advance`] should be called next. None when nothing will ever happen by itself.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.engines.iter().filter_map(Engine::next_deadline).min()
    }
}

// === impl Ranks: the hand-off of KV ===

impl Ranks {
    /// Prefill: the decode side has slots for the request of that room, as [`Engine::kv_wanted`]. It may come before
    /// the request itself: then it is remembered, for as long as a request would wait for it.
    pub fn kv_wanted(&mut self, now_ns: u64, room: u64, events: &mut Vec<Event>) -> bool {
        let tell = |engine: &mut Engine, id, events: &mut _| engine.kv_wanted(now_ns, id, events);
        let found = self.on_room(now_ns, room, events, tell);
        if !self.has_room(room) {
            self.early.remember(now_ns, room);
        }
        found
    }

    /// Decode: the KV of that room has arrived, as [`Engine::kv_arrived`].
    pub fn kv_arrived(
        &mut self,
        now_ns: u64,
        room: u64,
        cached_tokens: u32,
        events: &mut Vec<Event>,
    ) -> bool {
        self.on_room(now_ns, room, events, |engine, id, events| {
            engine.kv_arrived(now_ns, id, cached_tokens, events)
        })
    }

    /// Both roles: the hand-off of that room has failed, as [`Engine::handoff_failed`]. Nobody waits for it any more.
    pub fn handoff_failed(
        &mut self,
        now_ns: u64,
        room: u64,
        fault: HandoffFault,
        events: &mut Vec<Event>,
    ) -> bool {
        self.early.forget(room);
        self.on_room(now_ns, room, events, |engine, id, events| {
            engine.handoff_failed(now_ns, id, fault, events)
        })
    }

    /// Tells the request of a room something. False when there is none.
    fn on_room(
        &mut self,
        now_ns: u64,
        room: u64,
        events: &mut Vec<Event>,
        tell: impl FnOnce(&mut Engine, RequestId, &mut Vec<Event>) -> bool,
    ) -> bool {
        self.catch_up(now_ns, Until::Before, events);
        let Some((id, rank)) = self.place_of(room) else { return false };
        self.on(rank, events, |engine, events| tell(engine, id, events))
    }

    fn place_of(&self, room: u64) -> Option<(RequestId, u32)> {
        let id = self.rooms.get(&room)?;
        self.live.get(id).map(|place| (*id, place.rank))
    }

    /// Whether a request of this room is here.
    #[must_use]
    pub fn has_room(&self, room: u64) -> bool {
        self.rooms.contains_key(&room)
    }

    /// The rank that has a room, or will have it.
    #[must_use]
    pub fn rank_of(&self, room: u64) -> Option<u32> {
        let known = self.place_of(room).map(|(_, rank)| rank).or_else(|| self.balancer.rank_of_room(room));
        known.or_else(|| (self.size() == 1).then_some(0))
    }
}

// === impl Ranks: time ===

impl Ranks {
    fn catch_up(&mut self, now_ns: u64, until: Until, events: &mut Vec<Event>) {
        let before = events.len();
        if self.is_lockstep {
            self.step_together(now_ns, until, events);
        }
        for engine in &mut self.engines {
            engine.catch_up(now_ns, until, events);
        }
        if self.engines.len() > 1 {
            // Each rank tells its own in order; the sort is stable and finds these runs.
            events[before..].sort_by_key(Event::at_ns);
        }
        self.forget_ended(before, events);
    }

    /// Does what is due moment by moment, so that the ranks' steps begin and end together.
    fn step_together(&mut self, now_ns: u64, until: Until, events: &mut Vec<Event>) {
        while let Some(at_ns) = self.next_deadline() {
            if at_ns > now_ns || at_ns == now_ns && until == Until::Before {
                return;
            }
            for engine in &mut self.engines {
                engine.catch_up(at_ns, Until::Through, events);
            }
            if let Some(end) = self.engines.iter().filter_map(Engine::step_end).max() {
                self.engines.iter_mut().for_each(|engine| engine.hold(end));
            }
        }
    }

    /// Does something to one rank that all have caught up with.
    fn on(
        &mut self,
        rank: u32,
        events: &mut Vec<Event>,
        act: impl FnOnce(&mut Engine, &mut Vec<Event>) -> bool,
    ) -> bool {
        let before = events.len();
        let result = self.engines.get_mut(rank as usize).is_some_and(|engine| act(engine, events));
        self.forget_ended(before, events);
        result
    }

    /// Does something to each rank, all of which have caught up.
    fn on_each(
        &mut self,
        now_ns: u64,
        events: &mut Vec<Event>,
        mut act: impl FnMut(&mut Engine, &mut Vec<Event>),
    ) {
        self.catch_up(now_ns, Until::Before, events);
        let before = events.len();
        self.engines.iter_mut().for_each(|engine| act(engine, events));
        self.forget_ended(before, events);
    }

    fn forget_ended(&mut self, from: usize, events: &[Event]) {
        for event in &events[from..] {
            if let Event::Finish { id, .. } = event
                && let Some(Place { room: Some(room), .. }) = self.live.remove(id)
            {
                self.rooms.remove(&room);
            }
        }
    }
}
