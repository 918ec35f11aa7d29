//! What the router's shell does beside requests: it polls loads, reports the progress of streams and keeps the core's
//! own deadlines. In virtual time with the same intervals and the same staleness as live.

use router_core::{Assignment, LoadReport};

use simworker_core::EngineRole;

use super::world::{Event, World};

/// How often the shell tells the core how far a stream has come, at most.
const PROGRESS_INTERVAL_NS: u64 = 100_000_000;

/// Before anything happens, so many rounds of questions have been answered.
const FRESH_ROUNDS: u64 = 2;

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

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
        if let Some(rest_ns) = self.rest_ns(now_ns) {
            self.clock.postpone(rest_ns, |event| matches!(event, Event::Progress));
            self.clock.in_background(now_ns + rest_ns, Event::Poll);
            return;
        }
        for host in 0..self.hosts.len() {
            self.clock.in_background(now_ns + self.hop_ns, Event::Sample { host, asked_ns: now_ns });
        }
        let interval_ns = self.router.config().load_poll_interval_ns;
        self.clock.in_background(now_ns + interval_ns, Event::Poll);
    }

    /// How long the monitor can rest, in whole rounds of all that it does: while no worker has anything to do and nothing else is
    /// about to happen, every report says the same as the one before. It wakes up early enough for reports as fresh as if it had
    /// not rested, at the moments at which they would have come.
    fn rest_ns(&self, now_ns: u64) -> Option<u64> {
        if !self.parked.is_empty() || self.hosts.iter().any(|host| !host.inside.is_empty()) {
            return None;
        }
        let next_ns = self.clock.first(|event| !matches!(event, Event::Poll | Event::Progress))?;
        let interval_ns = self.router.config().load_poll_interval_ns;
        let round_ns = interval_ns / gcd(interval_ns, PROGRESS_INTERVAL_NS) * PROGRESS_INTERVAL_NS;
        let on_the_way = (2 * self.hop_ns).div_ceil(round_ns);
        let rounds = (next_ns.saturating_sub(now_ns) / round_ns).saturating_sub(FRESH_ROUNDS + on_the_way);
        (rounds > 0).then_some(rounds * round_ns)
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
