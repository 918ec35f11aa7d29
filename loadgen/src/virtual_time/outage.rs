//! A worker dies with all that it holds, and comes back with a cold cache; another one is drained.

use router_core::{Cause, WorkerSpec};
use simworker_core::{EngineRole, HandoffFault};

use super::host::{Addresses, Host, role_at_router};
use super::shell::LegEnd;
use super::world::{Event, World};
use crate::scenario::{Faults, Outage};

/// How long the router's probes take to notice that a worker is gone, or back.
const NOTICED_AFTER_NS: u64 = 1_000_000_000;
/// How long a decode worker takes to notice that a prefill worker is gone: two signs of life, 5 s apart, are missing.
pub(super) const PEER_LOST_AFTER_NS: u64 = 10_000_000_000;

impl World {
    /// Puts the outages of a scenario on the heap.
    pub(super) fn plan_outages(&mut self, faults: &Faults) {
        let first = |wanted: fn(EngineRole) -> bool| self.hosts.iter().position(|host| wanted(host.role));
        let prefill = first(|role| role == EngineRole::Prefill);
        let answering = first(|role| role != EngineRole::Prefill);
        for (outage, host) in [(faults.prefill_outage, prefill), (faults.decode_outage, answering)] {
            if let (Some(Outage { at_ns, back_after_ns }), Some(host)) = (outage, host) {
                self.clock.in_background(at_ns, Event::Lost { host, back_after_ns });
            }
        }
        let last = |wanted: fn(EngineRole) -> bool| self.hosts.iter().rposition(|host| wanted(host.role));
        let prefill = last(|role| role == EngineRole::Prefill);
        let decode =
            last(|role| role == EngineRole::Decode).or_else(|| last(|role| role == EngineRole::Whole));
        for (at_ns, host) in [(faults.prefill_drained_ns, prefill), (faults.decode_drained_ns, decode)] {
            if let (Some(at_ns), Some(host)) = (at_ns, host) {
                self.clock.in_background(at_ns, Event::Drained(host));
            }
        }
    }

    /// Workers come that the router has not known. As live: it hears of them at once, and gives them requests when a probe has
    /// been answered.
    pub(super) fn join(&mut self, now_ns: u64, host: usize) {
        self.hosts[host].up = true;
        for (_, rank) in self.addresses.of_host(host) {
            let role = role_at_router(self.hosts[host].role);
            let spec = WorkerSpec { url: Addresses::url(host, rank), model: None, role };
            self.router.register_worker(now_ns, spec);
        }
        self.clock.in_background(now_ns + NOTICED_AFTER_NS, Event::Noticed { host, up: true });
    }

    /// The router gives a worker nothing new; what it has goes on.
    pub(super) fn drain(&mut self, now_ns: u64, host: usize) {
        for (worker, _) in self.addresses.of_host(host) {
            self.router.set_draining(now_ns, worker);
        }
        self.note_outage(host, ["prefill drained", "decode drained"]);
        self.unpark(now_ns);
    }

    /// All connections to a worker break at once.
    pub(super) fn lose(&mut self, now_ns: u64, host: usize, back_after_ns: Option<u64>) {
        // What it has said until now is on its way.
        self.bring_up_to(now_ns, host);
        self.note_outage(host, ["prefill lost", "decode lost"]);
        for (room, handover) in &self.handovers {
            if handover.prefill == host {
                let fault = HandoffFault::PeerLost;
                let event = Event::HandoffFailed { host: handover.decode, room: *room, fault };
                self.clock.at(now_ns + PEER_LOST_AFTER_NS, event);
            }
        }
        let gone = &mut self.hosts[host];
        gone.up = false;
        gone.wake_ns = None;
        for id in std::mem::take(&mut gone.inside) {
            self.tell(now_ns, id, host, LegEnd::Broken(Cause::Reset));
        }
        self.clock.in_background(now_ns + NOTICED_AFTER_NS, Event::Noticed { host, up: false });
        if let Some(after_ns) = back_after_ns {
            self.clock.in_background(now_ns + after_ns, Event::Back(host));
        }
    }

    pub(super) fn bring_back(&mut self, now_ns: u64, host: usize) {
        let role = self.hosts[host].role;
        // Its configuration has made a worker before.
        if let Ok(cold) =
            Host::new(&self.fleet, role, self.dice.slowness(host as u32), !self.chain.keeps_any())
        {
            self.hosts[host] = cold;
        }
        self.note_outage(host, ["prefill back", "decode back"]);
        self.clock.in_background(now_ns + NOTICED_AFTER_NS, Event::Noticed { host, up: true });
    }

    pub(super) fn notice(&mut self, now_ns: u64, host: usize, up: bool) {
        for (worker, _) in self.addresses.of_host(host) {
            if self.router.set_healthy(now_ns, worker, up)
                && up
                && let Some(index) = &mut self.index
            {
                index.clear(worker);
            }
        }
        self.unpark(now_ns);
    }

    fn note_outage(&mut self, host: usize, [prefill, answering]: [&'static str; 2]) {
        let is_prefill = self.hosts[host].role == EngineRole::Prefill;
        self.dice.note(if is_prefill { prefill } else { answering });
    }
}
