//! Which variant of a world is best, and which is best in one figure.
//!
//! Throughput alone cannot rank policies under a load all of them carry, so near-equals in throughput are ranked by
//! time to first token. The rule is printed wherever its result is.

use super::metric::{Better, Metric};
use super::variant::{Variant, comparable, same_work};
use crate::run::World;

/// Throughputs within this share of the highest count as equal.
const NEAR: f64 = 0.02;

/// The rule, in words.
pub(super) const RULE: &str = "highest median input throughput; among those within 2 % of it, lowest median TTFT p50; among equals, the defaults";

/// The place of the best of the variants that were given the same work as this one; `None` when nothing succeeded, there
/// is no choice or the figures do not decide. What was chosen by another question comes before the rule.
pub(super) fn best(variants: &[Variant<'_>], of: &Variant<'_>) -> Option<usize> {
    let places: Vec<usize> = (0..variants.len()).filter(|p| same_work(&variants[*p], of)).collect();
    if places.len() < 2 || of.is_undecided {
        return None;
    }
    if let Some(chosen) = places.iter().find(|place| variants[**place].is_chosen) {
        return Some(*chosen);
    }
    let succeeded = places.iter().any(|place| throughput(&variants[*place]) > 0.0);
    if succeeded { best_among(variants, places) } else { None }
}

/// Whether this variant is the best of those with the same work.
pub(super) fn is_best(variants: &[Variant<'_>], variant: &Variant<'_>) -> bool {
    best(variants, variant).is_some_and(|place| std::ptr::eq(&variants[place], variant))
}

/// The first `count` of some variants by the rule, best first.
pub(super) fn leaders(variants: &[Variant<'_>], mut places: Vec<usize>, count: usize) -> Vec<usize> {
    let mut leaders = Vec::new();
    while leaders.len() < count
        && let Some(next) = best_among(variants, places.clone())
    {
        places.retain(|place| *place != next);
        leaders.push(next);
    }
    leaders
}

/// The best of some variants; among equals one with its policy's defaults, and else the earlier. `None` of none.
pub(super) fn best_among(variants: &[Variant<'_>], places: Vec<usize>) -> Option<usize> {
    let top = places.iter().map(|p| throughput(&variants[*p])).fold(0.0, f64::max);
    let ttft = |place: &usize| variants[*place].median("ttft_ms.p50").unwrap_or(f64::INFINITY);
    places.into_iter().filter(|p| throughput(&variants[*p]) >= top * (1.0 - NEAR)).min_by(|a, b| {
        let by_defaults = || variants[*b].keeps_defaults.cmp(&variants[*a].keeps_defaults);
        ttft(a).total_cmp(&ttft(b)).then_with(by_defaults)
    })
}

/// The figures in which variants have to be the same to make no difference.
const TELLING: [&str; 4] = ["input_tok_s", "hit_rate", "ttft_ms.p50", "ttft_ms.p99"];

/// Whether it makes no difference which of some variants is taken: what is told of them is the same to the last digit.
pub(super) fn is_level(variants: &[Variant<'_>], places: &[usize]) -> bool {
    let Some((first, others)) = places.split_first() else { return false };
    let median = |place: usize, name: &str| variants[place].median(name);
    let same = |place: &usize| TELLING.iter().all(|name| median(*place, name) == median(*first, name));
    !others.is_empty() && throughput(&variants[*first]) > 0.0 && others.iter().all(same)
}

/// By what the first of two leaders comes before the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lead {
    /// The second is not near the highest throughput.
    Throughput,
    /// Both are near it, and the first answers sooner.
    Ttft,
    /// They are equal in what the rule looks at, and only the first has its policy's defaults.
    Defaults,
    /// They are equal in that as well; the first stands earlier in the scenario.
    Order,
}

/// By what `first` leads `second`, both from `contest`.
pub(super) fn lead(variants: &[Variant<'_>], contest: &[usize], first: usize, second: usize) -> Lead {
    let top = contest.iter().map(|place| throughput(&variants[*place])).fold(0.0, f64::max);
    let ttft = |place: usize| variants[place].median("ttft_ms.p50");
    if throughput(&variants[second]) < top * (1.0 - NEAR) {
        Lead::Throughput
    } else if ttft(first) != ttft(second) {
        Lead::Ttft
    } else if variants[first].keeps_defaults && !variants[second].keeps_defaults {
        Lead::Defaults
    } else {
        Lead::Order
    }
}

fn throughput(variant: &Variant<'_>) -> f64 {
    variant.median("input_tok_s").unwrap_or(0.0)
}

/// The policy the others of a world are compared with: the first one, in the scenario's order. `None` where there is
/// no other.
pub(super) fn baseline_policy<'a>(variants: &[Variant<'a>], world: World) -> Option<&'a str> {
    let mut policies = variants.iter().filter(|v| v.world == world).map(|v| v.policy);
    let first = policies.next()?;
    policies.any(|policy| policy != first).then_some(first)
}

/// The baseline's variant that differs from this one in nothing both of them set.
pub(super) fn baseline<'a, 'b>(variants: &'a [Variant<'b>], of: &Variant<'_>) -> Option<&'a Variant<'b>> {
    let policy = baseline_policy(variants, of.world)?;
    variants.iter().find(|v| v.policy == policy && comparable(v, of))
}

/// How many times the baseline's throughput a variant has.
pub(super) fn speedup(variants: &[Variant<'_>], of: &Variant<'_>) -> Option<f64> {
    let base = baseline(variants, of)?.median("input_tok_s").filter(|base| *base > 0.0)?;
    Some(of.median("input_tok_s")? / base)
}

/// How the best median of a metric reads among those of `rows` that were given the same work as `of`. Whatever reads the
/// same is as good; `None` when all do, when the metric is no merit, or when figures do not decide.
pub(super) fn best_text(rows: &[&Variant<'_>], of: &Variant<'_>, metric: &Metric) -> Option<String> {
    if of.is_undecided {
        return None;
    }
    let write = |value| metric.cell(value);
    let medians = || rows.iter().filter(|v| same_work(v, of)).filter_map(|v| Some(v.spread(metric)?.median));
    let (low, high) = (medians().reduce(f64::min)?, medians().reduce(f64::max)?);
    let best = match metric.better {
        Better::Higher => write(high),
        // No failures are what one expects, not a merit.
        Better::Lower if low == 0.0 => return None,
        Better::Lower => write(low),
        Better::Neither => return None,
    };
    (write(low) != write(high)).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{record, run};
    use crate::report::summary::RunSummary;
    use crate::report::variant::variants;

    fn summary(policy: &str, ttft_ms: u64, last_ms: u64) -> RunSummary {
        let only = record(0).tokens(1000, 0, 1).first_ms(ttft_ms).last_ms(last_ms).build();
        RunSummary::of(&run(policy, vec![only]), None)
    }

    fn best_of(summaries: &[RunSummary]) -> Option<&str> {
        let variants = variants(summaries);
        best(&variants, &variants[0]).map(|place| summaries[variants[place].runs[0]].policy.as_str())
    }

    #[test]
    fn throughput_decides_and_latency_breaks_near_ties() {
        assert_eq!(
            best_of(&[summary("random", 5, 1000), summary("round_robin", 500, 900)]),
            Some("round_robin")
        );
        assert_eq!(best_of(&[summary("random", 5, 1000), summary("round_robin", 500, 990)]), Some("random"));
        assert_eq!(best_of(&[summary("random", 5, 1000)]), None, "no choice");
        assert_eq!(best_of(&[summary("random", 0, 0), summary("round_robin", 0, 0)]), None, "no throughput");
    }

    #[test]
    fn only_what_did_the_same_work_is_ranked() {
        let with = |policy: &str, workers: u32, last_ms: u64| {
            let mut summary = summary(policy, 5, last_ms);
            summary.params.insert("fleet.workers".into(), workers.into());
            summary
        };
        let summaries = [
            with("random", 1, 900),
            with("round_robin", 1, 1000),
            with("random", 8, 200),
            with("round_robin", 8, 100),
        ];
        let variants = variants(&summaries);
        let winners: Vec<bool> = variants.iter().map(|variant| is_best(&variants, variant)).collect();
        assert_eq!(winners, [true, false, false, true], "eight workers do not beat one");
        let rows: Vec<&Variant<'_>> = variants.iter().collect();
        let makespan = Metric::named("makespan_s").unwrap();
        let texts: Vec<_> = variants.iter().filter_map(|v| best_text(&rows, v, makespan)).collect();
        assert_eq!(texts, ["0.9", "0.9", "0.1", "0.1"]);
    }

    /// Settings of a threshold, of which 0.3 is the default.
    fn settings(last_ms: [u64; 3]) -> Vec<RunSummary> {
        let with = |(threshold, last_ms): (f64, u64)| {
            let mut summary = summary("cache_aware", 5, last_ms);
            summary.params.insert("cache_threshold".into(), threshold.into());
            summary
        };
        [0.1, 0.3, 0.5].into_iter().zip(last_ms).map(with).collect()
    }

    #[test]
    fn among_equals_the_default_is_best() {
        let level = settings([1000; 3]);
        let level = variants(&level);
        assert_eq!(best(&level, &level[0]), Some(1));
        assert_eq!(leaders(&level, vec![0, 1, 2], 3), [1, 0, 2]);
        assert_eq!(lead(&level, &[0, 1, 2], 1, 0), Lead::Defaults);
        assert!(is_level(&level, &[0, 1, 2]) && !is_level(&level, &[0]));
        let better = settings([1000, 1000, 500]);
        let better = variants(&better);
        assert_eq!(best(&better, &better[0]), Some(2), "a default is no merit where something is better");
        assert!(!is_level(&better, &[0, 1, 2]));
    }

    #[test]
    fn leaders_come_best_first() {
        let summaries =
            [summary("random", 5, 1000), summary("round_robin", 5, 500), summary("bucket", 5, 700)];
        assert_eq!(leaders(&variants(&summaries), vec![0, 1, 2], 2), [1, 2]);
        assert_eq!(leaders(&variants(&summaries), vec![0, 2], 9), [2, 0]);
    }

    #[test]
    fn what_decided_is_told() {
        let summaries = [
            summary("random", 5, 1000),
            summary("round_robin", 5, 1000),
            summary("bucket", 4, 1001),
            summary("manual", 3, 1200),
        ];
        let variants = variants(&summaries);
        let contest = [0, 1, 2, 3];
        assert_eq!(leaders(&variants, contest.into(), 4), [2, 0, 1, 3]);
        assert_eq!(lead(&variants, &contest, 2, 0), Lead::Ttft);
        assert_eq!(lead(&variants, &contest, 0, 1), Lead::Order);
        assert_eq!(lead(&variants, &contest, 0, 3), Lead::Throughput, "latency does not make up for it");
    }

    #[test]
    fn the_first_policy_is_what_others_are_compared_with() {
        let summaries = [
            summary("power_of_two", 5, 1000),
            summary("round_robin", 5, 500),
            summary("power_of_two", 5, 1000),
        ];
        let variants = variants(&summaries);
        assert_eq!(baseline_policy(&variants, World::Virtual), Some("power_of_two"));
        assert_eq!(baseline_policy(&variants, World::Live), None, "nothing ran there");
        assert_eq!(speedup(&variants, &variants[1]), Some(2.0));
        assert_eq!(baseline_policy(&variants[..1], World::Virtual), None, "nothing to compare");
        assert_eq!(speedup(&variants[..1], &variants[0]), None);
    }

    #[test]
    fn a_merit_all_share_is_no_merit() {
        let summaries = [summary("random", 5, 1000), summary("round_robin", 5, 900)];
        let variants = variants(&summaries);
        let rows: Vec<&Variant<'_>> = variants.iter().collect();
        let best = |name| best_text(&rows, &variants[0], Metric::named(name).unwrap());
        assert_eq!(best("makespan_s").as_deref(), Some("0.9"));
        assert_eq!(best("ttft_ms.p50"), None, "equal");
        assert_eq!(best("requests"), None, "no merit");
    }
}
