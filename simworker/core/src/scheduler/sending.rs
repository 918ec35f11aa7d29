//! The prefill side of a hand-off.
//!
//! A request waits in the bootstrap queue until the decode side has slots for it, then in the queue like any other, as
//! one that makes a single token. Its KV goes out in parts: what was found in the cache when it is admitted, the rest
//! as each step that computed some of it ends. When its prefill is complete it stays in flight, with its KV locked,
//! until all of that has arrived.

use std::collections::BTreeMap;

use super::admitted::Admitted;
use super::request::Request;
use super::{Scheduler, Side};
use crate::config::EngineConfig;
use crate::handoff::{Arrival, Cause, HandoffFault, Stage, Timed, Transfers};
use crate::request::{Event, FinishReason, RequestId};

/// What SGLang says of a request that is aborted between two engines.
pub(super) const ABORTED_BETWEEN: FinishReason = FinishReason::Abort { message: "Aborted by AbortReq." };

/// The requests of a prefill engine that do not need its GPU.
#[derive(Debug)]
pub(crate) struct Sender {
    bootstrap: Timed<RequestId, Request>,
    transfers: Transfers,
    in_flight: BTreeMap<RequestId, Admitted>,
    timeout_ns: u64,
    kv_bytes_per_token: f64,
    /// The last transfer that was completed.
    last: Option<Arrival>,
}

// === impl Sender ===

impl Sender {
    pub(super) fn new(config: &EngineConfig) -> Self {
        let handoff = &config.handoff;
        Self {
            bootstrap: Timed::new(),
            transfers: Transfers::new(handoff, config.page_size),
            in_flight: BTreeMap::new(),
            timeout_ns: handoff.bootstrap_timeout_ns,
            kv_bytes_per_token: handoff.kv_bytes_per_token,
            last: None,
        }
    }

    /// The prefill of a request is complete and its KV locked.
    pub(super) fn send_rest(&mut self, at_ns: u64, admitted: Admitted) {
        let id = admitted.request.id;
        self.transfers.send(at_ns, id, admitted.hold.kv_len() as u64, true);
        self.in_flight.insert(id, admitted);
    }

    /// What was sent of a request is of no use.
    pub(super) fn cancel(&mut self, at_ns: u64, id: RequestId) {
        self.transfers.cancel(at_ns, id);
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.bootstrap.next_ns().into_iter().chain(self.transfers.next_ns()).min()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The requests that the decode side has not asked for.
    pub(super) fn bootstrapping(&self) -> impl Iterator<Item = &Request> {
        self.bootstrap.iter()
    }

    pub(super) fn bootstrapping_len(&self) -> usize {
        self.bootstrap.len()
    }

    pub(super) fn len(&self) -> usize {
        self.bootstrap.len() + self.in_flight.len()
    }

    /// GiB per second, which SGLang calls GB, and milliseconds of the last transfer that was completed.
    pub(super) fn last_transfer(&self) -> (f64, f64) {
        let Some(Arrival { span, tokens, .. }) = self.last else { return (0.0, 0.0) };
        let span_ns = span.ns().max(1) as f64;
        let gib = tokens as f64 * self.kv_bytes_per_token / f64::from(1 << 30);
        (gib / (span_ns / 1e9), span_ns / 1e6)
    }

    /// `computing` requests may have sent something.
    pub(super) fn check(&self, computing: usize) -> Result<(), String> {
        self.bootstrap.check()?;
        self.transfers.check()?;
        let (begun, flying) = (self.transfers.len(), self.in_flight.len());
        if begun < flying || begun > flying + computing {
            return Err(format!("{begun} transfers of {flying} requests in flight and {computing} others"));
        }
        Ok(())
    }
}

// === impl Scheduler: the prefill role ===

impl Scheduler {
    /// Takes in a request that waits for the decode side.
    pub(super) fn bootstrap(&mut self, now_ns: u64, request: Request) {
        let Side::Prefill(sender) = &mut self.side else { return self.queue(request) };
        let deadline_ns = now_ns.saturating_add(sender.timeout_ns);
        sender.bootstrap.insert(request.id, deadline_ns, request);
    }

    /// Sends what was found in the cache for a request that is being admitted.
    pub(super) fn send_found(&mut self, at_ns: u64, id: RequestId, tokens: usize) {
        if let Some(sender) = self.sender().filter(|_| tokens > 0) {
            sender.transfers.send(at_ns, id, tokens as u64, false);
        }
    }

    /// Sends the part of a prompt that the step which has just ended computed.
    pub(super) fn send_chunk(&mut self, at_ns: u64) {
        if let (Side::Prefill(sender), Some(chunked)) = (&mut self.side, &self.chunked) {
            sender.transfers.send(at_ns, chunked.request.id, chunked.hold.kv_len() as u64, false);
        }
    }

    /// The decode side has asked for the KV of a request. False if the request does not wait for that.
    pub(crate) fn kv_wanted(&mut self, id: RequestId) -> bool {
        let Some(request) = self.sender().and_then(|sender| sender.bootstrap.take(id)) else { return false };
        self.queue(request);
        true
    }

    /// Transfers that arrive, and requests that have waited too long, at `now_ns`.
    pub(super) fn advance_sending(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        while let Some(request) = self.sender().and_then(|sender| sender.bootstrap.take_expired(now_ns)) {
            self.fail(&request, now_ns, Stage::PrefillBootstrap, Cause::TimedOut, events);
        }
        while let Some(arrival) = self.sender().and_then(|sender| sender.transfers.arrive(now_ns)) {
            self.sent(now_ns, arrival, events);
        }
    }

    fn sent(&mut self, now_ns: u64, arrival: Arrival, events: &mut Vec<Event>) {
        let Some(sender) = self.sender() else { return };
        sender.last = Some(arrival);
        let Some(admitted) = sender.in_flight.remove(&arrival.id) else { return };
        let Request { id, room, .. } = admitted.request;
        let cached_tokens = admitted.request.cached_tokens();
        if let Some(room) = room {
            let (tokens, span_ns) = (arrival.tokens, arrival.span.ns());
            events.push(Event::KvSent { id, room, at_ns: now_ns, cached_tokens, tokens, span_ns });
        }
        self.finish(admitted, now_ns, events);
    }

    /// Aborts a request that waits for the other side. False if it does not.
    pub(super) fn abort_sending(&mut self, at_ns: u64, id: RequestId, events: &mut Vec<Event>) -> bool {
        let Some(sender) = self.sender() else { return false };
        if let Some(request) = sender.bootstrap.take(id) {
            self.end(request.finish(at_ns, ABORTED_BETWEEN), events);
            return true;
        }
        self.land_early(at_ns, id, ABORTED_BETWEEN, events)
    }

    /// The hand-off of a request has failed. False if that is nothing to it.
    pub(super) fn sending_failed(
        &mut self,
        at_ns: u64,
        id: RequestId,
        fault: HandoffFault,
        events: &mut Vec<Event>,
    ) -> bool {
        let cause = Cause::Told(fault);
        let Some(sender) = self.sender() else { return false };
        if let Some(request) = sender.bootstrap.take(id) {
            self.fail(&request, at_ns, Stage::PrefillBootstrap, cause, events);
            return true;
        }
        let stage = Stage::PrefillTransfer;
        if let Some(request) = self.waiting.take(id) {
            self.fail(&request, at_ns, stage, cause, events);
            return true;
        }
        let reason = stage.failed(cause);
        let found = self.land_early(at_ns, id, reason, events) || self.stop_computing(id, reason);
        if found {
            self.meters.handoff_failed(stage);
        }
        found
    }

    /// Lets a request end at the next result. False if it does so anyway.
    fn stop_computing(&mut self, id: RequestId, reason: FinishReason) -> bool {
        let Some(request) = self.computing(id).filter(|request| request.stop.is_none()) else { return false };
        request.stop = Some(reason);
        true
    }

    /// Ends a request in flight. Its KV is computed, and stays in the cache.
    fn land_early(
        &mut self,
        at_ns: u64,
        id: RequestId,
        reason: FinishReason,
        events: &mut Vec<Event>,
    ) -> bool {
        let Some(sender) = self.sender() else { return false };
        let Some(mut admitted) = sender.in_flight.remove(&id) else { return false };
        sender.cancel(at_ns, id);
        admitted.request.stop = Some(reason);
        self.finish(admitted, at_ns, events);
        true
    }

    fn sender(&mut self) -> Option<&mut Sender> {
        match &mut self.side {
            Side::Prefill(sender) => Some(sender),
            Side::Whole | Side::Decode(_) => None,
        }
    }
}
