//! What reaches the workers, and what they say: legs and aborts from the router, KV from one worker to another.

use router_core::Cause;
use simworker_core::{
    EngineRole, Event as EngineEvent, FinishReason, HandoffFault, Prompt, Refusal, RequestId, Submit,
};

use super::dice::{Crossing, Mood};
use super::outage::PEER_LOST_AFTER_NS;
use super::shell::{LegEnd, seq_of};
use super::world::{Event, Leg, World};

/// When a busy worker wants to be asked again.
const RETRY_AFTER_NS: u64 = 1_000_000_000;

/// A hand-off that is to come: the workers of one room.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handover {
    /// The attempt that it is of.
    id: RequestId,
    pub(super) prefill: usize,
    pub(super) decode: usize,
    /// The prefill leg has come to its worker.
    has_come: bool,
    /// The prefill worker has computed the prompt.
    is_computed: bool,
    /// What becomes of it, as drawn when the decode worker has asked.
    crossing: Crossing,
}

impl Handover {
    pub(super) fn new(id: RequestId, prefill: usize, decode: usize) -> Self {
        Self { id, prefill, decode, has_come: false, is_computed: false, crossing: Crossing::Whole }
    }
}

/// What a worker says at the end of a leg.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) prompt_tokens: u64,
    pub(super) cached_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) status: u16,
    pub(super) error: String,
    /// When the worker wants to be asked again, from now.
    pub(super) retry_after_ns: Option<u64>,
}

impl Answer {
    pub(super) fn failed(status: u16, error: &str) -> Self {
        Self {
            prompt_tokens: 0,
            cached_tokens: 0,
            output_tokens: 0,
            status,
            error: error.to_owned(),
            retry_after_ns: None,
        }
    }
}

impl World {
    pub(super) fn submit(&mut self, now_ns: u64, leg: Leg, prompt: Prompt) {
        let Leg { id, host, rank, room } = leg;
        // The router has closed the connection before the worker had read the request.
        if !self.is_open(id, host) {
            return;
        }
        let role = self.hosts[host].role;
        if let Some(handover) = room.and_then(|room| self.handovers.get_mut(&room)) {
            handover.has_come |= handover.prefill == host;
        }
        if !self.hosts[host].up {
            self.tell(now_ns, id, host, LegEnd::Broken(Cause::Connect));
            return;
        }
        match self.dice.mood(role, id) {
            Some(Mood::Answers { status, busy }) => {
                let error = if busy { "Too busy" } else { "Internal Server Error" };
                let retry_after_ns = busy.then_some(RETRY_AFTER_NS);
                let answer = Answer { retry_after_ns, ..Answer::failed(status, error) };
                return self.tell(now_ns, id, host, LegEnd::Answered(answer));
            }
            Some(Mood::Silent) => return,
            None => {}
        }
        let output_tokens = self.requests[seq_of(id)].output_tokens;
        let submit = Submit { room, ..Submit::of_prompt(id, prompt, output_tokens) };
        let prompt_tokens = submit.prompt.len() as u64;
        self.hosts[host].inside.insert(id);
        let mut events = std::mem::take(&mut self.events);
        let taken = self.hosts[host].ranks.submit(now_ns, submit, rank, &mut events);
        self.collect(host, events);
        let refusal = match taken {
            Ok(rank) => {
                self.note_rank(id, host, rank);
                None
            }
            Err(refusal) => Some(refusal),
        };
        if let Some(refusal) = refusal {
            match refusal {
                Refusal::NoRoom => self.dice.note("room missing"),
                Refusal::RoomTaken { .. } => self.dice.note("room in use"),
                _ => {}
            }
            self.leaves(host, id);
            let answer = refused(role, &refusal, prompt_tokens);
            self.tell(now_ns, id, host, LegEnd::Answered(answer));
        }
        self.arm_engine(host);
    }

    /// The rank that has taken the leg which computes the prompt is what the record tells.
    fn note_rank(&mut self, id: RequestId, host: usize, rank: u32) {
        let record = &mut self.records[seq_of(id)];
        if self.fleet.ranks.size > 1 && record.prefill_worker.or(record.worker) == Some(host as u32) {
            record.rank = Some(rank);
        }
    }

    /// Lets the router hear, one hop later, how a leg has ended.
    pub(super) fn tell(&mut self, at_ns: u64, id: RequestId, host: usize, end: LegEnd) {
        self.clock.at(at_ns + self.hop_ns, Event::Ended { id, host, end });
    }

    pub(super) fn abort(&mut self, now_ns: u64, host: usize, id: RequestId) {
        self.touch(host, |ranks, events| {
            ranks.abort(now_ns, id, events);
        });
    }

    pub(super) fn kv_wanted(&mut self, now_ns: u64, host: usize, room: u64) {
        if self.hosts[host].up && self.handovers.get(&room).is_some_and(|handover| !handover.has_come) {
            self.dice.note("asked before it came");
        }
        self.touch(host, |ranks, events| {
            ranks.kv_wanted(now_ns, room, events);
        });
    }

    pub(super) fn kv_arrived(&mut self, now_ns: u64, host: usize, room: u64, cached_tokens: u32) {
        self.touch(host, |ranks, events| {
            ranks.kv_arrived(now_ns, room, cached_tokens, events);
        });
    }

    pub(super) fn handoff_failed(&mut self, now_ns: u64, host: usize, room: u64, fault: HandoffFault) {
        let found = self.touch(host, |ranks, events| ranks.handoff_failed(now_ns, room, fault, events));
        if !found {
            return;
        }
        let is_computed = self.handovers.get(&room).is_some_and(|handover| handover.is_computed);
        self.dice.note(match (self.hosts[host].role, fault) {
            (EngineRole::Prefill, _) if is_computed => "prefill failed in flight",
            (EngineRole::Prefill, _) => "prefill failed before",
            (_, HandoffFault::PeerLost | HandoffFault::Unreached) => "decode lost its peer",
            (_, HandoffFault::Transfer) => "decode failed",
        });
    }

    pub(super) fn wake_engine(&mut self, now_ns: u64, host: usize) {
        // Stale when an earlier wake-up was put on the heap after this one.
        if self.hosts[host].wake_ns != Some(now_ns) {
            return;
        }
        self.hosts[host].wake_ns = None;
        self.bring_up_to(now_ns, host);
    }

    /// Lets a worker do everything until `now_ns`.
    pub(super) fn bring_up_to(&mut self, now_ns: u64, host: usize) {
        self.touch(host, |ranks, events| ranks.advance(now_ns, events));
    }

    /// Does something to the engines of a worker that is up, and passes on what they say of it.
    fn touch<T: Default>(
        &mut self,
        host: usize,
        what: impl FnOnce(&mut simworker_core::Ranks, &mut Vec<EngineEvent>) -> T,
    ) -> T {
        if !self.hosts[host].up {
            return T::default();
        }
        let mut events = std::mem::take(&mut self.events);
        let result = what(&mut self.hosts[host].ranks, &mut events);
        self.collect(host, events);
        self.arm_engine(host);
        result
    }

    /// A worker has ended a leg. One that it does not have is counted: no leg may end twice.
    fn leaves(&mut self, host: usize, id: RequestId) {
        if !self.hosts[host].inside.remove(&id) {
            self.ended_twice += 1;
        }
    }

    fn arm_engine(&mut self, host: usize) {
        let Some(at_ns) = self.hosts[host].ranks.next_deadline() else { return };
        if self.hosts[host].wake_ns.is_none_or(|armed| at_ns < armed) {
            self.hosts[host].wake_ns = Some(at_ns);
            self.clock.at(at_ns, Event::Engine(host));
        }
    }

    /// Turns what a worker said into what the others will see one hop later.
    fn collect(&mut self, host: usize, mut events: Vec<EngineEvent>) {
        let role = self.hosts[host].role;
        for event in events.drain(..) {
            match event {
                // A prefill worker answers when the KV has arrived, all at once.
                EngineEvent::FirstToken { id, at_ns, .. } if role == EngineRole::Prefill => {
                    self.computed_prompt(at_ns, id);
                }
                EngineEvent::FirstToken { id, at_ns, .. } => {
                    self.clock.at(at_ns + self.hop_ns, Event::FirstToken(id));
                }
                EngineEvent::Step { gap_ns, tokens, .. } => {
                    self.itl_ns.saturating_record_n(gap_ns, u64::from(tokens));
                }
                // Nobody has asked for it.
                EngineEvent::Kv { .. } => {}
                EngineEvent::KvWanted { room, at_ns, .. } => self.carry_want(at_ns, room),
                EngineEvent::KvSent { room, at_ns, cached_tokens, .. } => {
                    self.carry_kv(at_ns, room, cached_tokens);
                }
                EngineEvent::Finish {
                    id,
                    at_ns,
                    reason,
                    prompt_tokens,
                    cached_tokens,
                    output_tokens,
                    ..
                } => {
                    self.leaves(host, id);
                    let answer = Answer {
                        prompt_tokens: u64::from(prompt_tokens),
                        cached_tokens: u64::from(cached_tokens),
                        output_tokens: u64::from(output_tokens),
                        status: status_of(role, reason, output_tokens),
                        error: error_of(reason).to_owned(),
                        retry_after_ns: None,
                    };
                    self.tell(at_ns, id, host, LegEnd::Answered(answer));
                }
            }
        }
        self.events = events;
    }

    /// The decode worker of a room has its slots; the prefill worker will hear of it, if nothing goes wrong. Where the
    /// router has given up the attempt, both workers are about to.
    fn carry_want(&mut self, at_ns: u64, room: u64) {
        let Some(handover) = self.handovers.get_mut(&room) else { return };
        let crossing = self.dice.crossing(handover.id);
        handover.crossing = crossing;
        let Handover { prefill, decode, .. } = *handover;
        let heard_ns = at_ns + self.hop_ns;
        match crossing {
            Crossing::Unheard => return,
            Crossing::PeerLost => {
                let event = Event::HandoffFailed { host: decode, room, fault: HandoffFault::PeerLost };
                self.clock.at(at_ns + PEER_LOST_AFTER_NS, event);
                return;
            }
            Crossing::FailsFirst => return self.fail_both(heard_ns, room),
            Crossing::FailsMidway(after_ns) => self.fail_both(heard_ns + after_ns, room),
            Crossing::Whole | Crossing::FailsInFlight | Crossing::FailsLast => {}
        }
        self.clock.at(heard_ns, Event::KvWanted { host: prefill, room });
    }

    /// A prefill worker has computed the prompt of an attempt; its KV is on its way.
    fn computed_prompt(&mut self, at_ns: u64, id: RequestId) {
        let Some(room) = self.room_of(id) else { return };
        let Some(handover) = self.handovers.get_mut(&room) else { return };
        handover.is_computed = true;
        if handover.crossing == Crossing::FailsInFlight {
            self.fail_both(at_ns, room);
        }
    }

    /// The prefill worker of a room notices that the hand-off fails, and tells the decode worker.
    fn fail_both(&mut self, at_ns: u64, room: u64) {
        let Some(Handover { prefill, decode, .. }) = self.handovers.get(&room).copied() else { return };
        for (host, at_ns) in [(prefill, at_ns), (decode, at_ns + self.hop_ns)] {
            self.clock.at(at_ns, Event::HandoffFailed { host, room, fault: HandoffFault::Transfer });
        }
    }

    /// The KV of a room leaves the prefill worker whole, and arrives so, if nothing goes wrong.
    fn carry_kv(&mut self, at_ns: u64, room: u64, cached_tokens: u32) {
        let Some(Handover { decode: host, crossing, .. }) = self.handovers.get(&room).copied() else {
            return;
        };
        let event = match crossing {
            Crossing::FailsLast => Event::HandoffFailed { host, room, fault: HandoffFault::Transfer },
            _ => Event::KvArrived { host, room, cached_tokens },
        };
        self.clock.at(at_ns + self.hop_ns, event);
    }
}

/// The answer to a leg that a worker does not take. A stream begins with status 200 and tells of the refusal in a frame;
/// only the scheduler's own ones count the prompt. A prefill worker's is read to the end before it counts.
fn refused(role: EngineRole, refusal: &Refusal, prompt_tokens: u64) -> Answer {
    let status = if role == EngineRole::Prefill { refusal.status() } else { 200 };
    let mut answer = Answer::failed(status, &refusal.to_string());
    answer.prompt_tokens = if refusal.is_scheduler_abort() { prompt_tokens } else { 0 };
    answer
}

/// The status of an answer that ended so: an error before the first token is its status, a later one is told in a stream
/// that had begun with 200. A prefill worker's answer is read to its end, so the router knows its error in either case.
fn status_of(role: EngineRole, reason: FinishReason, output_tokens: u32) -> u16 {
    match reason {
        FinishReason::Error { status, .. } if output_tokens == 0 || role == EngineRole::Prefill => status,
        _ => 200,
    }
}

/// The error in the last frame of a stream that ended so; empty if there is none.
fn error_of(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Length | FinishReason::Stop => "",
        FinishReason::Abort { message } | FinishReason::Error { message, .. } => message,
    }
}
