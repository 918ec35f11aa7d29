//! Pair or regular worker.

use super::*;
use crate::PairPreference;
use crate::testing::matches;

fn both(pair: PairPreference) -> Router {
    let start = RouterConfig { pair, ..RouterConfig::new(config("cache_aware", &[]), 1) };
    fleet(start, [1, 1, 1])
}

const PAIR: Result<(Option<u32>, u32), NoPlan> = Ok((Some(1), 2));
const REGULAR: Result<(Option<u32>, u32), NoPlan> = Ok((None, 0));

#[test]
fn who_is_there_serves_and_of_both_kinds_the_preferred() {
    let cases = [
        ([1, 0, 0], [(None, 0); 3]),
        ([0, 1, 1], [(Some(0), 1); 3]),
        // Half a pair is none.
        ([1, 1, 0], [(None, 0); 3]),
        ([1, 0, 1], [(None, 0); 3]),
    ];
    for (counts, expected) in cases {
        for (prefers_pair, expected) in [None, Some(true), Some(false)].into_iter().zip(expected) {
            let mut router = fleet(RouterConfig::new(config("random", &[]), 1), counts);
            let found = plan_as(&mut router, PlanRequest { prefers_pair, ..ANY });
            assert_eq!(found.map(workers), Ok(expected), "{counts:?}, {prefers_pair:?}");
        }
    }
    for (prefer, prefers_pair, expected) in
        [(true, None, PAIR), (false, None, REGULAR), (false, Some(true), PAIR), (true, Some(false), REGULAR)]
    {
        let mut router = both(PairPreference { prefer, ..PairPreference::default() });
        let found = plan_as(&mut router, PlanRequest { prefers_pair, ..ANY });
        assert_eq!(found.map(workers), expected, "{prefer}, {prefers_pair:?}");
    }
    assert!(PairPreference::default().prefer);
}

#[test]
fn where_nobody_of_a_kind_is_able_the_other_one_serves() {
    for (sick, preferred, instead) in
        [(0, Some(false), PAIR), (1, Some(true), REGULAR), (2, Some(true), REGULAR)]
    {
        let request = PlanRequest { prefers_pair: preferred, ..ANY };
        let mut router = both(PairPreference::default());
        router.set_healthy(0, WorkerId(sick), false);
        assert_eq!(plan_as(&mut router, request).map(workers), instead, "{sick} is down");
        let mut router = both(PairPreference::default());
        let tried = [WorkerId(sick)];
        let found = plan_as(&mut router, PlanRequest { exclude: &tried, ..request });
        assert_eq!(found.map(workers), instead, "{sick} was tried");
        let mut router = both(PairPreference::default());
        router.set_draining(0, WorkerId(sick));
        assert_eq!(plan_as(&mut router, request).map(workers), instead, "{sick} is draining");
    }
    for (prefers_pair, leg) in [(Some(true), Leg::Decode), (Some(false), Leg::Whole)] {
        let tried = [WorkerId(0), WorkerId(2)];
        let request = PlanRequest { prefers_pair, exclude: &tried, ..ANY };
        let refused = plan_as(&mut both(PairPreference::default()), request);
        assert_eq!(
            refused,
            no(leg, Unroutable::AllTried { tried: 1 }),
            "the preferred kind's reason is told"
        );
    }
}

#[test]
fn a_pair_is_spared_where_little_is_to_be_computed() {
    // Of 250 tokens as many are believed to be with the prefill worker as 4 characters each.
    for (least, cached_chars, expected) in [
        (0, 1000, PAIR),
        (250, 0, PAIR),
        (251, 0, REGULAR),
        (100, 600, PAIR),
        (101, 600, REGULAR),
        (1, 1000, PAIR),
        (2, 1000, REGULAR),
    ] {
        let mut router = both(PairPreference { prefer: true, least_uncached_tokens: least });
        let scopes = router.scopes(None).expect("any model");
        let request = PlanRequest { scopes, ..ANY };
        let prefill = matches(&[(1, cached_chars)]);
        let told = PlanMatches { prefill, ..PlanMatches::default() };
        let found = router.plan(0, &request, &told).map(workers);
        assert_eq!(found, expected, "{least} at least, {cached_chars} characters are cached");
        router.set_healthy(0, WorkerId(0), false);
        assert_eq!(router.plan(0, &request, &told).map(workers), PAIR, "there is no other one");
    }
}

#[test]
fn what_is_believed_under_a_policy_without_prefixes_spares_no_pair() {
    let pair = PairPreference { prefer: true, least_uncached_tokens: 200 };
    let mut router = fleet(RouterConfig { pair, ..RouterConfig::new(config("random", &[]), 1) }, [1, 1, 1]);
    let request = PlanRequest { scopes: router.scopes(None).expect("any model"), ..ANY };
    let told = PlanMatches { prefill: matches(&[(1, 1000)]), ..PlanMatches::default() };
    assert_eq!(router.plan(0, &request, &told).map(workers), PAIR);
}
