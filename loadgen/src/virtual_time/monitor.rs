//! What the router's shell does beside requests: it polls loads, reports the progress of streams and keeps the core's
//! own deadlines. In virtual time with the same intervals and the same staleness as live.

use router_core::{Assignment, LoadReport};

use simworker_core::EngineRole;

use super::world::{Event, World};

/// How often the shell tells the core how far a stream has come, at most.
const PROGRESS_INTERVAL_NS: u64 = 100_000_000;

impl World {
    /// Starts the monitor if the policy looks at loads. Without that signal nothing reads what it would give.
    pub(super) fn start_monitor(&mut self) {
        if self.router.signals().loads {
            self.clock.in_background(0, Event::Poll);
            self.clock.in_background(PROGRESS_INTERVAL_NS, Event::Progress);
        }
    }

    /// Asks every worker for its load; the question takes one hop. One question per worker, however many ranks it has.
    pub(super) fn poll(&mut self, now_ns: u64) {
        for host in 0..self.hosts.len() {
            self.clock.in_background(now_ns + self.hop_ns, Event::Sample { host, asked_ns: now_ns });
        }
        let interval_ns = self.router.config().load_poll_interval_ns;
        self.clock.in_background(now_ns + interval_ns, Event::Poll);
    }

    /// A worker answers, if it is there; so does the way back.
    pub(super) fn sample(&mut self, now_ns: u64, host: usize, asked_ns: u64) {
        if !self.hosts[host].up {
            return;
        }
        self.bring_up_to(now_ns, host);
        let asked = self.addresses.of_host(host);
        let reports = asked.map(|(_, rank)| self.hosts[host].load(now_ns, rank)).collect();
        self.clock.in_background(now_ns + self.hop_ns, Event::Report { host, asked_ns, reports });
    }

    pub(super) fn report(&mut self, now_ns: u64, host: usize, asked_ns: u64, reports: &[LoadReport]) {
        for ((worker, _), report) in self.addresses.of_host(host).zip(reports) {
            self.router.report_loads(asked_ns, now_ns, worker, Some(*report));
        }
    }

    /// Tells the router how far every stream has come.
    pub(super) fn progress(&mut self, now_ns: u64) {
        for host in 0..self.hosts.len() {
            self.bring_up_to(now_ns, host);
            if self.hosts[host].role == EngineRole::Prefill || !self.hosts[host].up {
                continue;
            }
            for (id, output_tokens) in self.hosts[host].ranks.running() {
                if let Some(Assignment { lease, .. }) = self.answering(id) {
                    self.router.progress(now_ns, lease, u64::from(output_tokens));
                }
            }
        }
        self.clock.in_background(now_ns + PROGRESS_INTERVAL_NS, Event::Progress);
    }

    /// Wakes up for the router's own next deadline, if it is earlier than the wake-up already on the heap.
    pub(super) fn arm_router(&mut self) {
        let Some(at_ns) = self.router.next_deadline() else { return };
        if self.router_wake_ns.is_none_or(|armed| at_ns < armed) {
            self.router_wake_ns = Some(at_ns);
            self.clock.in_background(at_ns, Event::RouterTick);
        }
    }

    pub(super) fn router_tick(&mut self, now_ns: u64) {
        self.router_wake_ns = None;
        self.router.tick(now_ns);
    }
}
