//! What the router's shell does beside requests: it polls loads, reports the progress of streams and keeps the core's
//! own deadlines. In virtual time with the same intervals and the same staleness as live.

use router_core::{Assignment, LoadReport};

use super::world::{Event, World, worker_id};

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

    /// Asks every worker for its load; the question takes one hop.
    pub(super) fn poll(&mut self, now_ns: u64) {
        for worker in 0..self.engines.len() {
            self.clock.in_background(now_ns + self.hop_ns, Event::Sample { worker, asked_ns: now_ns });
        }
        let interval_ns = self.router.config().load_poll_interval_ns;
        self.clock.in_background(now_ns + interval_ns, Event::Poll);
    }

    /// A worker answers; so does the way back.
    pub(super) fn sample(&mut self, now_ns: u64, worker: usize, asked_ns: u64) {
        self.bring_up_to(now_ns, worker);
        let loads = self.engines[worker].loads();
        let report = LoadReport {
            total_tokens: loads.total_tokens,
            running: loads.running,
            waiting: loads.waiting,
            token_usage: loads.token_usage,
        };
        self.clock.in_background(now_ns + self.hop_ns, Event::Report { worker, asked_ns, report });
    }

    pub(super) fn report(&mut self, now_ns: u64, worker: usize, asked_ns: u64, report: LoadReport) {
        self.router.report_loads(asked_ns, now_ns, worker_id(worker), Some(report));
    }

    /// Tells the router how far every stream has come.
    pub(super) fn progress(&mut self, now_ns: u64) {
        for worker in 0..self.engines.len() {
            self.bring_up_to(now_ns, worker);
            for (id, output_tokens) in self.engines[worker].running() {
                if let Some(Assignment { lease, .. }) = self.bookings[id.0 as usize] {
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
