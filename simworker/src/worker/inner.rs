//! What sits behind a worker's lock: the engine with the requests around it, moved from event to event.

mod control;
mod counts;
mod events;
mod handoff;
mod report;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use simworker_core::{Event, Ranks, RequestId, Submit};
use tokio::sync::{mpsc, oneshot};

use super::front::Front;
use super::readers::Readers;
use super::side::{self, Side};
use super::speed::StepSpeed;
use super::{DuplicateRid, Job};
use crate::clock::ScaledClock;
use crate::handoff::{Failed, Handoff, Task};
use crate::kv::Publisher;
use crate::lag::{Lag, Stepped};
use crate::latency::{Latencies, Traffic};
use crate::mailbox::{Ending, Mailbox};
use crate::reply::Reply;
use crate::tally::Tally;
pub(crate) use report::{RankReport, ToldLoads};

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
    pub(super) tally: Tally,
    /// The load that is told in place of the real one.
    pub(super) frozen: Option<Vec<ToldLoads>>,
    clock: ScaledClock,
    /// Engine time at which its process started.
    pub(super) started_ns: u64,
    /// Prefill: who waits for the KV of a room.
    waiting: HashMap<u64, Waiting>,
    front: Front,
    readers: Readers,
    speed: StepSpeed,
    /// A step that has not been carried to the readers.
    stepped: Option<Stepped>,
    /// Retractions up to here have all been told, and their requests have ended.
    told_retractions: u64,
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
    pub(super) kv: Option<Arc<Publisher>>,
    /// Bytes of KV for a token on one GPU.
    pub(super) kv_bytes_per_token: f64,
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
    /// How it is counted: as what it is, or not at all.
    pub(super) counted: Counted,
    pub(super) arrived_ns: u64,
    /// Its key among the arrivals while it is there.
    pub(super) due_ns: Option<u64>,
    /// What it has to do with the other side.
    pub(super) side: Side,
    pub(super) times: Times,
}

/// Which figures a request is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    /// A probe is in none.
    pub(super) traffic: Traffic,
    /// Its own, where priorities count.
    pub(super) priority: Option<i64>,
}

/// When a request was where, for the books.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    queued_ns: Option<u64>,
    first_token_ns: Option<u64>,
}

impl Inner {
    /// Around idle ranks.
    pub(super) fn new(
        engine: Ranks,
        around: Surroundings,
        front: Front,
        speed: StepSpeed,
        clock: ScaledClock,
    ) -> Self {
        Self {
            engine,
            around,
            next_id: 0,
            arrivals: BTreeMap::new(),
            live: HashMap::new(),
            rids: BTreeMap::new(),
            events: Vec::new(),
            latencies: Latencies::default(),
            tally: Tally::default(),
            frozen: None,
            clock,
            started_ns: 0,
            waiting: HashMap::new(),
            front,
            readers: Readers::default(),
            speed,
            stepped: None,
            told_retractions: 0,
        }
    }

    /// Loses all requests and figures. Ids are not given twice, as tickets of lost requests may still come with
    /// theirs, and what is told about the load is up to whoever froze it.
    pub(super) fn restart(&mut self, now_ns: u64, engine: Ranks) {
        let (next_id, frozen) = (self.next_id, self.frozen.take());
        self.around.kv.iter().for_each(|kv| kv.restart());
        let anew = Self::new(engine, self.around.clone(), self.front.emptied(), self.speed, self.clock);
        *self = Self { next_id, frozen, started_ns: now_ns, ..anew };
        self.set_slowness(now_ns, self.speed.slowness());
    }

    /// From their next step on, all ranks take so many times as long as they should.
    pub(super) fn set_slowness(&mut self, now_ns: u64, slowness: f64) {
        self.speed.set_slowness(slowness);
        self.engine.set_pace_factor(now_ns, slowness, &mut self.events);
    }

    /// Whether these ids are free and differ from each other.
    pub(super) fn check_rids<'a>(&self, rids: impl Iterator<Item = &'a str>) -> Result<(), DuplicateRid> {
        let mut seen = HashSet::new();
        for rid in rids {
            if self.rids.contains_key(rid) || !seen.insert(rid) {
                return Err(DuplicateRid(rid.to_owned()));
            }
        }
        Ok(())
    }

    /// Takes a request that is on its way; its id must be free.
    pub(super) fn enlist(&mut self, job: Job, reply: &Reply, live: Live) -> RequestId {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let Job { is_prefill_only, .. } = job;
        let Job {
            rid,
            prompt,
            wish,
            priority,
            routing_key,
            match_limit,
            namespace,
            names,
            rank,
            handoff,
            ..
        } = job;
        let request = Submit {
            ignore_eos: wish.ignore_eos,
            priority,
            namespace,
            names,
            room: handoff.as_ref().map(|handoff| side::room(handoff, id)),
            ends_after: reply.ends_after(),
            match_limit,
            routing_key,
            is_prefill_only,
            ..Submit::new(id, prompt, reply.budget)
        };
        let arrival = Arrival { request, rank, handoff };
        self.arrivals.insert((live.due_ns.unwrap_or(live.arrived_ns), id), arrival);
        self.rids.insert(rid, id);
        self.live.insert(id, live);
        id
    }

    /// Ends a request that is not let in.
    pub(super) fn turn_away(&mut self, now_ns: u64, live: &Live, ending: Ending) -> RequestId {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        live.mailbox.end(now_ns, ending, 0);
        id
    }

    /// Engine time at which something is due; `u64::MAX` when nothing is.
    pub(super) fn next_deadline(&self) -> u64 {
        let arrival = self.arrivals.keys().next().map_or(u64::MAX, |(due_ns, _)| *due_ns);
        arrival.min(self.front.next_ns()).min(self.engine.next_deadline().unwrap_or(u64::MAX))
    }

    /// Applies arrivals and steps one by one in their order, each at its own time, however late this is.
    pub(super) fn catch_up(&mut self, now_ns: u64, lag: &Lag) {
        loop {
            let next_ns = self.next_deadline();
            if next_ns > now_ns {
                return;
            }
            self.front.release(next_ns);
            // Arrivals first: a scheduling pass at the same moment considers them.
            if self.arrivals.keys().next().is_some_and(|(due_ns, _)| *due_ns == next_ns) {
                self.admit_next();
            } else if self.engine.next_deadline().is_some_and(|due_ns| due_ns <= next_ns) {
                if let Some(factor) = self.speed.draw() {
                    self.engine.set_pace_factor(next_ns, factor, &mut self.events);
                }
                self.engine.advance(next_ns, &mut self.events);
            }
            self.deliver(lag);
        }
    }

    fn admit_next(&mut self) {
        let Some(((due_ns, id), Arrival { request, rank, handoff })) = self.arrivals.pop_first() else {
            return;
        };
        let Some(live) = self.live.get_mut(&id) else { return };
        live.due_ns = None;
        live.times.queued_ns = Some(due_ns);
        self.tally.queued(live.counted.traffic, due_ns.saturating_sub(live.arrived_ns));
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
}
