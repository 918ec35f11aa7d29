//! Fleets side by side: where a sweep gives the same demand to several fleets, which of them is better at what.

use super::best::best_among;
use super::format::figure;
use super::margin::{Standing, standing};
use super::metric::Metric;
use super::stats::Spread;
use super::variant::{Variant, contests, demand, plain, same_demand, side, varying};
use crate::run::World;

/// What sides are compared in, and what it is called.
const COMPARED: [(&str, &str); 6] = [
    ("TTFT p50", "ttft_ms.p50"),
    ("TTFT p99", "ttft_ms.p99"),
    ("ITL p99", "itl_ms.p99"),
    ("TPOT p50", "tpot_ms.p50"),
    ("input throughput", "input_tok_s"),
    ("share of requests within the objectives", "slo_attainment"),
];

/// Fleets that were given the same demand.
pub(super) struct Meeting {
    /// The demand in words; empty where only one was made.
    pub(super) demand: String,
    /// The best variant of each fleet, by its place.
    sides: Vec<usize>,
}

/// The key of how many workers a fleet has. More of them are no better a fleet.
const WORKERS: &str = "fleet.workers";

/// Whether two variants can be set side by side: the same was asked of as many workers.
fn comparable(a: &Variant<'_>, b: &Variant<'_>) -> bool {
    same_demand(a, b) && a.params.get(WORKERS) == b.params.get(WORKERS)
}

/// The demand in words, and how many workers met it, where that varies.
fn asked(variants: &[Variant<'_>], of: &Variant<'_>) -> String {
    let demand = demand(variants, of);
    if !varying(variants, of.world, of.policy).contains(&WORKERS) {
        return demand;
    }
    let workers = format!("{} workers", plain(of.params.get(WORKERS)));
    if demand.is_empty() { workers } else { format!("{demand}, {workers}") }
}

/// Every demand that several fleets of one size met in a world, in the order of the scenario.
pub(super) fn meetings(variants: &[Variant<'_>], world: World) -> Vec<Meeting> {
    let mut meetings: Vec<Meeting> = Vec::new();
    for contest in contests(variants, world) {
        let Some(side) = best_among(variants, contest) else { continue };
        let known = meetings.iter_mut().find(|m| comparable(&variants[m.sides[0]], &variants[side]));
        match known {
            Some(meeting) => meeting.sides.push(side),
            None => meetings.push(Meeting { demand: asked(variants, &variants[side]), sides: vec![side] }),
        }
    }
    meetings.retain(|meeting| meeting.sides.len() > 1);
    meetings
}

impl Meeting {
    /// Who is better at what, and by how much.
    pub(super) fn verdict(&self, variants: &[Variant<'_>]) -> String {
        let sides: Vec<&Variant<'_>> = self.sides.iter().map(|place| &variants[*place]).collect();
        let mut won: Vec<Vec<String>> = vec![Vec::new(); sides.len()];
        let mut ties = Vec::new();
        for (title, metric) in
            COMPARED.iter().filter_map(|(title, name)| Some((*title, Metric::named(name)?)))
        {
            let spreads: Vec<Option<Spread>> = sides.iter().map(|side| side.spread(metric)).collect();
            match standing(&spreads, metric) {
                Standing::Won { first, second, lead } => {
                    let median = |place: usize| spreads[place].map_or(0.0, |spread| spread.median);
                    let [ours, theirs] = [first, second].map(|place| figure(median(place), metric.unit));
                    let whose = if sides.len() > 2 {
                        format!(" of {}", side(variants, sides[second]))
                    } else {
                        String::new()
                    };
                    won[first].push(format!("{lead} {title} ({ours} against {theirs}{whose})"));
                }
                Standing::Tied(_) => ties.push(title),
                Standing::Alone => {}
            }
        }
        let winners = sides.iter().zip(&won).filter(|(_, won)| !won.is_empty());
        let mut parts: Vec<String> =
            winners.map(|(one, won)| format!("{} has {}", side(variants, one), listed(won))).collect();
        if !ties.is_empty() {
            parts.push(format!("a tie: {}", ties.join(", ")));
        }
        format!("{}.", parts.join("; "))
    }
}

fn listed(parts: &[String]) -> String {
    match parts {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => parts.concat(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::fixture::{apart, record, run};
    use crate::report::summary::RunSummary;
    use crate::report::variant::variants;

    fn summary(rate: u64, prefill: u32, ttft_ms: u64, last_ms: u64, seed: u64) -> RunSummary {
        let only = record(0).tokens(1000, 0, 11).first_ms(ttft_ms).last_ms(last_ms).worker(0).build();
        let mut run = run("cache_aware", vec![only]);
        run.seed = seed;
        run.params.insert("arrival.rate".into(), json!(rate));
        run.params.insert("fleet.prefill".into(), json!(prefill));
        if prefill > 0 {
            (run.workers, run.pools) = (8, apart(prefill, 8 - prefill));
        }
        RunSummary::of(&run, None)
    }

    #[test]
    fn every_demand_tells_who_is_better_at_what() {
        let summaries = [
            summary(8, 0, 88, 1000, 1),
            summary(8, 4, 100, 1000, 1),
            summary(90, 0, 90, 500, 1),
            summary(90, 0, 300, 500, 2),
            summary(90, 4, 100, 1000, 1),
        ];
        let variants = variants(&summaries);
        let meetings = meetings(&variants, World::Virtual);
        let demands: Vec<&str> = meetings.iter().map(|m| m.demand.as_str()).collect();
        assert_eq!(demands, ["8 requests/s", "90 requests/s"]);
        let [light, heavy] = [0, 1].map(|at: usize| meetings[at].verdict(&variants));
        assert!(light.starts_with("regular has 12 % lower TTFT p50 (88.0 ms against 100 ms)"), "{light}");
        assert!(
            light.contains("; 4 prefill + 4 decode has 1 % lower")
                || light.contains("a tie: TPOT p50, input throughput"),
            "{light}"
        );
        assert!(heavy.contains("regular has") && heavy.contains("100 % higher input throughput"), "{heavy}");
        assert!(heavy.contains("a tie: TTFT p50"), "one seed is faster, the other slower: {heavy}");
    }

    #[test]
    fn more_workers_are_no_better_fleet() {
        let with = |workers: u32, prefill: u32, ttft_ms| {
            let mut summary = summary(8, prefill, ttft_ms, 1000, 1);
            summary.params.insert(WORKERS.into(), json!(workers));
            summary
        };
        let of = |summaries: &[RunSummary]| -> Vec<String> {
            let variants = variants(summaries);
            meetings(&variants, World::Virtual).into_iter().map(|meeting| meeting.demand).collect()
        };
        assert!(of(&[with(4, 0, 200), with(8, 0, 100)]).is_empty());
        let both = [with(4, 0, 200), with(8, 0, 100), with(8, 4, 90)];
        assert_eq!(of(&both), ["8 workers"], "two fleets of eight");
    }

    #[test]
    fn one_fleet_meets_nobody() {
        let summaries = [summary(8, 0, 88, 1000, 1), summary(90, 0, 90, 500, 1)];
        assert!(meetings(&variants(&summaries), World::Virtual).is_empty());
    }
}
