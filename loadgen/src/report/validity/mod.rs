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
//! else ran: figures of hit rate and placement stand then, and times are doubtful. Where it slowed the run down, its times
//! are not its own, and nobody is called best by them ([`machine`]). In virtual time nobody is late.

mod machine;

use super::format::{duration_ms, percent};
use super::stats::quantile;
use super::summary::RunSummary;
use crate::run::{Run, World};
use machine::Seen;

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
}

/// What is said against live runs, each in a sentence that names the run.
#[derive(Debug, Default)]
pub(super) struct Validity {
    /// The load generator was the bottleneck: nothing can be relied upon.
    pub(super) invalid: Vec<String>,
    /// Something else had the machine: times cannot be compared.
    pub(super) disturbed: Vec<String>,
    /// Times are doubtful.
    pub(super) warnings: Vec<String>,
}

impl Validity {
    /// Of runs with their figures.
    pub(super) fn of<'r>(runs: impl Iterator<Item = (&'r Run, &'r RunSummary)>) -> Self {
        let mut all = Self::default();
        for (run, summary) in runs.filter(|(run, _)| run.world == World::Live) {
            let seen = Seen::of(run, summary);
            let told = |text: String| format!("{}: {text}", name(run));
            all.invalid.extend(invalid(run, summary).map(told));
            all.disturbed.extend(seen.disturbed().map(told));
            all.warnings.extend(seen.busy().into_iter().chain(near_limits(run, summary)).map(told));
        }
        all
    }
}

/// Why a run is void; `None` when it is not.
fn invalid(run: &Run, summary: &RunSummary) -> Option<String> {
    let why = too_late(run, summary).or_else(|| too_slow(run)).or_else(|| too_busy(run))?;
    Some(format!("the generator was the bottleneck: {why}; send fewer per second, or lower fleet.speed"))
}

/// That the generator nearly was the bottleneck.
fn near_limits(run: &Run, summary: &RunSummary) -> Vec<String> {
    let mut warnings = Vec::new();
    let ran = run.beside.as_ref().and_then(|beside| beside.machine.client_ran);
    if let Some(share) = ran.filter(|share| *share > doubtful::CLIENT) {
        let share = percent(share);
        warnings.push(format!("the generator was near its limits: its thread used {share} % of a core"));
    }
    let (late, ttft) = (summary.send_lag_ms.p99.unwrap_or(0.0), summary.ttft_ms.p50.unwrap_or(0.0));
    if late / run.speed > doubtful::LATE_MS && late > doubtful::LATE_SHARE * ttft {
        let late = duration_ms(late / run.speed);
        warnings.push(format!("requests left up to {late} late (p99), which is in their TTFT"));
    }
    warnings
}

/// The run in words.
fn name(run: &Run) -> String {
    format!("{} {} seed {}", run.world.label(), run.router(), run.seed)
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
    use crate::run::Machine;

    /// What is said against one run.
    pub(super) fn of(run: &Run) -> Validity {
        Validity::of([(run, &RunSummary::of(run, None))].into_iter())
    }

    /// Whether it is void, and how many warnings there are.
    fn told(run: &Run) -> (bool, usize) {
        let of = of(run);
        (!of.invalid.is_empty(), of.warnings.len())
    }

    /// Why it is void.
    fn void(run: &Run) -> Option<String> {
        of(run).invalid.pop()
    }

    /// A run of 100 requests, all answered `ttft_ms` after their due time and sent `late_ms` after it.
    fn verdict(world: World, late_ms: u64, ttft_ms: u64, speed: f64) -> Option<String> {
        let one =
            |seq| record(seq).sent_ms(1000, 1000 + late_ms).first_ms(1000 + ttft_ms).last_ms(9000).build();
        void(&Run { world, speed, ..run("cache_aware", (0..100).map(one).collect()) })
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
        assert_eq!(
            void(&Run { world: World::Live, ..run("cache_aware", (0..100).map(one).collect()) }),
            None
        );
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
        assert_eq!(void(&stretched(0.1)), None, "99 % of the rate");
        let why = void(&stretched(0.5)).unwrap();
        assert!(why.contains("95.2 % of the requests per second"), "{why}");
        let short = Run { records: stretched(0.5).records[..20].to_vec(), ..stretched(0.5) };
        assert_eq!(void(&short), None, "10 ms of a short run");
        assert_eq!(void(&Run { world: World::Virtual, ..stretched(0.5) }), None);
    }

    /// A live run on such a machine, all of whose TTFT are 20 s.
    pub(super) fn beside(machine: Machine) -> Run {
        let router_ns = crate::report::fixture::gaps(&[]);
        let beside = crate::run::Beside { router_ns, router_peak_bytes: None, machine };
        Run { beside: Some(beside), ..stretched(0.0) }
    }

    #[test]
    fn a_thread_without_time_to_spare_voids_a_run_and_one_with_little_is_told() {
        let at = |share| beside(Machine { client_ran: Some(share), ..Machine::default() });
        assert_eq!(told(&at(0.5)), (false, 0));
        assert_eq!(told(&at(0.8)), (false, 1));
        assert_eq!(told(&at(0.97)), (true, 1));
    }

    #[test]
    fn late_requests_are_told_before_they_void_a_run() {
        let told = |late_ms: u64, ttft_ms: u64| {
            let one = |seq| {
                record(seq).sent_ms(1000, 1000 + late_ms).first_ms(1000 + ttft_ms).last_ms(9000).build()
            };
            told(&Run { world: World::Live, ..run("cache_aware", (0..100).map(one).collect()) })
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
