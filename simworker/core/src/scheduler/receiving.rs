//! The decode side of a hand-off.
//!
//! ```text
//! preallocation queue ──slots for the whole prompt──▶ transfer queue ──the KV has come──▶ ready ──▶ running batch
//!                                                       host ──slots are free again──────▶ ready
//!                                                         ▲────────no room for a step──────────────────┘
//! ```
//!
//! Preallocation is strictly first come, first served: a prompt that does not fit holds up all behind it. Requests that
//! were retracted keep their KV on the host; while one of them waits there, nobody new gets slots. Joining the batch
//! takes no forward pass, as the first token has come with the KV.

use super::admitted::Admitted;
use super::receiver::{Ready, Receiver};
use super::request::{FirstRun, Request};
use super::reserve::{Ask, Reserve};
use super::results::tell_token;
use super::sending::ABORTED_BETWEEN;
use super::{ABORTED_WAITING, Scheduler, Side};
use crate::handoff::{Cause, HandoffFault, Stage};
use crate::request::{Event, RequestId};

// === impl Scheduler: the decode role, from pass to pass ===

impl Scheduler {
    /// Gives out slots and lets requests into the batch, as far as there is room.
    pub(super) fn receive_kv(&mut self, at_ns: u64, events: &mut Vec<Event>) {
        loop {
            let Side::Decode(receiver) = &mut self.side else { return };
            if !self.config.overlap {
                receiver.receive();
            }
            self.resume();
            self.preallocate(at_ns, events);
            let ended = self.join_ready(at_ns, events);
            // What they held is there for the next pass, which is this one if there will be no step before it.
            if ended == 0 || !self.running.is_empty() {
                return;
            }
        }
    }

    /// Whether a pass could do any of that before somebody leaves or is heard from.
    pub(super) fn may_receive(&self) -> bool {
        let Side::Decode(receiver) = &self.side else { return false };
        if receiver.prealloc.has_unseen() || receiver.ready.has_unseen() {
            return true;
        }
        if !receiver.ready.is_empty() && self.occupied() < receiver.max_running {
            return true;
        }
        let reserve = self.reserve(receiver);
        if reserve.holders as usize >= receiver.slots {
            return false;
        }
        if let Some(request) = receiver.retracted.front() {
            return reserve.fits_again(self.slots_of(request), reserve.resumable());
        }
        let ask = receiver.prealloc.front().map(|request| self.ask(request));
        ask.is_some_and(|ask| reserve.holders == 0 || !reserve.blocks_until_somebody_leaves(ask))
    }

    /// Requests on the host get slots again. Loading them takes no time.
    fn resume(&mut self) {
        let Side::Decode(receiver) = &self.side else { return };
        if receiver.retracted.is_empty() {
            return;
        }
        let mut reserve = self.reserve(receiver);
        let mut resumable = reserve.resumable();
        while let Some((slots, request)) = self.pop_retracted(&reserve, resumable) {
            let (id, kv) = (request.id, request.len() - 1);
            let admitted = self.take_slots_for(request, kv);
            resumable = resumable.saturating_sub(slots + reserve.each);
            reserve.holders += 1;
            let Side::Decode(receiver) = &mut self.side else { return };
            receiver.ready.push_seen(id, Ready { admitted, cached: 0 });
        }
    }

    fn pop_retracted(&mut self, reserve: &Reserve, resumable: u64) -> Option<(u64, Request)> {
        let Side::Decode(receiver) = &self.side else { return None };
        let slots = self.slots_of(receiver.retracted.front()?);
        let fits = (reserve.holders as usize) < receiver.slots && reserve.fits_again(slots, resumable);
        let Side::Decode(receiver) = &mut self.side else { return None };
        if fits { receiver.retracted.pop().map(|request| (slots, request)) } else { None }
    }

    /// New requests get slots for their whole prompts, unless somebody still waits on the host.
    fn preallocate(&mut self, at_ns: u64, events: &mut Vec<Event>) {
        let Side::Decode(receiver) = &self.side else { return };
        if !receiver.retracted.is_empty() || receiver.prealloc.is_empty() {
            return;
        }
        let mut reserve = self.reserve(receiver);
        let mut allocatable = reserve.allocatable();
        while let Some((ask, request)) = self.pop_prealloc(&reserve, allocatable) {
            let (id, room, prompt) = (request.id, request.room, request.prompt.len());
            let admitted = self.take_slots_for(request, prompt);
            allocatable = allocatable.saturating_sub(ask.slots + reserve.each);
            reserve.holders += 1;
            let tokens = u32::try_from(prompt - admitted.hold.matched_len()).unwrap_or(u32::MAX);
            events.extend(room.map(|room| Event::KvWanted { id, room, at_ns, tokens }));
            let Side::Decode(receiver) = &mut self.side else { return };
            receiver.transfers.insert(id, at_ns.saturating_add(receiver.timeout_ns), admitted);
        }
    }

    fn pop_prealloc(&mut self, reserve: &Reserve, allocatable: u64) -> Option<(Ask, Request)> {
        let Side::Decode(receiver) = &self.side else { return None };
        let ask = self.ask(receiver.prealloc.front()?);
        let fits = (reserve.holders as usize) < receiver.slots && reserve.fits(ask, allocatable);
        let Side::Decode(receiver) = &mut self.side else { return None };
        if fits { receiver.prealloc.pop().map(|request| (ask, request)) } else { None }
    }

    /// Takes slots for the first `tokens` of a request, which fit.
    fn take_slots_for(&mut self, request: Request, tokens: usize) -> Admitted {
        self.running.settle(&mut self.cache);
        let spelled = request.prompt.spelled(0, self.cache.spelling());
        let mut hold = self.cache.acquire(spelled.all(), request.namespace);
        drop(spelled);
        hold.set_names(request.names.clone());
        let lacking = tokens - hold.kv_len();
        self.cache.evict_to_free(self.cache.extend_cost(&hold, lacking));
        let taken = self.cache.extend(&mut hold, lacking);
        debug_assert!(taken.is_ok(), "the reserve rule covers whole pages of all that it lets in");
        Admitted { request, hold }
    }

    /// Requests that have their KV join the batch, as far as it has places. Gives back how many end with the token that
    /// has come with it.
    fn join_ready(&mut self, at_ns: u64, events: &mut Vec<Event>) -> usize {
        let places = (self.config.max_running as usize).saturating_sub(self.occupied());
        let (mut joining, mut ended) = (Vec::new(), 0);
        while joining.len() < places {
            let Side::Decode(receiver) = &mut self.side else { break };
            let Some(Ready { mut admitted, cached }) = receiver.ready.pop() else { break };
            let request = &mut admitted.request;
            if request.first_run.is_none() {
                let queue_ns = at_ns.saturating_sub(request.arrived_ns);
                request.first_run = Some(FirstRun { cached, host: 0, queue_ns });
                request.produced = 1;
                self.meters.totals.generated_tokens += 1;
                admitted.checkpoint(&mut self.cache);
            }
            if admitted.request.produced < admitted.request.length {
                joining.push(admitted);
            } else {
                tell_token(&mut admitted, at_ns, events);
                self.finish(admitted, at_ns, events);
                ended += 1;
            }
        }
        if !joining.is_empty() {
            self.joined += joining.len();
            self.running.join(joining, &mut self.cache);
            if self.hidden.is_none() {
                self.tell_joined(at_ns, events);
            }
        }
        ended
    }

    /// Tells of the first tokens of those that have joined in this pass. Who comes from the host brings no token.
    pub(super) fn tell_joined(&mut self, at_ns: u64, events: &mut Vec<Event>) {
        let joined = std::mem::take(&mut self.joined);
        let mut token_times = Vec::with_capacity(joined);
        for admitted in self.running.newest(joined) {
            if admitted.request.retractions == 0 {
                tell_token(admitted, at_ns, events);
            }
            token_times.push(admitted.request.token_ns);
        }
        for token_ns in token_times {
            self.running.tell_joined(token_ns, 1);
        }
    }

    fn reserve(&self, receiver: &Receiver) -> Reserve {
        Reserve {
            available: self.running.free(&self.cache) + self.cache.evictable(),
            each: receiver.reserve_each,
            holders: (self.occupied() + receiver.holders()) as u64,
            // Every running request has one output that has no KV yet.
            retractable: self.running.context() + self.running.len() as u64,
            longest: self.running.longest(),
        }
    }

    fn ask(&self, request: &Request) -> Ask {
        Ask {
            slots: self.cache.ceil_to_page(request.prompt.len()) as u64,
            total: request.prompt.len() as u64 + request.reserve(0),
        }
    }

    /// Of a request on the host: all tokens but the newest output have KV.
    fn slots_of(&self, request: &Request) -> u64 {
        self.cache.ceil_to_page(request.len()) as u64
    }
}

// === impl Scheduler: the decode role, from outside ===

impl Scheduler {
    pub(super) fn preallocate_later(&mut self, request: Request) {
        if let Side::Decode(receiver) = &mut self.side {
            receiver.prealloc.push(request.id, request);
        }
    }

    /// The KV of a request has arrived. False if it does not wait for it.
    pub(crate) fn kv_arrived(&mut self, id: RequestId, cached: u32) -> bool {
        let Side::Decode(receiver) = &mut self.side else { return false };
        let Some(admitted) = receiver.transfers.take(id) else { return false };
        // The first token is always made on this side's behalf by a forward pass, so not all can have been found.
        let cached = cached.min(u32::try_from(admitted.request.prompt.len() - 1).unwrap_or(u32::MAX));
        receiver.ready.push(id, Ready { admitted, cached });
        true
    }

    /// Requests whose KV has not come in time.
    pub(super) fn advance_receiving(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        loop {
            let Side::Decode(receiver) = &mut self.side else { return };
            let Some(admitted) = receiver.transfers.take_expired(now_ns) else { return };
            let request = admitted.withdraw(&mut self.cache);
            self.fail(&request, now_ns, Stage::DecodeTransfer, Cause::TimedOut, events);
        }
    }

    /// Aborts a request that is not in the batch. False if it is.
    pub(super) fn abort_receiving(&mut self, at_ns: u64, id: RequestId, events: &mut Vec<Event>) -> bool {
        let Side::Decode(receiver) = &mut self.side else { return false };
        let (request, reason) = if let Some(request) = receiver.prealloc.take(id) {
            (request, ABORTED_BETWEEN)
        } else if let Some(admitted) = receiver.transfers.take(id) {
            (admitted.withdraw(&mut self.cache), ABORTED_BETWEEN)
        } else if let Some(ready) = receiver.ready.take(id) {
            (ready.admitted.withdraw(&mut self.cache), ABORTED_WAITING)
        } else if let Some(request) = receiver.retracted.take(id) {
            (request, ABORTED_WAITING)
        } else {
            return false;
        };
        self.end(request.finish(at_ns, reason), events);
        true
    }

    /// The KV of a request will not come. False if it does not wait for it.
    pub(super) fn receiving_failed(
        &mut self,
        at_ns: u64,
        id: RequestId,
        fault: HandoffFault,
        events: &mut Vec<Event>,
    ) -> bool {
        let Side::Decode(receiver) = &mut self.side else { return false };
        let (request, stage) = if let Some(request) = receiver.prealloc.take(id) {
            (request, Stage::DecodeHandshake)
        } else if let Some(admitted) = receiver.transfers.take(id) {
            // SGLang takes slots only after the handshake; who was never found has not shaken hands.
            let is_found = fault != HandoffFault::Unreached;
            let stage = if is_found { Stage::DecodeTransfer } else { Stage::DecodeHandshake };
            (admitted.withdraw(&mut self.cache), stage)
        } else {
            return false;
        };
        self.fail(&request, at_ns, stage, Cause::Told(fault), events);
        true
    }
}
