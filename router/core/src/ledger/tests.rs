use proptest::prelude::*;

use super::loads::{LoadReport, ReportedLoad};
use super::{LeaseId, Ledger, Load, MAX_LEASE_TOKENS, Outcome, Tally};
use crate::WorkerId;

const W: WorkerId = WorkerId(3);
const DONE: Outcome = Outcome::Completed;
const TTL_NS: u64 = 1_000;

fn ledger(report_ttl_ns: Option<u64>) -> Ledger {
    let mut ledger = Ledger::new(report_ttl_ns, None);
    ledger.open(W);
    ledger
}

fn load(requests: u64, queued_prefill_tokens: u64, tokens: u64) -> Load {
    Load { requests, queued_prefill_tokens, tokens }
}

fn report(requests: u64, tokens: u64) -> LoadReport {
    LoadReport { total_tokens: tokens, running: requests, waiting: 0, token_usage: 0.1 }
}

fn reported(ledger: &Ledger, now_ns: u64) -> Option<(u64, u64)> {
    ledger.accounts()[0].reported(now_ns).map(|ReportedLoad { requests, tokens }| (requests, tokens))
}

#[test]
fn only_an_answer_of_500_or_above_is_a_failure_and_a_full_queue_is_none() {
    for (status, outcome) in [
        (200, Outcome::Completed),
        (399, Outcome::Completed),
        (400, Outcome::Refused),
        (429, Outcome::Refused),
        (499, Outcome::Refused),
        (500, Outcome::Failed),
        (502, Outcome::Failed),
        (503, Outcome::Refused),
        (504, Outcome::Failed),
        (999, Outcome::Failed),
    ] {
        assert_eq!(Outcome::of_status(status), outcome, "{status}");
    }
}

#[test]
fn a_leg_is_counted_in_requests_and_tokens_until_it_ends() {
    let mut ledger = ledger(None);
    let now = |ledger: &Ledger| ledger.accounts()[0].load();
    let a = ledger.book(0, W, 100, 0, None);
    let b = ledger.book(0, W, 50, 0, None);
    assert_eq!(now(&ledger), load(2, 150, 150));
    ledger.progress(1, a, 3);
    assert_eq!(now(&ledger), load(2, 150, 153), "progress alone does not take a prompt out of the queue");
    ledger.first_token(1, a);
    ledger.first_token(1, a);
    assert_eq!(now(&ledger), load(2, 50, 153));
    ledger.progress(2, a, 10);
    ledger.progress(2, a, 7);
    assert_eq!(now(&ledger), load(2, 50, 160), "output does not shrink");
    assert!(ledger.finish(3, a, DONE).existed);
    assert_eq!(now(&ledger), load(1, 50, 50));
    assert!(ledger.finish(3, b, Outcome::ClientGone).existed);
    assert_eq!(now(&ledger), Load::default());
    let tally = Tally { assigned: 2, completed: 1, refused: 0, failed: 0, client_gone: 1 };
    assert_eq!(ledger.accounts()[0].tally(), tally);
}

#[test]
fn a_lease_ends_once_and_its_id_never_comes_back() {
    let mut ledger = ledger(None);
    let a = ledger.book(0, W, 100, 0, None);
    assert!(ledger.finish(1, a, Outcome::Failed).existed);
    let b = ledger.book(2, W, 100, 0, None);
    assert_ne!(a, b);
    assert!(!ledger.finish(3, a, DONE).existed && !ledger.first_token(3, a) && !ledger.progress(3, a, 1));
    assert!(!ledger.finish(3, LeaseId(99), DONE).existed, "a lease that never was");
    assert_eq!(ledger.accounts()[0].load(), load(1, 100, 100), "b is untouched");
}

#[test]
fn absurd_lengths_do_no_harm() {
    let mut ledger = ledger(None);
    let leases: Vec<LeaseId> = (0..100).map(|_| ledger.book(0, W, u64::MAX, 0, None)).collect();
    leases.iter().for_each(|lease| assert!(ledger.progress(0, *lease, u64::MAX)));
    assert_eq!(ledger.accounts()[0].load().tokens, 200 * MAX_LEASE_TOKENS);
    leases.iter().for_each(|lease| assert!(ledger.finish(0, *lease, DONE).existed));
    assert_eq!(ledger.accounts()[0].load(), Load::default());
}

#[test]
fn the_account_of_a_removed_worker_stays_until_its_last_leg_has_ended() {
    let mut ledger = ledger(None);
    let a = ledger.book(0, W, 100, 0, None);
    ledger.retire(W);
    assert_eq!(ledger.accounts().len(), 1);
    assert!(ledger.finish(1, a, DONE).existed);
    assert_eq!(ledger.accounts().len(), 0);
    ledger.open(WorkerId(4));
    ledger.retire(WorkerId(4));
    assert_eq!(ledger.accounts().len(), 0, "an idle one goes at once");
}

#[test]
fn a_report_is_corrected_by_what_was_booked_and_finished_since_it_was_asked_for() {
    let mut ledger = ledger(Some(TTL_NS));
    let before = ledger.book(10, W, 100, 0, None);
    assert_eq!(reported(&ledger, 10), None, "unknown until it is told");
    // Asked at 20, answered at 40: it has `before` and 7 requests of other routers.
    let between = ledger.book(30, W, 40, 0, None);
    ledger.report(20, W, Some(report(8, 900)));
    assert_eq!(reported(&ledger, 40), Some((9, 940)), "one was booked between question and answer");
    ledger.progress(50, between, 5);
    assert_eq!(reported(&ledger, 50), Some((9, 945)));
    ledger.finish(60, before, DONE);
    assert_eq!(reported(&ledger, 60), Some((8, 845)), "what was in the report has left");
    ledger.finish(70, between, DONE);
    assert_eq!(reported(&ledger, 70), Some((7, 800)), "what was not in it leaves no trace");
    assert_eq!((reported(&ledger, 20 + TTL_NS).is_some(), reported(&ledger, 21 + TTL_NS)), (true, None));
}

#[test]
fn a_worker_has_at_least_the_requests_that_are_in_flight_from_here_and_never_less_than_nothing() {
    let mut ledger = ledger(Some(TTL_NS));
    let leases: Vec<LeaseId> = (0..5).map(|_| ledger.book(10, W, 100, 0, None)).collect();
    ledger.report(20, W, Some(report(0, 30)));
    assert_eq!(reported(&ledger, 20), Some((5, 30)), "all five may be in prefill, and share their prompt");
    leases.iter().take(4).for_each(|lease| assert!(ledger.finish(30, *lease, DONE).existed));
    assert_eq!(reported(&ledger, 30), Some((1, 0)));
}

#[test]
fn reports_are_ignored_where_nobody_wants_them() {
    let mut ledger = ledger(None);
    ledger.report(20, W, Some(report(8, 900)));
    ledger.report(20, WorkerId(77), Some(report(8, 900)));
    assert_eq!(reported(&ledger, 20), None);
}

/// A step of the naive model: (time since the last one, what happens).
fn steps() -> impl Strategy<Value = Vec<(u64, u8, u64)>> {
    prop::collection::vec((1_u64..40, 0_u8..5, 0_u64..200), 1..120)
}

proptest! {
    /// Oracle: the leases themselves, with their times, counted anew for every answer.
    #[test]
    fn corrections_equal_a_recount_of_the_leases(steps in steps(), asked_back_ns in 0_u64..300) {
        struct Leg { lease: LeaseId, booked_ns: u64, ended_ns: Option<u64> }
        let mut ledger = ledger(Some(TTL_NS));
        let (mut now_ns, mut legs) = (1_000, Vec::<Leg>::new());
        let mut answer: Option<(u64, u64)> = None;
        for (pause_ns, what, number) in steps {
            now_ns += pause_ns;
            match what {
                0 | 1 => legs.push(Leg { lease: ledger.book(now_ns, W, 10, 0, None), booked_ns: now_ns, ended_ns: None }),
                2 | 3 => {
                    let open: Vec<usize> = (0..legs.len()).filter(|at| legs[*at].ended_ns.is_none()).collect();
                    if let Some(at) = open.get(number as usize % open.len().max(1)) {
                        legs[*at].ended_ns = Some(now_ns);
                        ledger.finish(now_ns, legs[*at].lease, DONE);
                    }
                }
                _ => {
                    let asked_ns = now_ns - asked_back_ns.min(now_ns);
                    ledger.report(asked_ns, W, Some(report(number, 10 * number)));
                    answer = answer.filter(|(asked, _)| *asked > asked_ns).or(Some((asked_ns, number)));
                }
            }
            let expected = answer.filter(|(asked_ns, _)| now_ns - asked_ns <= TTL_NS).map(|(asked_ns, number)| {
                let since = legs.iter().filter(|leg| leg.booked_ns >= asked_ns && leg.ended_ns.is_none()).count();
                let left = |leg: &&Leg| leg.booked_ns < asked_ns && leg.ended_ns.is_some_and(|ended| ended >= asked_ns);
                let corrected = number as i64 + since as i64 - legs.iter().filter(left).count() as i64;
                let open = legs.iter().filter(|leg| leg.ended_ns.is_none()).count() as u64;
                (corrected.max(open as i64) as u64, 10 * corrected.max(0) as u64)
            });
            prop_assert_eq!(reported(&ledger, now_ns), expected);
            prop_assert!(ledger.check().is_ok());
        }
    }
}
