//! What the roles of an engine add to its scheduler, told apart in one place.

use super::Scheduler;
use super::receiver::Receiver;
use super::request::Request;
use super::sending::Sender;
use crate::config::{EngineConfig, EngineRole};
use crate::handoff::{HandoffFault, HandoffLoads};
use crate::request::{Event, RequestId};

/// The requests that wait for another engine.
#[derive(Debug)]
pub(super) enum Side {
    Whole,
    Prefill(Sender),
    Decode(Receiver),
}

impl Side {
    pub(super) fn new(config: &EngineConfig) -> Self {
        match config.role {
            EngineRole::Whole => Self::Whole,
            EngineRole::Prefill => Self::Prefill(Sender::new(config)),
            EngineRole::Decode => Self::Decode(Receiver::new(config)),
        }
    }

    /// Requests here that have not ended.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Whole => 0,
            Self::Prefill(sender) => sender.len(),
            Self::Decode(receiver) => receiver.len(),
        }
    }

    /// Those of them whose prefill is done and whose slots are not free yet.
    pub(super) fn in_flight(&self) -> usize {
        match self {
            Self::Whole | Self::Decode(_) => 0,
            Self::Prefill(sender) => sender.in_flight(),
        }
    }

    /// Proves the invariants of the queues; `computing` requests are in a prefill, or have just ended.
    pub(super) fn check(&self, computing: usize) -> Result<(), String> {
        match self {
            Self::Whole => Ok(()),
            Self::Prefill(sender) => sender.check(computing),
            Self::Decode(receiver) => receiver.check(),
        }
    }

    /// Those of them that have none: SGLang counts them as waiting.
    pub(super) fn without_kv(&self) -> Box<dyn Iterator<Item = &Request> + '_> {
        match self {
            Self::Whole => Box::new(std::iter::empty()),
            Self::Prefill(sender) => Box::new(sender.bootstrapping()),
            Self::Decode(receiver) => Box::new(receiver.without_kv()),
        }
    }
}

// === impl Scheduler: what the engine asks of either side ===

impl Scheduler {
    /// Takes in a request.
    pub(crate) fn enqueue(&mut self, now_ns: u64, request: Request) {
        match self.side {
            Side::Whole => self.queue(request),
            Side::Prefill(_) => self.bootstrap(now_ns, request),
            Side::Decode(_) => self.preallocate_later(request),
        }
    }

    /// When something happens that no step brings.
    pub(crate) fn handoff_due_ns(&self) -> Option<u64> {
        match &self.side {
            Side::Whole => None,
            Side::Prefill(sender) => sender.next_ns(),
            Side::Decode(receiver) => receiver.next_ns(),
        }
    }

    /// Does what is due at `now_ns`.
    pub(crate) fn advance_handoff(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        match self.side {
            Side::Whole => {}
            Side::Prefill(_) => self.advance_sending(now_ns, events),
            Side::Decode(_) => self.advance_receiving(now_ns, events),
        }
    }

    /// The hand-off of a request has failed. False if that is nothing to it.
    pub(crate) fn handoff_failed(
        &mut self,
        at_ns: u64,
        id: RequestId,
        fault: HandoffFault,
        events: &mut Vec<Event>,
    ) -> bool {
        match self.side {
            Side::Whole => false,
            Side::Prefill(_) => self.sending_failed(at_ns, id, fault, events),
            Side::Decode(_) => self.receiving_failed(at_ns, id, fault, events),
        }
    }

    pub(super) fn abort_in_handoff(&mut self, at_ns: u64, id: RequestId, events: &mut Vec<Event>) -> bool {
        match self.side {
            Side::Whole => false,
            Side::Prefill(_) => self.abort_sending(at_ns, id, events),
            Side::Decode(_) => self.abort_receiving(at_ns, id, events),
        }
    }

    /// Whether everybody waits for the other side, so that nothing is to be done before it is heard from.
    pub(crate) fn is_parked(&self) -> bool {
        match &self.side {
            Side::Whole => self.requests() == 0,
            Side::Prefill(sender) => self.waiting.is_empty() || sender.in_flight() > 0,
            Side::Decode(receiver) => receiver.is_parked(),
        }
    }

    /// The queues of the hand-off.
    pub(crate) fn handoff_loads(&self) -> HandoffLoads {
        match &self.side {
            Side::Whole => HandoffLoads::default(),
            Side::Prefill(sender) => {
                let (transfer_gb_s, transfer_ms) = sender.last_transfer();
                HandoffLoads {
                    bootstrap: sender.bootstrapping_len() as u64,
                    inflight: sender.in_flight() as u64,
                    transfer_gb_s,
                    transfer_ms,
                    ..HandoffLoads::default()
                }
            }
            Side::Decode(receiver) => receiver.loads(self.cache.capacity()),
        }
    }

    /// Tokens of KV that are taken and have not arrived.
    pub(crate) fn tokens_on_the_way(&self) -> u64 {
        match &self.side {
            Side::Whole | Side::Prefill(_) => 0,
            Side::Decode(receiver) => receiver.tokens_on_the_way(),
        }
    }
}
