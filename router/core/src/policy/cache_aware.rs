//! `cache_aware`: the worker that probably holds the prompt's prefix, unless it has too much to do.
//!
//! The rules of SGLang's gateway with these differences: a prefix that several workers hold is served by
//! the least loaded of them; equal loads are decided by a draw; workers that cannot be chosen neither count in the balance
//! test nor hide other owners; and the balance test looks by default at the one worker that would be chosen, so that one
//! overloaded worker does not cost all others their affinity.

use super::balance::{ABS_THRESHOLD, BalanceTest, REL_THRESHOLD};
use super::config::PolicyConfig;
use super::options::{OptionKind, OptionSpec, OptionValue, SearchRange};
use super::table::PolicyRow;
use super::{Candidate, Choice, Decision, Policy, Reason, Signals, WARM_UP};
use crate::Unroutable;
use crate::index::IndexLimits;

/// Owners of a prefix are all workers whose match is this close to the best, in characters: unrelated questions behind one
/// shared prefix agree in a few characters by accident, and such an agreement must not make one owner the only one.
pub const OWNER_SLACK_CHARS: u64 = 64;

const HIT: Reason = Reason::new("cache_hit");
const MISS: Reason = Reason::new("cache_miss");
const BALANCE: Reason = Reason::new("balance_test");

const THRESHOLD: OptionSpec = OptionSpec {
    key: "cache_threshold",
    kind: OptionKind::Float { min: 0.0, max: 1.0 },
    default: OptionValue::Float(0.3),
    help: "share of the prompt that must match, and more, for the match to be followed",
    search: Some(SearchRange { low: 0.1, high: 0.9, log: false }),
};
const MAX_TREE_SIZE: OptionSpec = OptionSpec {
    key: "max_tree_size",
    kind: OptionKind::Integer { min: 1, max: i64::MAX },
    default: OptionValue::Integer(1 << 26),
    help: "most characters that the prefix index keeps per worker",
    search: None,
};
const MAX_TREE_BYTES: OptionSpec = OptionSpec {
    key: "max_tree_bytes",
    kind: OptionKind::Integer { min: 1, max: i64::MAX },
    default: OptionValue::Integer(1 << 30),
    help: "most memory of the whole prefix index, in bytes",
    search: None,
};
const BALANCE_SCOPE: OptionSpec = OptionSpec {
    key: "balance_scope",
    kind: OptionKind::Choice(&["owner", "fleet"]),
    default: OptionValue::Text(std::borrow::Cow::Borrowed("owner")),
    help: "balance test: of the worker that would be chosen (owner), or of the most loaded one (fleet, as the gateway)",
    search: None,
};

pub(super) const ROW: PolicyRow = PolicyRow {
    name: "cache_aware",
    summary: "The worker that probably holds the prompt's prefix, unless it has too much to do.",
    options: &[THRESHOLD, ABS_THRESHOLD, REL_THRESHOLD, MAX_TREE_SIZE, MAX_TREE_BYTES, BALANCE_SCOPE],
    reasons: &[HIT.as_str(), MISS.as_str(), BALANCE.as_str(), WARM_UP.as_str()],
    needs_header: false,
    fewest_workers: 1,
    fits: |_| true,
    branch_metric: None,
    signals,
    build: |config| Box::new(CacheAware::new(config)),
};

fn signals(config: &PolicyConfig) -> Signals {
    let limits = IndexLimits {
        max_tree_size: config.integer(MAX_TREE_SIZE.key),
        max_tree_bytes: config.integer(MAX_TREE_BYTES.key),
    };
    Signals { prefix_index: Some(limits), loads: false }
}

/// Whose load the balance test looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BalanceScope {
    Owner,
    Fleet,
}

#[derive(Debug)]
struct CacheAware {
    threshold: f64,
    balance: BalanceTest,
    scope: BalanceScope,
}

impl CacheAware {
    fn new(config: &PolicyConfig) -> Self {
        let fleet = config.choice(BALANCE_SCOPE.key) == "fleet";
        Self {
            threshold: config.float(THRESHOLD.key),
            balance: BalanceTest::of(config),
            scope: if fleet { BalanceScope::Fleet } else { BalanceScope::Owner },
        }
    }

    /// The least loaded of the owners of the prompt's prefix; `None` if nobody holds enough of it.
    fn owner<'d>(&self, decision: &'d Decision<'_>) -> Option<&'d Candidate<'d>> {
        let best = decision.candidates.iter().map(|row| row.matched_chars).max().unwrap_or(0);
        let owns = |row: &Candidate<'_>| {
            row.matched_chars + OWNER_SLACK_CHARS >= best
                && self.is_hit(row.matched_chars, decision.prompt_chars)
        };
        decision.candidates.least_of(&mut decision.draws(), owns, |row| row.load().requests)
    }

    /// Strictly above the threshold; so nothing matched is never a hit, whatever the threshold.
    fn is_hit(&self, matched_chars: u64, prompt_chars: u64) -> bool {
        prompt_chars > 0 && matched_chars as f64 / prompt_chars as f64 > self.threshold
    }
}

impl Policy for CacheAware {
    fn choose<'d>(&self, decision: &'d Decision<'_>) -> Result<Choice<'d>, Unroutable> {
        let candidates = &decision.candidates;
        let least = candidates.least_loaded(&mut decision.draws());
        let owner = self.owner(decision);
        let tested = match self.scope {
            BalanceScope::Owner => owner.map(|owner| owner.load().requests),
            BalanceScope::Fleet => candidates.iter().map(|row| row.load().requests).max(),
        };
        let too_much = tested.is_some_and(|load| self.balance.fires(load, least.load().requests));
        Ok(match owner {
            _ if too_much => Choice::new(least, BALANCE),
            Some(owner) => Choice::new(owner, HIT),
            None => Choice::new(least, MISS),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{DONE, REQUEST, assign, config, in_flight, load, router};
    use crate::{OptionValue, Router};

    fn cache_aware(workers: u32, options: &[(&str, OptionValue)]) -> Router {
        router(config("cache_aware", options), workers, 1)
    }

    /// Where a request with these matches goes and why, booked and ended.
    fn go(router: &mut Router, rows: &[(u32, u64)]) -> (u32, &'static str) {
        let assignment = assign(router, rows);
        router.finish(0, assignment.lease, DONE);
        (assignment.worker.0, assignment.reason.as_str())
    }

    #[test]
    fn a_match_is_followed_only_if_it_is_strictly_above_the_threshold() {
        for (threshold, chars, reason) in [
            (0.3, 301, "cache_hit"),
            (0.3, 300, "cache_miss"),
            (0.0, 1, "cache_hit"),
            (0.0, 0, "cache_miss"),
            (1.0, 1000, "cache_miss"),
            (0.999, 1000, "cache_hit"),
        ] {
            let mut router = cache_aware(4, &[("cache_threshold", threshold.into())]);
            let case = format!("{chars} of 1000 at {threshold}");
            assert_eq!(go(&mut router, &[(2, chars)]).1, reason, "{case}");
            load(&mut router, 2, 1);
            let (worker, _) = go(&mut router, &[(2, chars)]);
            assert_eq!(worker == 2, reason == "cache_hit", "{case}: a miss goes to the least loaded");
        }
    }

    #[test]
    fn at_threshold_zero_workers_without_a_match_own_nothing() {
        let mut router = cache_aware(4, &[("cache_threshold", 0.0.into())]);
        load(&mut router, 1, 5);
        assert_eq!(
            go(&mut router, &[(1, 10)]),
            (1, "cache_hit"),
            "others are within the slack, and hold nothing"
        );
    }

    #[test]
    fn misses_spread_evenly_also_when_they_come_one_after_the_other() {
        let mut router = cache_aware(8, &[]);
        let mut counts = [0; 8];
        for _ in 0..4000 {
            counts[go(&mut router, &[]).0 as usize] += 1;
        }
        assert!(counts.iter().all(|count| (420..580).contains(count)), "{counts:?}");
    }

    #[test]
    fn an_empty_prompt_is_a_miss() {
        let mut router = cache_aware(2, &[("cache_threshold", 0.0.into())]);
        let assignment =
            router.assign(0, &REQUEST, &crate::index::Matches::default()).expect("a worker is there");
        assert_eq!(assignment.reason.as_str(), "cache_miss");
    }

    #[test]
    fn of_several_owners_the_least_loaded_serves() {
        let mut router = cache_aware(4, &[]);
        load(&mut router, 0, 3);
        load(&mut router, 1, 1);
        load(&mut router, 2, 2);
        assert_eq!(
            go(&mut router, &[(0, 900), (1, 900), (2, 900)]),
            (1, "cache_hit"),
            "and not the idle worker 3"
        );
        assert_eq!(
            go(&mut router, &[(0, 900), (1, 836), (2, 835)]),
            (1, "cache_hit"),
            "64 characters are no difference"
        );
        assert_eq!(go(&mut router, &[(0, 900), (1, 835), (2, 835)]), (0, "cache_hit"), "65 are");
    }

    #[test]
    fn equal_owners_share_evenly() {
        let mut router = cache_aware(4, &[]);
        let mut counts = [0; 4];
        for _ in 0..2000 {
            counts[go(&mut router, &[(1, 900), (3, 900)]).0 as usize] += 1;
        }
        assert_eq!((counts[0], counts[2]), (0, 0));
        assert!((900..1100).contains(&counts[1]), "{counts:?}");
    }

    #[test]
    fn an_owner_that_cannot_be_chosen_hides_no_other() {
        let mut router = cache_aware(4, &[]);
        load(&mut router, 1, 4);
        router.set_healthy(0, crate::WorkerId(0), false);
        assert_eq!(go(&mut router, &[(0, 1000), (1, 500)]), (1, "cache_hit"));
    }

    #[test]
    fn one_overloaded_worker_does_not_cost_others_their_affinity() {
        let mut router = cache_aware(3, &[]);
        load(&mut router, 0, 100);
        for _ in 0..10 {
            assert_eq!(go(&mut router, &[(1, 900)]), (1, "cache_hit"));
            let (worker, reason) = go(&mut router, &[(0, 900)]);
            assert!(worker != 0 && reason == "balance_test", "{worker} {reason}");
        }
    }

    #[test]
    fn with_scope_fleet_one_overloaded_worker_switches_affinity_off() {
        let mut router = cache_aware(3, &[("balance_scope", "fleet".into())]);
        load(&mut router, 0, 100);
        load(&mut router, 1, 1);
        assert_eq!(go(&mut router, &[(1, 900)]), (2, "balance_test"));
        assert_eq!(go(&mut router, &[]), (2, "balance_test"));
    }

    #[test]
    fn the_balance_test_needs_both_thresholds() {
        for (loads, fires) in [
            ([65, 0], true),
            ([64, 0], false),
            ([195, 130], false),
            ([196, 130], true),
            ([300, 200], false),
            ([301, 200], true),
        ] {
            for scope in ["owner", "fleet"] {
                let mut router = cache_aware(2, &[("balance_scope", scope.into())]);
                load(&mut router, 0, loads[0]);
                load(&mut router, 1, loads[1]);
                let expected = if fires { (1, "balance_test") } else { (0, "cache_hit") };
                assert_eq!(go(&mut router, &[(0, 900)]), expected, "{loads:?}, scope {scope}");
            }
        }
    }

    #[test]
    fn workers_that_cannot_be_chosen_do_not_count_in_the_balance_test() {
        for scope in ["owner", "fleet"] {
            let mut router = cache_aware(3, &[("balance_scope", scope.into())]);
            load(&mut router, 0, 100);
            load(&mut router, 1, 100);
            router.set_healthy(0, crate::WorkerId(2), false);
            assert_eq!(
                go(&mut router, &[(0, 900)]),
                (0, "cache_hit"),
                "the idle worker is down, scope {scope}"
            );
        }
    }

    #[test]
    fn a_hot_prefix_spreads_only_when_the_test_fires() {
        let mut router = cache_aware(4, &[]);
        for sent in 0..65 {
            assert_eq!(assign(&mut router, &[(0, 900)]).worker.0, 0, "request {sent}");
        }
        assert_eq!(assign(&mut router, &[(0, 900)]).reason.as_str(), "balance_test");
        assert_eq!(in_flight(&router)[0], 65);
    }

    #[test]
    fn what_is_predicted_is_the_share_of_the_chosen_worker() {
        let mut router = cache_aware(2, &[]);
        let cases = [(500, 125), (999, 249), (1000, 249)];
        for (chars, tokens) in cases {
            let assignment = assign(&mut router, &[(0, chars)]);
            assert_eq!(
                assignment.predicted_cached_tokens,
                Some(tokens),
                "{chars} of 1000 characters, 250 tokens"
            );
            assert_eq!((assignment.matched_chars, assignment.prompt_chars), (chars, 1000));
        }
        let ids = [7; 100];
        let request =
            crate::RouteRequest { prompt: crate::PromptView::Tokens(&ids), prompt_tokens: 100, ..REQUEST };
        let all = crate::index::Matches::new([(crate::WorkerId(0), 244)], 400);
        let assignment = router.assign(0, &request, &all).expect("a worker is there");
        assert_eq!(assignment.predicted_cached_tokens, Some(61), "four characters per token, exactly");
    }
}
