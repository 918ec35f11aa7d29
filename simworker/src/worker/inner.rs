//! What sits behind a worker's lock: the engine with the requests around it, moved from event to event.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use simworker_core::{Engine, EngineLoads, Event, FinishReason, RequestId, Submit};

use super::{DuplicateRid, Job};
use crate::clock::unix_seconds;
use crate::latency::{Latencies, Traffic};
use crate::mailbox::{Ending, Finish, Mailbox};

/// What SGLang's scheduler says about a request that is aborted before it ran.
const ABORTED_WAITING: &str = "Abort in waiting queue";

/// An engine, the requests on their way into it, and those inside.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) engine: Engine,
    next_id: u64,
    /// Requests whose overhead (tokenising, HTTP, IPC) is not over, by the time it will be.
    arrivals: BTreeMap<(u64, RequestId), Submit>,
    pub(super) live: HashMap<RequestId, Live>,
    rids: BTreeMap<String, RequestId>,
    events: Vec<Event>,
    pub(super) latencies: Latencies,
    /// The load that is told in place of the real one, and since when, in seconds since the epoch.
    pub(super) frozen: Option<(EngineLoads, f64)>,
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
}

impl Inner {
    /// Around an idle engine.
    pub(super) fn new(engine: Engine) -> Self {
        Self {
            engine,
            next_id: 0,
            arrivals: BTreeMap::new(),
            live: HashMap::new(),
            rids: BTreeMap::new(),
            events: Vec::new(),
            latencies: Latencies::default(),
            frozen: None,
        }
    }

    /// Loses all requests and figures. Ids are not given twice, as tickets of lost requests may still come with
    /// theirs, and what is told about the load is up to whoever froze it.
    pub(super) fn restart(&mut self, engine: Engine) {
        *self = Self { next_id: self.next_id, frozen: self.frozen, ..Self::new(engine) };
    }

    /// The load, and the moment it is of in seconds since the epoch.
    pub(super) fn loads(&self) -> (EngineLoads, f64) {
        (self.engine.loads(), unix_seconds())
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
        let Job { rid, prompt, ignore_eos, priority, namespace, .. } = job;
        let request = Submit { id, prompt, max_new_tokens, ignore_eos, priority, namespace };
        self.arrivals.insert((live.due_ns.unwrap_or(live.arrived_ns), id), request);
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
        let Some(((due_ns, id), request)) = self.arrivals.pop_first() else { return };
        if let Some(live) = self.live.get_mut(&id) {
            live.due_ns = None;
        }
        if let Err(refusal) = self.engine.submit(due_ns, request, &mut self.events) {
            let (status, message) = (refusal.status(), refusal.to_string());
            let by_scheduler = refusal.is_scheduler_abort();
            self.end(due_ns, id, Ending::Refused { status, message, by_scheduler });
        }
    }

    /// Carries what the engine produced to the mailboxes.
    pub(super) fn deliver(&mut self) {
        let mut stepped = false;
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            match event {
                Event::FirstToken { id, at_ns, cached_tokens } => {
                    if let Some(live) = self.live.get(&id) {
                        live.mailbox.first_token(cached_tokens);
                        self.latencies.first_token(live.traffic, at_ns.saturating_sub(live.arrived_ns));
                    }
                }
                Event::Step { gap_ns, tokens, .. } => {
                    stepped = true;
                    self.latencies.tokens(gap_ns, tokens);
                }
                Event::Finish {
                    id,
                    at_ns,
                    reason,
                    cached_tokens,
                    output_tokens,
                    retractions,
                    queue_ns,
                    ..
                } => {
                    if let Some(live) = self.live.get(&id) {
                        let queue_ns = (output_tokens > 0).then_some(queue_ns);
                        let e2e_ns = at_ns.saturating_sub(live.arrived_ns);
                        self.latencies.ended(live.traffic, e2e_ns, queue_ns);
                    }
                    let finish = Finish { reason, cached_tokens, output_tokens, retractions };
                    self.end(at_ns, id, Ending::Finished(finish));
                }
            }
        }
        self.events = events;
        if stepped {
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
    }

    fn end(&mut self, at_ns: u64, id: RequestId, ending: Ending) {
        let Some(live) = self.live.remove(&id) else { return };
        self.rids.remove(&live.rid);
        live.mailbox.end(ending, at_ns.saturating_sub(live.arrived_ns));
    }
}
