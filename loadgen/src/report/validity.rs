//! Whether a run measured the router and its workers, or the machine that sent the requests.
//!
//! A live generator that falls behind its schedule sends another load than the scenario asks for. Its lateness counts in
//! every latency, so a run is void when the lateness is both a visible part of the latency and more than a scheduling
//! hiccup: the 90th percentile tells a generator that cannot keep up from a machine that stood still once. It is void, too,
//! when the requests took longer to leave than the schedule has, and when the one thread that sends and receives had no time
//! left: its own queue is then in every figure.
//!
//! A stricter rule, such as a bound of 5 ms on the 99th percentile, would void most runs on a machine with anything else
//! to do, though the figures hardly move. What is above it is told as a warning, and so is a machine on which somebody
//! else ran: figures of hit rate and placement stand then, and times are doubtful. In virtual time nobody is late.

use super::format::{duration_ms, percent};
use super::stats::quantile;
use super::summary::RunSummary;
use crate::run::{Machine, Run, Waited, World};

/// The percentile of lateness that is looked at.
const QUANTILE: f64 = 0.90;
/// Largest share of the median TTFT that it may have.
const LARGEST_SHARE: f64 = 0.1;
/// Lateness up to this much wall time is never held against a run, in milliseconds.
const HARMLESS_MS: f64 = 50.0;
/// Least share of the offered rate that must have been sent.
const LEAST_RATE: f64 = 0.98;
/// The part of the requests over which the rate is taken: one hiccup at the end is none of the rate's.
const RATE_QUANTILE: f64 = 0.95;
/// A schedule that is shorter has no rate to speak of, in milliseconds of wall time; lateness is judged all the same.
const LEAST_SPAN_MS: f64 = 1000.0;
/// A schedule that is passed by so much wall time is a hiccup or two, in milliseconds.
const HARMLESS_STRETCH_MS: f64 = 100.0;
/// Most of a core that the thread which sends and receives may have used.
const MOST_CLIENT: f64 = 0.95;

/// Above these it is told that figures are doubtful.
mod doubtful {
    /// Lateness, 99th percentile, in milliseconds of wall time, and as a share of the median TTFT.
    pub(super) const LATE_MS: f64 = 5.0;
    pub(super) const LATE_SHARE: f64 = 0.02;
    /// Of a core, by the thread that sends and receives.
    pub(super) const CLIENT: f64 = 0.7;
    /// Of the run, in which that thread had no CPU.
    pub(super) const CLIENT_WAITED: f64 = 0.05;
    /// Of the time in which workers or router wanted a CPU, in which they had none.
    pub(super) const WAITED: f64 = 0.3;
    /// A wait that is shorter on average is how long it takes any machine to wake a thread, in nanoseconds of wall time:
    /// threads that run for some microseconds at a time have a large share of such waits on an idle machine too.
    pub(super) const WAIT_NS: f64 = 100_000.0;
    /// A mean wait that is a smaller share of the shortest figure that it is in, the median TTFT or TPOT, moves none.
    pub(super) const WAIT_SHARE: f64 = 0.02;
    /// Of all CPUs' time, by programs that have no part in the run.
    pub(super) const OTHERS: f64 = 0.2;
    /// Of all CPUs' time, by the hypervisor.
    pub(super) const STOLEN: f64 = 0.02;
}

/// Why a run is void, in one sentence; `None` when it is not.
pub(super) fn invalid(run: &Run, summary: &RunSummary) -> Option<String> {
    if run.world != World::Live {
        return None;
    }
    let why = too_late(run, summary).or_else(|| too_slow(run)).or_else(|| too_busy(run))?;
    Some(format!(
        "{}: the generator was the bottleneck: {why}; send fewer per second, or lower fleet.speed",
        name(run)
    ))
}

/// What makes the figures of a run doubtful, in a sentence each.
pub(super) fn warnings(run: &Run, summary: &RunSummary) -> Vec<String> {
    if run.world != World::Live {
        return Vec::new();
    }
    let machine = run.beside.as_ref().map(|beside| beside.machine);
    let busy = machine.map_or(Vec::new(), |machine| busy(machine, shortest_ns(run, summary)));
    let mut warnings = Vec::new();
    if !busy.is_empty() {
        warnings.push(format!(
            "{}: the machine was busy: {}; times are doubtful",
            name(run),
            busy.join(", ")
        ));
    }
    let near = machine.and_then(|machine| machine.client_ran).filter(|share| *share > doubtful::CLIENT);
    if let Some(share) = near {
        let share = percent(share);
        warnings.push(format!(
            "{}: the generator was near its limits: its thread used {share} % of a core",
            name(run)
        ));
    }
    let (late, ttft) = (summary.send_lag_ms.p99.unwrap_or(0.0), summary.ttft_ms.p50.unwrap_or(0.0));
    if late / run.speed > doubtful::LATE_MS && late > doubtful::LATE_SHARE * ttft {
        let late = duration_ms(late / run.speed);
        warnings
            .push(format!("{}: requests left up to {late} late (p99), which is in their TTFT", name(run)));
    }
    warnings
}

/// The run in words.
fn name(run: &Run) -> String {
    format!("{} {} seed {}", run.world.label(), run.router(), run.seed)
}

/// The shortest latency that is judged, in nanoseconds of wall time: a wait for a CPU is first seen there.
fn shortest_ns(run: &Run, summary: &RunSummary) -> f64 {
    let medians = [summary.ttft_ms.p50, summary.tpot_ms.p50].into_iter().flatten();
    medians.filter(|ms| *ms > 0.0).fold(f64::INFINITY, f64::min) / run.speed * 1e6
}

/// Who had the CPU that the run wanted. A share of waiting says nothing by itself: only waits that are long against what was
/// measured move it.
fn busy(machine: Machine, shortest_ns: f64) -> Vec<String> {
    let above = |share: Option<f64>, most: f64| share.filter(|share| *share > most).map(percent);
    let kept = |waited: Option<Waited>, most: f64| {
        let long = |mean_ns: f64| mean_ns > doubtful::WAIT_NS && mean_ns > doubtful::WAIT_SHARE * shortest_ns;
        let waited = waited.filter(|waited| waited.share > most && long(waited.mean_ns))?;
        Some((percent(waited.share), duration_ms(waited.mean_ns / 1e6)))
    };
    let told = [
        above(machine.others_ran, doubtful::OTHERS)
            .map(|share| format!("other programs used {share} % of the CPUs' time")),
        above(machine.stolen, doubtful::STOLEN).map(|share| format!("the hypervisor took {share} % of it")),
        kept(machine.workers_waited, doubtful::WAITED).map(|(share, mean)| {
            format!("the workers waited for a CPU {share} % of the time they wanted one, {mean} each time")
        }),
        kept(machine.router_waited, doubtful::WAITED).map(|(share, mean)| {
            format!("the router waited for a CPU {share} % of the time it wanted one, {mean} each time")
        }),
        kept(machine.client_waited, doubtful::CLIENT_WAITED).map(|(share, mean)| {
            format!("the generator waited for a CPU {share} % of the run, {mean} each time")
        }),
    ];
    told.into_iter().flatten().collect()
}

/// Requests left late.
fn too_late(run: &Run, summary: &RunSummary) -> Option<String> {
    let late = |r: &protocol::record::RequestRecord| r.sent_ns.saturating_sub(r.intended_ns) as f64 / 1e6;
    let mut late_ms: Vec<f64> = run.records.iter().map(late).collect();
    late_ms.sort_by(f64::total_cmp);
    let (late, ttft) = (quantile(&late_ms, QUANTILE)?, summary.ttft_ms.p50?);
    let wall_ms = late / run.speed;
    if late <= LARGEST_SHARE * ttft || wall_ms <= HARMLESS_MS {
        return None;
    }
    let share = percent(late / ttft);
    Some(format!("requests left {} late (p90), {share} % of the median TTFT", duration_ms(wall_ms)))
}

/// The requests took longer to leave than they were to.
fn too_slow(run: &Run) -> Option<String> {
    let span_ms = |of: fn(&protocol::record::RequestRecord) -> u64| {
        let mut ms: Vec<f64> = run.records.iter().map(|record| of(record) as f64 / 1e6).collect();
        ms.sort_by(f64::total_cmp);
        Some(quantile(&ms, RATE_QUANTILE)? - ms.first()?)
    };
    let (offered, sent) = (span_ms(|r| r.intended_ns)?, span_ms(|r| r.sent_ns)?);
    if offered / run.speed < LEAST_SPAN_MS
        || offered >= LEAST_RATE * sent
        || (sent - offered) / run.speed <= HARMLESS_STRETCH_MS
    {
        return None;
    }
    Some(format!("it sent {} % of the requests per second that the schedule has", percent(offered / sent)))
}

/// The thread that sends and receives had no time left.
fn too_busy(run: &Run) -> Option<String> {
    let share = run.beside.as_ref()?.machine.client_ran.filter(|share| *share > MOST_CLIENT)?;
    Some(format!("its thread used {} % of a core", percent(share)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{record, run};

    /// A run of 100 requests, all answered `ttft_ms` after their due time and sent `late_ms` after it.
    fn verdict(world: World, late_ms: u64, ttft_ms: u64, speed: f64) -> Option<String> {
        let one =
            |seq| record(seq).sent_ms(1000, 1000 + late_ms).first_ms(1000 + ttft_ms).last_ms(9000).build();
        let run = Run { world, speed, ..run("cache_aware", (0..100).map(one).collect()) };
        invalid(&run, &RunSummary::of(&run, None))
    }

    #[test]
    fn a_late_generator_voids_a_live_run() {
        let why = verdict(World::Live, 300, 1000, 1.0).unwrap();
        assert!(why.starts_with("live cache_aware seed 1: ") && why.contains("300 ms late"), "{why}");
        assert!(why.contains("30.0 % of the median TTFT"), "{why}");
        assert_eq!(verdict(World::Virtual, 300, 1000, 1.0), None);
    }

    #[test]
    fn one_hiccup_voids_nothing() {
        let one = |seq: u64| {
            let late_ms = if seq < 8 { 400 } else { 0 };
            record(seq).sent_ms(1000, 1000 + late_ms).first_ms(1500).last_ms(9000).build()
        };
        let run = Run { world: World::Live, ..run("cache_aware", (0..100).map(one).collect()) };
        assert_eq!(invalid(&run, &RunSummary::of(&run, None)), None);
    }

    /// A live run that sends every 10 ms, each request by `stretch` times its place later.
    fn stretched(stretch_ms: f64) -> Run {
        let one = |seq: u64| {
            let due = seq * 10;
            let sent = due + (seq as f64 * stretch_ms) as u64;
            record(seq).sent_ms(due, sent).first_ms(sent + 20_000).last_ms(sent + 30_000).build()
        };
        Run { world: World::Live, ..run("cache_aware", (0..1000).map(one).collect()) }
    }

    #[test]
    fn a_generator_that_sends_less_than_it_should_voids_a_run() {
        let verdict = |run: Run| invalid(&run, &RunSummary::of(&run, None));
        assert_eq!(verdict(stretched(0.1)), None, "99 % of the rate");
        let why = verdict(stretched(0.5)).unwrap();
        assert!(why.contains("95.2 % of the requests per second"), "{why}");
        let short = Run { records: stretched(0.5).records[..20].to_vec(), ..stretched(0.5) };
        assert_eq!(verdict(short), None, "10 ms of a short run");
        assert_eq!(verdict(Run { world: World::Virtual, ..stretched(0.5) }), None);
    }

    fn beside(machine: Machine) -> Run {
        let router_ns = crate::report::fixture::gaps(&[]);
        let beside = crate::run::Beside { router_ns, router_peak_bytes: None, machine };
        Run { beside: Some(beside), ..stretched(0.0) }
    }

    #[test]
    fn a_thread_without_time_to_spare_voids_a_run_and_one_with_little_is_told() {
        let at = |share| beside(Machine { client_ran: Some(share), ..Machine::default() });
        let told = |run: &Run| {
            let summary = RunSummary::of(run, None);
            (invalid(run, &summary).is_some(), warnings(run, &summary).len())
        };
        assert_eq!(told(&at(0.5)), (false, 0));
        assert_eq!(told(&at(0.8)), (false, 1));
        assert_eq!(told(&at(0.97)), (true, 1));
    }

    #[test]
    fn a_busy_machine_is_a_warning_that_names_who_had_the_cpu() {
        let told = |machine| {
            let run = beside(machine);
            let summary = RunSummary::of(&run, None);
            assert_eq!(invalid(&run, &summary), None);
            warnings(&run, &summary)
        };
        let waited = |share, ms: f64| Some(Waited { share, mean_ns: ms * 1e6 });
        let little = waited(0.2, 900.0);
        assert!(
            told(Machine { others_ran: Some(0.1), workers_waited: little, ..Machine::default() }).is_empty()
        );
        let both = Machine {
            others_ran: Some(0.63),
            workers_waited: waited(0.41, 900.0),
            stolen: Some(0.05),
            client_waited: waited(0.2, 900.0),
            ..Machine::default()
        };
        let told = told(both);
        assert_eq!(told.len(), 1);
        for word in
            ["live cache_aware seed 1: the machine was busy", "63.0 %", "41.0 %", "hypervisor", "20.0 %"]
        {
            assert!(told[0].contains(word), "{word}: {told:?}");
        }
    }

    #[test]
    fn waits_are_told_where_they_are_long_against_what_was_measured() {
        // 100 requests with a TTFT of `ttft_ms` and 11 tokens, the last one `tpot_ms` × 10 later.
        let told = |share: f64, wait_us: f64, (ttft_ms, tpot_ms): (u64, u64), speed: f64| {
            let one = |seq| {
                let (first, last) = (1000 + ttft_ms, 1000 + ttft_ms + 10 * tpot_ms);
                record(seq).sent_ms(1000, 1000).first_ms(first).last_ms(last).tokens(9, 0, 11).build()
            };
            let waited = Some(Waited { share, mean_ns: wait_us * 1e3 });
            let machine = Machine { router_waited: waited, ..Machine::default() };
            let records = (0..100).map(one).collect();
            let run = Run { world: World::Live, speed, records, ..beside(machine) };
            warnings(&run, &RunSummary::of(&run, None)).len()
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
    fn late_requests_are_told_before_they_void_a_run() {
        let told = |late_ms: u64, ttft_ms: u64| {
            let one = |seq| {
                record(seq).sent_ms(1000, 1000 + late_ms).first_ms(1000 + ttft_ms).last_ms(9000).build()
            };
            let run = Run { world: World::Live, ..run("cache_aware", (0..100).map(one).collect()) };
            let summary = RunSummary::of(&run, None);
            (invalid(&run, &summary).is_some(), warnings(&run, &summary).len())
        };
        assert_eq!(told(4, 50), (false, 0));
        assert_eq!(told(10, 1000), (false, 0), "1 % of the median");
        assert_eq!(told(30, 1000), (false, 1));
        assert_eq!(told(300, 1000), (true, 1));
    }

    #[test]
    fn both_bounds_must_be_passed() {
        assert_eq!(verdict(World::Live, 90, 1000, 1.0), None, "9 % of the median");
        assert_eq!(verdict(World::Live, 49, 100, 1.0), None, "less than 50 ms");
        assert!(verdict(World::Live, 51, 100, 1.0).is_some());
        assert_eq!(verdict(World::Live, 160, 400, 4.0), None, "40 ms of wall time at fourfold speed");
        assert!(verdict(World::Live, 240, 400, 4.0).unwrap().contains("60.0 ms late"));
    }
}
