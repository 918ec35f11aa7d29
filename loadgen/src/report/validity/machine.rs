//! Who had the CPUs that a run wanted.
//!
//! Other programs do no harm by themselves: a machine may have CPUs to spare, and a thread that wants little is given it at
//! once though others take all the rest. Waits do none by themselves either: threads that run for some microseconds at a
//! time wait for a large share of them on an idle machine, and a fleet that is too large for its machine waits for itself,
//! under every policy alike. A run is disturbed where both meet: others had more of the CPUs than the run itself, and its
//! threads waited long against what was measured.
//!
//! Measured on 2 cores, with `multi_prefix.toml` at speeds from 1 to 8. With nobody else, the longest of the mean waits was
//! 0.2 to 3 % of the TPOT. With one to eight programs that did nothing but compute, it was up to 5 %, and the figures stayed
//! what they were. With sixteen of them, with four at speed 8, or with three compilers, it was 10 to 140 %; then
//! `cache_aware` had 1.8 to 26 times the TTFT, and 0.7 to 2.2 times the throughput of `round_robin`, where it has 1.36.

use super::super::format::{duration_ms, percent};
use super::super::summary::RunSummary;
use crate::run::{Machine, Run, Waited};

/// Above these it is told that times are doubtful.
mod doubtful {
    /// Of the run, in which the thread that sends and receives had no CPU.
    pub(super) const CLIENT_WAITED: f64 = 0.05;
    /// Of the time in which workers or router wanted a CPU, in which they had none.
    pub(super) const WAITED: f64 = 0.3;
    /// A wait that is shorter on average is how long it takes any machine to wake a thread, in nanoseconds of wall time.
    pub(super) const WAIT_NS: f64 = 100_000.0;
    /// A mean wait that is a smaller share of the shortest figure that it is in, the median TTFT or TPOT, moves none.
    pub(super) const WAIT_SHARE: f64 = 0.02;
    /// Of all CPUs' time, by programs that have no part in the run.
    pub(super) const OTHERS: f64 = 0.2;
    /// Of all CPUs' time, by the hypervisor.
    pub(super) const STOLEN: f64 = 0.02;
}

/// Above these a run is disturbed.
mod disturbing {
    /// A mean wait, of the shortest figure that it is in.
    pub(super) const WAIT_SHARE: f64 = 0.05;
    /// Of all CPUs' time, by the hypervisor. Waits for it are in no thread's count.
    pub(super) const STOLEN: f64 = 0.1;
}

/// A live run's machine, and what was measured on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    machine: Machine,
    /// The shortest latency that is judged, in nanoseconds of wall time: a wait for a CPU is first seen there.
    shortest_ns: f64,
}

impl Seen {
    pub(super) fn of(run: &Run, summary: &RunSummary) -> Self {
        let medians = [summary.ttft_ms.p50, summary.tpot_ms.p50].into_iter().flatten();
        let shortest_ms = medians.filter(|ms| *ms > 0.0).fold(f64::INFINITY, f64::min);
        let machine = run.beside.as_ref().map_or(Machine::default(), |beside| beside.machine);
        Self { machine, shortest_ns: shortest_ms / run.speed * 1e6 }
    }

    /// Why the times of the run are not its own, and what to do; `None` when they are.
    pub(super) fn disturbed(self) -> Option<String> {
        let remedy = "end what else runs and run it again, or compare in virtual time (--mode virtual)";
        self.is_disturbed().then(|| format!("something else had the machine: {}; {remedy}", self.told()))
    }

    /// That times are doubtful, where it is no worse than that.
    pub(super) fn busy(self) -> Option<String> {
        let told = self.told();
        let is_told = !told.is_empty() && !self.is_disturbed();
        is_told.then(|| format!("the machine was busy: {told}; times are doubtful"))
    }

    fn is_disturbed(self) -> bool {
        let Machine { others_ran, run_ran, stolen, .. } = self.machine;
        let others = others_ran.filter(|others| *others > doubtful::OTHERS);
        let is_most = others.is_some_and(|others| run_ran.is_none_or(|run| others > run));
        is_most && self.longest_wait() > disturbing::WAIT_SHARE * self.shortest_ns
            || stolen.is_some_and(|stolen| stolen > disturbing::STOLEN)
    }

    /// The mean wait of those that waited longest, in nanoseconds, of all that is told.
    fn longest_wait(self) -> f64 {
        self.waits().into_iter().flatten().map(|(_, waited)| waited.mean_ns).fold(0.0, f64::max)
    }

    /// Who waited so long that it is told, and how that reads.
    fn waits(self) -> [Option<(&'static str, Waited)>; 3] {
        let Machine { workers_waited, router_waited, client_waited, .. } = self.machine;
        let least_ns = doubtful::WAIT_NS.max(doubtful::WAIT_SHARE * self.shortest_ns);
        let long = |waited: Option<Waited>, most: f64, who| {
            let told = waited.filter(|waited| waited.share > most && waited.mean_ns > least_ns)?;
            Some((who, told))
        };
        [
            long(
                workers_waited,
                doubtful::WAITED,
                "the workers waited for a CPU {} of the time they wanted one",
            ),
            long(router_waited, doubtful::WAITED, "the router waited for a CPU {} of the time it wanted one"),
            long(client_waited, doubtful::CLIENT_WAITED, "the generator waited for a CPU {} of the run"),
        ]
    }

    /// Who had the CPUs that the run wanted; empty where nobody had. A share of waiting says nothing by itself: only waits
    /// that are long against what was measured move it.
    fn told(self) -> String {
        let above = |share: Option<f64>, most: f64| share.filter(|share| *share > most).map(percent);
        let had = [
            above(self.machine.others_ran, doubtful::OTHERS)
                .map(|share| format!("other programs used {share} % of the CPUs' time")),
            above(self.machine.stolen, doubtful::STOLEN)
                .map(|share| format!("the hypervisor took {share} % of the CPUs' time")),
        ];
        let waits = self.waits().into_iter().flatten().map(|(words, Waited { share, mean_ns })| {
            let share = format!("{} %", percent(share));
            format!("{}, {} each time", words.replace("{}", &share), duration_ms(mean_ns / 1e6))
        });
        had.into_iter().flatten().chain(waits).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Validity;
    use super::super::tests::{beside, of};
    use super::*;
    use crate::report::fixture::record;

    /// 100 requests with a TTFT of `ttft_ms` and 11 tokens, the last one `tpot_ms` × 10 later.
    fn paced(machine: Machine, (ttft_ms, tpot_ms): (u64, u64), speed: f64) -> Validity {
        let one = |seq| {
            let (first, last) = (1000 + ttft_ms, 1000 + ttft_ms + 10 * tpot_ms);
            record(seq).sent_ms(1000, 1000).first_ms(first).last_ms(last).tokens(9, 0, 11).build()
        };
        of(&Run { speed, records: (0..100).map(one).collect(), ..beside(machine) })
    }

    fn waited(share: f64, ms: f64) -> Option<Waited> {
        Some(Waited { share, mean_ns: ms * 1e6 })
    }

    #[test]
    fn a_busy_machine_is_a_warning_that_names_who_had_the_cpu() {
        let told = |machine| {
            let seen = of(&beside(machine));
            assert!(seen.invalid.is_empty() && seen.disturbed.is_empty(), "{seen:?}");
            seen.warnings
        };
        let little = waited(0.2, 900.0);
        let quiet = Machine { others_ran: Some(0.1), workers_waited: little, ..Machine::default() };
        assert!(told(quiet).is_empty());
        let told = told(Machine {
            others_ran: Some(0.63),
            workers_waited: waited(0.41, 900.0),
            stolen: Some(0.05),
            client_waited: waited(0.2, 900.0),
            ..Machine::default()
        });
        assert_eq!(told.len(), 1);
        for word in
            ["live cache_aware seed 1: the machine was busy", "63.0 %", "41.0 %", "hypervisor", "20.0 %"]
        {
            assert!(told[0].contains(word), "{word}: {told:?}");
        }
    }

    #[test]
    fn waits_are_told_where_they_are_long_against_what_was_measured() {
        let told = |share: f64, wait_us: f64, latencies: (u64, u64), speed: f64| {
            let machine = Machine { router_waited: waited(share, wait_us / 1e3), ..Machine::default() };
            paced(machine, latencies, speed).warnings.len()
        };
        assert_eq!(told(0.37, 30.0, (200, 40), 1.0), 0, "how long a thread takes to wake");
        assert_eq!(told(0.37, 30.0, (1, 1), 1.0), 0, "also beside latencies that are as short");
        assert_eq!(told(0.37, 700.0, (200, 40), 1.0), 0, "1.75 % of the time per token");
        assert_eq!(told(0.37, 900.0, (200, 40), 1.0), 1, "2.25 % of it");
        assert_eq!(told(0.29, 900.0, (200, 40), 1.0), 0, "a small share");
        assert_eq!(told(0.37, 150.0, (5, 40), 1.0), 1, "3 % of the TTFT");
        assert_eq!(told(0.37, 110.0, (200, 40), 10.0), 1, "40 ms are 4 ms of wall time at tenfold speed");
    }

    #[test]
    fn others_disturb_a_run_where_they_had_the_machine_and_it_waited_long() {
        let seen = |run: f64, others: f64, share: f64, wait_ms: f64| {
            let machine = Machine {
                run_ran: Some(run),
                others_ran: Some(others),
                workers_waited: waited(share, wait_ms),
                ..Machine::default()
            };
            let seen = paced(machine, (1000, 40), 1.0);
            (seen.disturbed.len(), seen.warnings.len())
        };
        // What was measured, see above: alone, beside programs that compute, beside compilers.
        assert_eq!(seen(0.08, 0.0, 0.33, 0.09), (0, 0), "nobody else");
        assert_eq!(seen(0.05, 0.95, 0.82, 1.65), (0, 1), "others had all the rest, and it waited for little");
        assert_eq!(seen(0.03, 0.96, 0.96, 5.7), (1, 0), "others had it when it was wanted");
        // A fleet that is too large for its machine waits for itself.
        assert_eq!(seen(0.98, 0.02, 0.96, 9.0), (0, 1), "nobody else had anything");
        assert_eq!(seen(0.7, 0.25, 0.9, 9.0), (0, 1), "others had less than the run");
        assert_eq!(seen(0.01, 0.15, 0.9, 9.0), (0, 1), "others had little");
        assert_eq!(seen(0.03, 0.96, 0.2, 9.0), (0, 1), "it hardly ever waited");
    }

    #[test]
    fn the_hypervisor_disturbs_by_itself() {
        let seen = |stolen: f64| {
            let seen = paced(Machine { stolen: Some(stolen), ..Machine::default() }, (1000, 40), 1.0);
            (seen.disturbed, seen.warnings.len())
        };
        assert_eq!(seen(0.08), (vec![], 1));
        let told = "live cache_aware seed 1: something else had the machine: the hypervisor took 12.0 % of \
                    the CPUs' time; end what else runs and run it again, or compare in virtual time (--mode virtual)";
        assert_eq!(seen(0.12), (vec![told.to_owned()], 0));
    }

    #[test]
    fn in_virtual_time_nobody_is_disturbed() {
        let machine = Machine { stolen: Some(0.9), others_ran: Some(0.9), ..Machine::default() };
        let seen = of(&Run { world: crate::run::World::Virtual, ..beside(machine) });
        assert!(seen.disturbed.is_empty() && seen.warnings.is_empty(), "{seen:?}");
    }
}
