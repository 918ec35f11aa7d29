//! What sits behind a worker's lock: the engine with the requests around it, moved from event to event.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use simworker_core::{
    EngineLoads, EngineTotals, Event, FinishReason, HandoffFault, Ranks, RequestId, Submit,
};
use tokio::sync::{mpsc, oneshot};

use super::side::{self, Side};
use super::{DuplicateRid, Job};
use crate::clock::unix_seconds;
use crate::handoff::{Failed, Handoff, Task};
use crate::latency::{Latencies, Traffic};
use crate::mailbox::{Ending, Finish, Mailbox};

/// What SGLang's scheduler says about a request that is aborted before it ran.
const ABORTED_WAITING: &str = "Abort in waiting queue";

/// The ranks, the requests on their way into them, and those inside.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) engine: Ranks,
    around: Surroundings,
    next_id: u64,
    /// Requests whose overhead (tokenising, HTTP, IPC) is not over, by the time it will be.
    arrivals: BTreeMap<(u64, RequestId), Arrival>,
    pub(super) live: HashMap<RequestId, Live>,
    rids: BTreeMap<String, RequestId>,
    events: Vec<Event>,
    pub(super) latencies: Latencies,
    /// The load that is told in place of the real one, and since when, in seconds since the epoch.
    pub(super) frozen: Option<(Vec<EngineLoads>, f64)>,
    /// Prefill: who waits for the KV of a room.
    waiting: HashMap<u64, Waiting>,
}

/// Somebody waits for the KV of a room.
#[derive(Debug)]
struct Waiting {
    /// The rank that was asked.
    rank: u32,
    /// The transfer is to fail.
    is_doomed: bool,
    tell: oneshot::Sender<Result<u32, Failed>>,
}

/// What the requests of a worker have to do with others.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    /// The bootstrap server must be told which rank has which room.
    pub(super) tells_ranks: bool,
    pub(super) tasks: mpsc::UnboundedSender<Task>,
}

/// A request on its way.
#[derive(Debug)]
struct Arrival {
    request: Submit,
    rank: Option<u32>,
    handoff: Option<Handoff>,
}

/// A request that has not ended.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) rid: String,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) traffic: Traffic,
    pub(super) arrived_ns: u64,
    /// Its key among the arrivals while it is there.
    pub(super) due_ns: Option<u64>,
    /// What it has to do with the other side.
    pub(super) side: Side,
}

impl Inner {
    /// Around idle ranks.
    pub(super) fn new(engine: Ranks, around: Surroundings) -> Self {
        Self {
            engine,
            around,
            next_id: 0,
            arrivals: BTreeMap::new(),
            live: HashMap::new(),
            rids: BTreeMap::new(),
            events: Vec::new(),
            latencies: Latencies::default(),
            frozen: None,
            waiting: HashMap::new(),
        }
    }

    /// Loses all requests and figures. Ids are not given twice, as tickets of lost requests may still come with
    /// theirs, and what is told about the load is up to whoever froze it.
    pub(super) fn restart(&mut self, engine: Ranks) {
        let (next_id, frozen) = (self.next_id, self.frozen.take());
        *self = Self { next_id, frozen, ..Self::new(engine, self.around.clone()) };
    }

    /// The load of each rank to tell, and the moment it is of in seconds since the epoch.
    pub(super) fn told_loads(&self) -> (Vec<EngineLoads>, f64) {
        let loads =
            || ((0..self.engine.size()).map(|rank| self.engine.loads(rank)).collect(), unix_seconds());
        self.frozen.clone().unwrap_or_else(loads)
    }

    /// The load and the counters of each rank.
    pub(super) fn report(&self) -> Vec<(EngineLoads, EngineTotals)> {
        (0..self.engine.size()).map(|rank| (self.engine.loads(rank), self.engine.totals(rank))).collect()
    }

    /// Takes a request that is on its way; its id must be free.
    pub(super) fn enlist(
        &mut self,
        job: Job,
        max_new_tokens: u32,
        live: Live,
    ) -> Result<RequestId, DuplicateRid> {
        if self.rids.contains_key(&job.rid) {
            return Err(DuplicateRid);
        }
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let Job { rid, prompt, ignore_eos, priority, namespace, rank, handoff, .. } = job;
        let room = handoff.as_ref().map(|handoff| side::room(handoff, id));
        let request = Submit { id, prompt, max_new_tokens, ignore_eos, priority, namespace, room };
        let arrival = Arrival { request, rank, handoff };
        self.arrivals.insert((live.due_ns.unwrap_or(live.arrived_ns), id), arrival);
        self.rids.insert(rid, id);
        self.live.insert(id, live);
        Ok(id)
    }

    /// Ends a request, wherever it is.
    pub(super) fn abort(&mut self, now_ns: u64, id: RequestId) {
        let Some(live) = self.live.get(&id) else { return };
        let Some(due_ns) = live.due_ns else {
            self.engine.abort(now_ns, id, &mut self.events);
            return;
        };
        self.arrivals.remove(&(due_ns, id));
        let reason = FinishReason::Abort { message: ABORTED_WAITING };
        let finish = Finish { reason, cached_tokens: 0, output_tokens: 0, retractions: 0 };
        self.end(now_ns, id, Ending::Finished(finish));
    }

    /// Ends all requests whose ids begin with this.
    pub(super) fn abort_matching(&mut self, now_ns: u64, prefix: &str) {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let matching = self.rids.range::<str, _>(from).take_while(|(rid, _)| rid.starts_with(prefix));
        let ids: Vec<RequestId> = matching.map(|(_, id)| *id).collect();
        for id in ids {
            self.abort(now_ns, id);
        }
    }

    /// Engine time at which something is due; `u64::MAX` when nothing is.
    pub(super) fn next_deadline(&self) -> u64 {
        let arrival = self.arrivals.keys().next().map_or(u64::MAX, |(due_ns, _)| *due_ns);
        arrival.min(self.engine.next_deadline().unwrap_or(u64::MAX))
    }

    /// Applies arrivals and steps one by one in their order, each at its own time, however late this is.
    pub(super) fn catch_up(&mut self, now_ns: u64) {
        loop {
            let next_ns = self.next_deadline();
            if next_ns > now_ns {
                return;
            }
            // Arrivals first: a scheduling pass at the same moment considers them.
            if self.arrivals.keys().next().is_some_and(|(due_ns, _)| *due_ns == next_ns) {
                self.admit_next();
            } else {
                self.engine.advance(next_ns, &mut self.events);
            }
            self.deliver();
        }
    }

    fn admit_next(&mut self) {
        let Some(((due_ns, id), Arrival { request, rank, handoff })) = self.arrivals.pop_first() else {
            return;
        };
        let Some(live) = self.live.get_mut(&id) else { return };
        live.due_ns = None;
        let room = request.room;
        let rank = match self.engine.submit(due_ns, request, rank, &mut self.events) {
            Ok(rank) => rank,
            Err(refusal) => {
                let (status, message) = (refusal.status(), refusal.to_string());
                let by_scheduler = refusal.is_scheduler_abort();
                self.end(due_ns, id, Ending::Refused { status, message, by_scheduler });
                return;
            }
        };
        live.mailbox.ranked(rank);
        if let (Some(handoff), Some(room)) = (handoff, room) {
            live.side = Side::begin(&self.around, handoff, id, room, rank);
            let is_alone = matches!(live.side, Side::Prefill { is_alone: true, .. });
            if is_alone || self.waiting.get(&room).is_some_and(|waiting| waiting.rank == rank) {
                self.engine.kv_wanted(due_ns, room, &mut self.events);
            }
        }
    }

    /// Carries what the engine produced to the mailboxes, and to the other side.
    pub(super) fn deliver(&mut self) {
        let mut stepped = false;
        while !self.events.is_empty() {
            let mut events = std::mem::take(&mut self.events);
            for event in events.drain(..) {
                stepped |= matches!(event, Event::Step { .. });
                self.tell(event);
            }
            if self.events.is_empty() {
                // Its space is used again.
                self.events = events;
                break;
            }
        }
        if stepped {
            self.tell_counts();
        }
    }

    fn tell_counts(&self) {
        for (id, times) in self.engine.retracted() {
            if let Some(live) = self.live.get(&id) {
                live.mailbox.retracted(times);
            }
        }
        for (id, tokens) in self.engine.running() {
            if let Some(live) = self.live.get(&id) {
                live.mailbox.tokens(tokens);
            }
        }
    }

    fn tell(&mut self, event: Event) {
        match event {
            Event::FirstToken { id, at_ns, cached_tokens } => {
                let Some(live) = self.live.get(&id) else { return };
                // A client of a prefill worker hears nothing before its KV has arrived, or has not.
                if live.side.sends().is_none() {
                    live.mailbox.first_token(cached_tokens);
                }
                self.latencies.first_token(live.traffic, at_ns.saturating_sub(live.arrived_ns));
                let is_doomed = |room: &u64| self.waiting.get(room).is_some_and(|waiting| waiting.is_doomed);
                if let Some(room) = live.side.sends().filter(is_doomed) {
                    self.engine.handoff_failed(at_ns, room, HandoffFault::Transfer, &mut self.events);
                }
            }
            Event::Step { gap_ns, tokens, .. } => self.latencies.tokens(gap_ns, tokens),
            Event::KvWanted { id, room, at_ns, tokens } => {
                if self.live.get(&id).is_some_and(|live| live.side.wants(tokens)) {
                    // Nobody is on the other side.
                    self.engine.kv_arrived(at_ns, room, 0, &mut self.events);
                }
            }
            Event::KvSent { room, cached_tokens, .. } => self.answer_kv(room, Ok(cached_tokens)),
            Event::Finish {
                id, at_ns, reason, cached_tokens, output_tokens, retractions, queue_ns, ..
            } => {
                if let Some(live) = self.live.get(&id) {
                    let queue_ns = (output_tokens > 0).then_some(queue_ns);
                    let e2e_ns = at_ns.saturating_sub(live.arrived_ns);
                    self.latencies.ended(live.traffic, e2e_ns, queue_ns);
                    if let (Some(room), FinishReason::Error { message, .. }) = (live.side.sends(), reason) {
                        self.answer_kv(room, Err(Failed(message.to_owned())));
                    }
                }
                let finish = Finish { reason, cached_tokens, output_tokens, retractions };
                self.end(at_ns, id, Ending::Finished(finish));
            }
        }
    }

    fn end(&mut self, at_ns: u64, id: RequestId, ending: Ending) {
        let Some(live) = self.live.remove(&id) else { return };
        self.rids.remove(&live.rid);
        live.mailbox.end(ending, at_ns.saturating_sub(live.arrived_ns));
    }
}

// === impl Inner: the hand-off of KV ===

impl Inner {
    /// Prefill: the decode side has slots for the KV of `room`, which it believes to be on `rank`.
    pub(super) fn want_kv(
        &mut self,
        now_ns: u64,
        rank: u32,
        room: u64,
        is_doomed: bool,
    ) -> oneshot::Receiver<Result<u32, Failed>> {
        let (tell, sent) = oneshot::channel();
        self.waiting.insert(room, Waiting { rank, is_doomed, tell });
        // One that is not here yet is told when it comes, if somebody waits still. And a rank does not know what others
        // have: then both sides wait in vain.
        if self.engine.has_room(room) && self.engine.rank_of(room) == Some(rank) {
            self.engine.kv_wanted(now_ns, room, &mut self.events);
        }
        sent
    }

    /// Prefill: nobody waits for the KV of `room` any more, unless somebody else does.
    pub(super) fn forget_kv(&mut self, room: u64) {
        if self.waiting.get(&room).is_some_and(|waiting| waiting.tell.is_closed()) {
            self.waiting.remove(&room);
        }
    }

    fn answer_kv(&mut self, room: u64, outcome: Result<u32, Failed>) {
        if let Some(waiting) = self.waiting.remove(&room) {
            // Who has gone away need not be told.
            let _ = waiting.tell.send(outcome);
        }
    }

    /// Decode: what came of the hand-off of a request. One that has ended may have left its room to another.
    pub(super) fn kv_outcome(
        &mut self,
        now_ns: u64,
        id: RequestId,
        room: u64,
        outcome: Result<u32, HandoffFault>,
    ) {
        if !self.live.contains_key(&id) {
            return;
        }
        match outcome {
            Ok(cached_tokens) => self.engine.kv_arrived(now_ns, room, cached_tokens, &mut self.events),
            Err(fault) => self.engine.handoff_failed(now_ns, room, fault, &mut self.events),
        };
    }
}
