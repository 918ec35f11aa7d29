//! What sits behind a worker's lock: the engine with the requests around it, moved from event to event.

mod handoff;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use simworker_core::{
    EngineLoads, EngineTotals, Event, FinishReason, HandoffFault, LoadReport, PauseMode, Ranks, RequestId,
    Submit,
};
use tokio::sync::{mpsc, oneshot};

use super::front::{Front, News};
use super::readers::Readers;
use super::side::{self, Side};
use super::speed::StepSpeed;
use super::{DuplicateRid, Job};
use crate::clock::unix_seconds;
use crate::handoff::{Failed, Handoff, Task};
use crate::kv::Publisher;
use crate::lag::{Lag, Stepped};
use crate::latency::{Latencies, Traffic};
use crate::mailbox::{Ending, Finish, Mailbox};
use crate::reply::Reply;
use crate::tally::{Ended, Tally};

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
    pub(super) tally: Tally,
    /// The load that is told in place of the real one.
    pub(super) frozen: Option<Vec<ToldLoads>>,
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
    pub(super) times: Times,
}

/// When a request was where, for the books.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    queued_ns: Option<u64>,
    first_token_ns: Option<u64>,
}

/// The load of a rank as it is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToldLoads {
    pub(crate) loads: EngineLoads,
    /// The moment it is of, in seconds since the epoch.
    pub(crate) unix_s: f64,
    /// The rank makes no steps.
    pub(crate) is_paused: bool,
}

impl Inner {
    /// Around idle ranks.
    pub(super) fn new(engine: Ranks, around: Surroundings, front: Front, speed: StepSpeed) -> Self {
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
        let anew = Self::new(engine, self.around.clone(), self.front.emptied(), self.speed);
        *self = Self { next_id, frozen, ..anew };
        self.set_slowness(now_ns, self.speed.slowness());
    }

    /// From their next step on, all ranks take so many times as long as they should.
    pub(super) fn set_slowness(&mut self, now_ns: u64, slowness: f64) {
        self.speed.set_slowness(slowness);
        self.engine.set_pace_factor(now_ns, slowness, &mut self.events);
    }

    /// Requests in the queues of all ranks, and those on their way there.
    pub(super) fn queued(&self) -> u64 {
        let waiting = (0..self.engine.size()).map(|rank| self.engine.loads(rank).waiting);
        self.arrivals.len() as u64 + waiting.sum::<u64>()
    }

    /// The load of each rank to tell, where engine time passes `speed` times as fast as real time.
    pub(super) fn told_loads(&self, now_ns: u64, speed: f64) -> Vec<ToldLoads> {
        let told = |rank| {
            let LoadReport { at_ns, loads } = self.engine.reported_loads(rank, now_ns);
            let age_s = now_ns.saturating_sub(at_ns) as f64 / 1e9 / speed;
            ToldLoads { loads, unix_s: unix_seconds() - age_s, is_paused: self.engine.is_paused() }
        };
        self.frozen.clone().unwrap_or_else(|| (0..self.engine.size()).map(told).collect())
    }

    /// The last load that each rank reported, and its counters.
    pub(super) fn report(&self, now_ns: u64) -> Vec<(EngineLoads, EngineTotals)> {
        let rank = |rank| (self.engine.reported_loads(rank, now_ns).loads, self.engine.totals(rank));
        (0..self.engine.size()).map(rank).collect()
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

    /// Ends a request, wherever it is.
    pub(super) fn abort(&mut self, now_ns: u64, id: RequestId) {
        let Some(live) = self.live.get(&id) else { return };
        let Some(due_ns) = live.due_ns else {
            self.engine.abort(now_ns, id, &mut self.events);
            return;
        };
        self.arrivals.remove(&(due_ns, id));
        let reason = FinishReason::Abort { message: ABORTED_WAITING };
        let finish = Finish { reason, cached_tokens: 0, host_tokens: 0, output_tokens: 0, retractions: 0 };
        self.end(now_ns, id, Ending::Finished(finish));
    }

    /// Makes no more steps.
    pub(super) fn pause(&mut self, now_ns: u64, mode: PauseMode) {
        self.engine.pause(now_ns, mode, &mut self.events);
    }

    /// Makes steps again.
    pub(super) fn resume(&mut self, now_ns: u64) {
        self.engine.resume(now_ns, &mut self.events);
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
        self.tally.queued(live.traffic, due_ns.saturating_sub(live.arrived_ns));
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
    pub(super) fn deliver(&mut self, lag: &Lag) {
        while !self.events.is_empty() {
            let mut events = std::mem::take(&mut self.events);
            for event in events.drain(..) {
                self.tell(event);
            }
            if self.events.is_empty() {
                // Its space is used again.
                self.events = events;
                break;
            }
        }
        if let Some(stepped) = self.stepped.take() {
            self.tell_retractions();
            self.tell_counts(stepped.at_ns);
            lag.step(stepped);
        }
    }

    /// Looks for requests that have been retracted, unless there can be none.
    fn tell_retractions(&mut self) {
        let totals = (0..self.engine.size()).map(|rank| self.engine.totals(rank).retractions);
        let retractions: u64 = totals.sum();
        if self.live.is_empty() {
            self.told_retractions = retractions;
        }
        if retractions == self.told_retractions {
            return;
        }
        for (id, times) in self.engine.retracted() {
            if let Some(live) = self.live.get(&id) {
                live.mailbox.retracted(times);
            }
        }
    }

    fn tell_counts(&mut self, at_ns: u64) {
        let Self { engine, live, readers, front, .. } = self;
        let mut places = 0;
        for (id, tokens) in engine.running() {
            let Some(reader) = readers.at(places, id, || live.get(&id)) else { continue };
            places += 1;
            if !front.is_there() {
                reader.mailbox.tokens(at_ns, tokens);
            } else if front.is_told(tokens, reader.traffic) && tokens > 1 {
                let through_ns = front.take(at_ns, reader.traffic);
                front.pass(through_ns, &reader.mailbox, News::Tokens(tokens));
            }
        }
        readers.truncate(places);
    }

    fn tell(&mut self, event: Event) {
        match event {
            Event::Kv { rank, events, .. } => {
                if let Some(kv) = &self.around.kv {
                    kv.publish(rank, events);
                }
            }
            Event::FirstToken { id, at_ns, cached_tokens, host_tokens } => {
                let Some(live) = self.live.get_mut(&id) else { return };
                live.times.first_token_ns = Some(at_ns);
                let through_ns = self.front.take(at_ns, live.traffic);
                // A client of a prefill worker hears nothing before its KV has arrived, or has not.
                if live.side.sends().is_none() {
                    let news = News::FirstToken { cached_tokens, host_tokens };
                    self.front.pass(through_ns, &live.mailbox, news);
                }
                self.latencies.first_token(live.traffic, through_ns.saturating_sub(live.arrived_ns));
                let is_doomed = |room: &u64| self.waiting.get(room).is_some_and(|waiting| waiting.is_doomed);
                if let Some(room) = live.side.sends().filter(is_doomed) {
                    self.engine.handoff_failed(at_ns, room, HandoffFault::Transfer, &mut self.events);
                }
            }
            Event::Step { at_ns, gap_ns, tokens } => {
                self.latencies.tokens(gap_ns, tokens);
                let stepped = self.stepped.get_or_insert_default();
                stepped.at_ns = at_ns;
                stepped.gaps_ns += gap_ns * u64::from(tokens);
                stepped.tokens += u64::from(tokens);
            }
            Event::KvWanted { id, room, at_ns, tokens } => {
                if self.live.get(&id).is_some_and(|live| live.side.wants(tokens)) {
                    // Nobody is on the other side.
                    self.engine.kv_arrived(at_ns, room, 0, &mut self.events);
                }
            }
            Event::KvSent { room, cached_tokens, .. } => self.answer_kv(room, Ok(cached_tokens)),
            Event::Finish {
                id,
                at_ns,
                reason,
                prompt_tokens,
                cached_tokens,
                host_tokens,
                output_tokens,
                retractions,
                queue_ns,
            } => {
                let mut through_ns = at_ns;
                if let Some(live) = self.live.get(&id) {
                    let queue_ns = (output_tokens > 0).then_some(queue_ns);
                    through_ns = self.front.take(at_ns, live.traffic);
                    let e2e_ns = through_ns.saturating_sub(live.arrived_ns);
                    self.latencies.ended(live.traffic, e2e_ns, queue_ns);
                    let Times { queued_ns, first_token_ns } = live.times;
                    self.tally.ended(&Ended {
                        traffic: live.traffic,
                        prompt_tokens,
                        cached_tokens,
                        output_tokens,
                        decode_ns: first_token_ns.map(|first| at_ns.saturating_sub(first)),
                        prefill_ns: first_token_ns.zip(queued_ns).map(|(first, queued)| first - queued),
                    });
                    if let (Some(room), FinishReason::Error { message, .. }) = (live.side.sends(), reason) {
                        self.answer_kv(room, Err(Failed(message.to_owned())));
                    }
                }
                let finish = Finish { reason, cached_tokens, host_tokens, output_tokens, retractions };
                self.close(through_ns, id, Ending::Finished(finish));
            }
        }
    }

    /// Ends a request that the ranks do not have.
    fn end(&mut self, at_ns: u64, id: RequestId, ending: Ending) {
        let Some(live) = self.live.get(&id) else { return };
        let through_ns = self.front.take(at_ns, live.traffic);
        self.close(through_ns, id, ending);
    }

    /// Forgets a request. Its reader is told when the news are through.
    fn close(&mut self, through_ns: u64, id: RequestId, ending: Ending) {
        let Some(live) = self.live.remove(&id) else { return };
        self.rids.remove(&live.rid);
        let news = News::End(ending, through_ns.saturating_sub(live.arrived_ns));
        self.front.pass(through_ns, &live.mailbox, news);
    }
}
