use std::collections::BTreeSet;

use proptest::prelude::*;
use smallvec::{SmallVec, smallvec};

use super::{Cause, Next, RetryBudget, RetryConfig, StatusSet, Tries};
use crate::WorkerId;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const NEVER: u64 = u64::MAX;
/// The draw that leaves a wait as it is.
const MIDDLE: f64 = 0.5;

/// Those by which a worker counts as tried.
const CAUSES: [Cause; 6] = [
    Cause::Connect,
    Cause::StaleConnection,
    Cause::Reset,
    Cause::Status(503),
    Cause::Status(500),
    Cause::Status(400),
];

/// Attempts that failed, one every second from time 0 on, as (worker, Retry-After in seconds).
fn tries(attempts: &[(u32, Option<u64>)], cause: Cause) -> Tries {
    let mut tries = Tries::new();
    for (n, (worker, retry_after)) in attempts.iter().enumerate() {
        tries.failed(n as u64 * SECOND, WorkerId(*worker), cause, retry_after.map(|secs| secs * SECOND));
    }
    tries
}

fn retry(wait_ns: u64, exclude: &[u32], needs_budget: bool) -> Next {
    Next::Retry { wait_ns, exclude: exclude.iter().map(|id| WorkerId(*id)).collect(), needs_budget }
}

#[test]
fn by_default_waits_grow_by_half_up_to_half_a_minute_in_whole_milliseconds() {
    let config = RetryConfig::default();
    let waits: Vec<u64> = (0..5).map(|retry| config.backoff_ns(retry, MIDDLE)).collect();
    assert_eq!(waits, [50, 75, 112, 168, 253].map(|wait_ms| wait_ms * MS));
    assert_eq!([20, 1000, u32::MAX].map(|retry| config.backoff_ns(retry, MIDDLE)), [30 * SECOND; 3]);
    let odd = RetryConfig { initial_backoff_ns: 0, multiplier: 1e9, ..config };
    assert_eq!(odd.backoff_ns(u32::MAX, MIDDLE), 0);
}

#[test]
fn jitter_makes_a_wait_longer_or_shorter_by_its_share() {
    let config = RetryConfig::default();
    let waits = [0.0, 0.25, 0.5, 0.75].map(|draw| config.backoff_ns(0, draw) / MS);
    assert_eq!(waits, [40, 45, 50, 55]);
    assert!(config.backoff_ns(0, 1.0 - f64::EPSILON) <= 60 * MS);
    let mad = RetryConfig { jitter: 3.0, ..config };
    assert_eq!(mad.backoff_ns(0, 0.0), 0, "not before now");
}

#[test]
fn what_is_retried() {
    let config = RetryConfig::default();
    let retried: Vec<u16> = (0..1100).filter(|status| config.retries(Cause::Status(*status))).collect();
    assert_eq!(retried, [408, 429, 500, 502, 503, 504]);
    assert!(config.retries(Cause::Connect) && config.retries(Cause::StaleConnection));
    assert!(config.retries(Cause::Reset));
    let careful = RetryConfig { on_reset: false, ..config };
    assert!(careful.retries(Cause::Connect));
    assert!(!careful.retries(Cause::Reset) && !careful.retries(Cause::StaleConnection));
}

#[test]
fn what_is_never_tried_again_is_told_from_what_has_used_up_its_attempts() {
    let config = RetryConfig::default();
    let none = RetryConfig { max_attempts: 0, ..RetryConfig::default() };
    let next = |tries: &Tries, config: &RetryConfig| tries.next(config, 0, NEVER, true, MIDDLE);
    assert_eq!(next(&Tries::new(), &config), Next::Final, "nothing has failed");
    for attempts in [1, 4, 5] {
        let tries = tries(&[(0, None); 5][..attempts], Cause::Status(400));
        assert_eq!(next(&tries, &config), Next::Final, "the last of {attempts} cannot be mended");
    }
    for cause in [Cause::Connect, Cause::StaleConnection, Cause::Reset, Cause::Status(503)] {
        assert_eq!(next(&tries(&[(0, None)], cause), &RetryConfig::disabled()), Next::Final, "{cause:?}");
        assert_eq!(next(&tries(&[(0, None)], cause), &none), Next::Final, "{cause:?}: 0 means 1");
        assert!(matches!(next(&tries(&[(0, None); 4], cause), &config), Next::Retry { .. }), "{cause:?}");
        assert_eq!(next(&tries(&[(0, None); 5], cause), &config), Next::Exhausted, "{cause:?}");
    }
}

#[test]
fn while_fresh_workers_are_left_all_others_are_kept_out() {
    let config = RetryConfig::default();
    for (cause, wait_ns, needs_budget) in [
        (Cause::Connect, 0, false),
        (Cause::StaleConnection, 0, false),
        (Cause::Reset, 75 * MS, true),
        (Cause::Status(503), 75 * MS, true),
    ] {
        let tries = tries(&[(4, Some(1000)), (2, None)], cause);
        let next = tries.next(&config, SECOND, NEVER, true, MIDDLE);
        assert_eq!(next, retry(wait_ns, &[4, 2], needs_budget), "{cause:?}: their Retry-After is not ours");
        assert_eq!((tries.tried(), tries.attempts()), (&[WorkerId(4), WorkerId(2)][..], 2));
    }
}

#[test]
fn a_worker_is_tried_a_second_time_when_its_retry_after_has_passed() {
    let config = RetryConfig::default();
    let next = |attempts: &[(u32, Option<u64>)]| {
        let now_ns = (attempts.len() as u64 - 1) * SECOND;
        tries(attempts, Cause::Status(503)).next(&config, now_ns, NEVER, false, MIDDLE)
    };
    assert_eq!(next(&[(0, None)]), retry(50 * MS, &[], true), "it is all there is");
    assert_eq!(next(&[(0, Some(7))]), retry(7 * SECOND, &[], true));
    assert_eq!(next(&[(0, None), (1, None)]), retry(75 * MS, &[1], true), "rather not the last one");
    assert_eq!(next(&[(0, Some(8)), (1, None)]), retry(75 * MS, &[0], true), "unless others want more time");
    assert_eq!(next(&[(0, Some(8)), (1, Some(3))]), retry(3 * SECOND, &[0], true));
    assert_eq!(next(&[(0, Some(3)), (1, Some(8))]), retry(2 * SECOND, &[1], true));
    assert_eq!(next(&[(0, Some(4)), (1, Some(3))]), retry(3 * SECOND, &[1], true), "both may at 4 s");
    assert_eq!(next(&[(0, Some(1)), (1, None), (0, Some(5))]), retry(112 * MS, &[0], true));
    assert_eq!(next(&[(0, Some(30))]), retry(30 * SECOND, &[], true));
    assert_eq!(next(&[(0, Some(31))]), Next::Exhausted, "the client hears of it at once");
    assert_eq!(next(&[(0, Some(u64::MAX / SECOND))]), Next::Exhausted);
}

#[test]
fn the_only_worker_is_asked_again_at_once_after_a_stale_connection_but_not_hammered_when_it_refuses_them() {
    let next = |cause| tries(&[(0, None)], cause).next(&RetryConfig::default(), 0, NEVER, false, MIDDLE);
    assert_eq!(next(Cause::StaleConnection), retry(0, &[], false));
    assert_eq!(next(Cause::Connect), retry(50 * MS, &[], false));
}

#[test]
fn a_worker_that_has_not_finished_with_the_attempt_before_is_tried_again_after_a_while() {
    let mut tries = tries(&[(0, None)], Cause::Reset);
    tries.failed(SECOND, WorkerId(1), Cause::Duplicate, None);
    assert_eq!((tries.tried(), tries.attempts()), (&[WorkerId(0)][..], 2));
    let next = |fresh_left| tries.next(&RetryConfig::default(), SECOND, NEVER, fresh_left, MIDDLE);
    assert_eq!(next(true), retry(75 * MS, &[0], false), "outside the budget");
    assert_eq!(next(false), retry(75 * MS, &[], false));
}

#[test]
fn nothing_is_tried_after_the_deadline() {
    let tries = tries(&[(0, None)], Cause::Status(503));
    let next = |deadline_ns| tries.next(&RetryConfig::default(), 0, deadline_ns, true, MIDDLE);
    assert_eq!(next(50 * MS), retry(50 * MS, &[0], true));
    assert_eq!(next(50 * MS - 1), Next::Exhausted);
}

#[test]
fn a_budget_lets_a_share_through_and_a_floor() {
    let mut budget = RetryBudget::new(20.0, 3);
    let drawn = |budget: &mut RetryBudget, now_ns| (0..100).filter(|_| budget.draw(now_ns)).count();
    assert_eq!(drawn(&mut budget, 0), 3);
    (0..100).for_each(|_| budget.arrived(SECOND));
    assert_eq!(drawn(&mut budget, SECOND), 20, "3 of 23 are used up");
    assert_eq!(drawn(&mut budget, 10 * SECOND), 3, "the first three are forgotten");
    assert_eq!(drawn(&mut budget, 60 * SECOND), 3);
    assert_eq!(drawn(&mut RetryBudget::new(f64::NAN, 0), 0), 0);
}

/// What a worker said of when to come again, in nanoseconds.
fn retry_after() -> impl Strategy<Value = Option<u64>> {
    prop::option::of(0_u64..40 * SECOND)
}

/// One attempt, as it will fail if it is made.
fn attempts() -> impl Strategy<Value = Vec<(usize, usize, Option<u64>, f64, u64)>> {
    prop::collection::vec((0_usize..CAUSES.len(), 0_usize..8, retry_after(), 0.0..1.0, 0_u64..SECOND), 1..12)
}

/// Attempts that have failed: (when, worker, Retry-After).
type Log = Vec<(u64, WorkerId, Option<u64>)>;

/// Oracle for a second round: each worker's gate, from the list of all attempts.
fn gates(log: &Log) -> Vec<(WorkerId, u64)> {
    let workers: BTreeSet<WorkerId> = log.iter().map(|row| row.1).collect();
    let gate = |worker| {
        let own = log.iter().filter(|row| row.1 == worker);
        own.map(|(at_ns, _, retry_after)| at_ns + retry_after.unwrap_or(0)).max().unwrap_or(0)
    };
    workers.into_iter().map(|worker| (worker, gate(worker))).collect()
}

proptest! {
    /// A request that fails wherever it is sent, in a fleet whose workers are all eligible.
    #[test]
    fn a_request_goes_round_the_fleet_once_and_then_only_where_it_may(
        workers in 1_u32..5,
        attempts in attempts(),
        max_attempts in 1_u32..9,
        patience_ns in 0_u64..60 * SECOND,
    ) {
        let config = RetryConfig { max_attempts, ..RetryConfig::default() };
        let fleet: Vec<WorkerId> = (0..workers).map(WorkerId).collect();
        let (mut tries, mut log, mut now_ns) = (Tries::new(), Log::new(), 0);
        let mut exclude: SmallVec<[WorkerId; 4]> = smallvec![];
        for (cause, pick, retry_after, draw, took_ns) in attempts {
            let allowed: Vec<WorkerId> = fleet.iter().copied().filter(|id| !exclude.contains(id)).collect();
            prop_assert!(!allowed.is_empty(), "somebody is always left");
            let worker = allowed[pick % allowed.len()];
            prop_assert!(log.iter().all(|row| row.1 != worker) || gates(&log).len() == fleet.len(), "a repeat");
            prop_assert!(gates(&log).iter().all(|(id, gate_ns)| *id != worker || *gate_ns <= now_ns), "too early");
            now_ns += took_ns;
            log.push((now_ns, worker, retry_after));
            tries.failed(now_ns, worker, CAUSES[cause], retry_after);
            prop_assert_eq!(tries.attempts() as usize, log.len());
            let fresh_left = gates(&log).len() < fleet.len();
            let Next::Retry { wait_ns, exclude: next, needs_budget } =
                tries.next(&config, now_ns, patience_ns, fresh_left, draw) else { break };
            prop_assert!(log.len() < max_attempts as usize && now_ns + wait_ns <= patience_ns);
            prop_assert!(config.retries(CAUSES[cause]));
            prop_assert_eq!(needs_budget, !CAUSES[cause].is_free());
            let backoff_ns = config.backoff_ns(log.len() as u32 - 1, draw);
            let (waits, excluded) = if fresh_left {
                (if needs_budget { backoff_ns } else { 0 }, gates(&log).into_iter().map(|row| row.0).collect())
            } else {
                let stale = CAUSES[cause] == Cause::StaleConnection;
                second_round(&log, now_ns, if stale { 0 } else { backoff_ns })
            };
            prop_assert_eq!(wait_ns, waits);
            prop_assert_eq!(next.iter().copied().collect::<BTreeSet<_>>(), excluded);
            prop_assert_eq!(next.iter().collect::<BTreeSet<_>>().len(), next.len(), "each once");
            exclude = next;
            now_ns += wait_ns;
        }
        prop_assert!(log.len() <= max_attempts as usize);
    }

    /// Oracle: a list of all requests and retries, of which those count that are in the last 20 half seconds.
    #[test]
    fn the_budget_grants_what_a_list_of_all_times_would(
        percent in 0.0..150.0,
        floor in 0_u32..5,
        steps in prop::collection::vec((0_u64..3 * SECOND, 0_u8..3, 1_usize..12), 1..120),
    ) {
        let mut budget = RetryBudget::new(percent, floor);
        let (mut now_ns, mut requests, mut retries) = (0, Vec::<u64>::new(), Vec::<u64>::new());
        let half = SECOND / 2;
        for (pause_ns, what, times) in steps {
            now_ns += if what == 0 { pause_ns } else { pause_ns / 50 };
            let count = |list: &[u64]| list.iter().filter(|at_ns| **at_ns / half + 20 > now_ns / half).count() as f64;
            for _ in 0..times {
                if what < 2 {
                    requests.push(now_ns);
                    budget.arrived(now_ns);
                    continue;
                }
                let fits = count(&retries) + 1.0 <= percent / 100.0 * count(&requests) + f64::from(floor);
                prop_assert_eq!(budget.draw(now_ns), fits);
                if !fits {
                    continue;
                }
                retries.push(now_ns);
                // Whatever the slots: what was granted in the last 9.5 s was paid for in the last 10 s.
                let within = |list: &[u64], window_ns| {
                    list.iter().filter(|at_ns| now_ns - **at_ns < window_ns).count() as f64
                };
                let paid = percent / 100.0 * within(&requests, 20 * half) + f64::from(floor);
                prop_assert!(within(&retries, 19 * half) <= paid);
            }
        }
    }

    #[test]
    fn a_status_set_is_a_set(statuses in prop::collection::vec(0_u16..1200, 0..40)) {
        let set: StatusSet = statuses.iter().copied().collect();
        let expected: BTreeSet<u16> = statuses.into_iter().filter(|status| *status < 1000).collect();
        prop_assert!((0..=u16::MAX).all(|status| set.contains(status) == expected.contains(&status)));
        prop_assert!(set.iter().eq(expected));
    }
}

/// How long to wait, and who is kept out, once every worker was tried.
fn second_round(log: &Log, now_ns: u64, backoff_ns: u64) -> (u64, BTreeSet<WorkerId>) {
    let gates = gates(log);
    let earliest_ns = gates.iter().map(|row| row.1.saturating_sub(now_ns)).min().unwrap_or(0);
    let at_ns = now_ns + backoff_ns.max(earliest_ns);
    let mut out: BTreeSet<WorkerId> = gates.iter().filter(|row| row.1 > at_ns).map(|row| row.0).collect();
    let last = log.last().expect("an attempt was made").1;
    if gates.iter().any(|row| row.0 != last && !out.contains(&row.0)) {
        out.insert(last);
    }
    (at_ns - now_ns, out)
}
