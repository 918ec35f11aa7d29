//! The queues of a decode engine. What moves requests through them is in [`receiving`](super::receiving).

use super::admitted::Admitted;
use super::request::Request;
use crate::config::EngineConfig;
use crate::handoff::{HandoffLoads, Line, Timed};
use crate::request::RequestId;

/// Up to so many running requests, SGLang has extra slots for requests whose KV is on its way, twice their number.
const FEW_RUNNING: u32 = 32;

/// The requests of a decode engine that are not in its batch.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(super) prealloc: Line<Request>,
    pub(super) transfers: Timed<RequestId, Admitted>,
    pub(super) ready: Line<Ready>,
    pub(super) retracted: Line<Request>,
    pub(super) timeout_ns: u64,
    /// Kept free per request that holds KV, in tokens.
    pub(super) reserve_each: u64,
    /// Most requests that hold KV.
    pub(super) slots: usize,
    pub(super) max_running: usize,
}

/// A request that has its KV.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) admitted: Admitted,
    /// Prompt tokens that the prefill side had found in its cache.
    pub(super) cached: u32,
}

// === impl Receiver ===

impl Receiver {
    pub(super) fn new(config: &EngineConfig) -> Self {
        let extra = if config.max_running <= FEW_RUNNING { 2 * config.max_running } else { 0 };
        Self {
            prealloc: Line::new(),
            transfers: Timed::new(),
            ready: Line::new(),
            retracted: Line::new(),
            timeout_ns: config.handoff.transfer_timeout_ns,
            reserve_each: u64::from(config.handoff.num_reserved_decode_tokens),
            slots: (config.max_running + extra) as usize,
            max_running: config.max_running as usize,
        }
    }

    /// Lets those into sight that have come during the last step.
    pub(super) fn receive(&mut self) {
        self.prealloc.receive();
        self.ready.receive();
    }

    /// Takes in a request that has lost its slots.
    pub(super) fn retract(&mut self, request: Request) {
        self.retracted.push(request.id, request);
        self.retracted.receive();
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.transfers.next_ns()
    }

    pub(super) fn len(&self) -> usize {
        self.prealloc.len() + self.transfers.len() + self.ready.len() + self.retracted.len()
    }

    pub(super) fn holders(&self) -> usize {
        self.transfers.len() + self.ready.len()
    }

    pub(super) fn without_kv(&self) -> impl Iterator<Item = &Request> {
        self.prealloc.iter().chain(self.retracted.iter())
    }

    pub(super) fn is_parked(&self) -> bool {
        self.ready.is_empty() && (self.transfers.len() > 0 || self.len() == 0)
    }

    pub(super) fn tokens_on_the_way(&self) -> u64 {
        self.transfers.iter().map(|admitted| admitted.hold.kv_len() as u64).sum()
    }

    pub(super) fn loads(&self, capacity: u64) -> HandoffLoads {
        let pending: u64 = self.prealloc.iter().map(|request| request.len() as u64).sum();
        HandoffLoads {
            prealloc: self.prealloc.len() as u64,
            transfer: self.transfers.len() as u64,
            retracted: self.retracted.len() as u64,
            ready: self.ready.len() as u64,
            ready_tokens: self.ready.iter().map(|ready| ready.admitted.hold.kv_len() as u64).sum(),
            pending_usage: pending as f64 / capacity as f64,
            ..HandoffLoads::default()
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.prealloc.check()?;
        self.transfers.check()?;
        self.ready.check()?;
        self.retracted.check()?;
        if self.holders() > self.slots {
            return Err(format!("{} requests have slots, {} may", self.holders(), self.slots));
        }
        Ok(())
    }
}
