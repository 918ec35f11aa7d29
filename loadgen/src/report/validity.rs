//! Whether a run measured the router and its workers, or the machine that sent the requests.
//!
//! A live generator that falls behind its schedule sends another load than the scenario asks for. Its lateness counts in
//! every latency, so a run is void when the lateness is both a visible part of the latency and more than a scheduling
//! hiccup. The 90th percentile tells a generator that cannot keep up from a machine that stood still once. In virtual
//! time nobody is late.

use super::format::{duration_ms, percent};
use super::stats::quantile;
use super::summary::RunSummary;
use crate::run::{Run, World};

/// The percentile of lateness that is looked at.
const QUANTILE: f64 = 0.90;
/// Largest share of the median TTFT that it may have.
const LARGEST_SHARE: f64 = 0.1;
/// Lateness up to this much wall time is never held against a run, in milliseconds.
const HARMLESS_MS: f64 = 50.0;

/// Why a run is void, in one sentence; `None` when it is not.
pub(super) fn invalid(run: &Run, summary: &RunSummary) -> Option<String> {
    if run.world != World::Live {
        return None;
    }
    let late = |r: &protocol::record::RequestRecord| r.sent_ns.saturating_sub(r.intended_ns) as f64 / 1e6;
    let mut late_ms: Vec<f64> = run.records.iter().map(late).collect();
    late_ms.sort_by(f64::total_cmp);
    let (late, ttft) = (quantile(&late_ms, QUANTILE)?, summary.ttft_ms.p50?);
    let wall_ms = late / run.speed;
    if late <= LARGEST_SHARE * ttft || wall_ms <= HARMLESS_MS {
        return None;
    }
    Some(format!(
        "{} {} seed {}: the generator was the bottleneck: requests left {} late (p90), {} % of the median TTFT; send \
         fewer per second, or lower fleet.speed",
        run.world.label(),
        run.policy.name(),
        run.seed,
        duration_ms(wall_ms),
        percent(late / ttft)
    ))
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

    #[test]
    fn both_bounds_must_be_passed() {
        assert_eq!(verdict(World::Live, 90, 1000, 1.0), None, "9 % of the median");
        assert_eq!(verdict(World::Live, 49, 100, 1.0), None, "less than 50 ms");
        assert!(verdict(World::Live, 51, 100, 1.0).is_some());
        assert_eq!(verdict(World::Live, 160, 400, 4.0), None, "40 ms of wall time at fourfold speed");
        assert!(verdict(World::Live, 240, 400, 4.0).unwrap().contains("60.0 ms late"));
    }
}
