//! Recordings of a few calls each: gaps, beginnings in the middle, other policies.

use super::*;

/// Without breakers and warm-ups, which a gap leaves in doubt for a while.
fn plain(policy: &'static str) -> Header {
    Header { breaker: None, warm_up: None, ..header(policy) }
}

impl Recorded {
    /// With so many regular workers that do not say what they serve.
    fn with_workers(header: &Header, workers: u32) -> Self {
        let mut recorded = Self::empty(header, 0);
        (0..workers).for_each(|_| recorded.add_one(Role::Regular, None));
        recorded
    }

    /// What `part` writes is missing.
    fn lose(&mut self, part: impl FnOnce(&mut Self)) {
        let from = self.lines.len();
        part(self);
        let dropped = (self.lines.len() - from) as u64;
        self.lines.splice(from.., [Line::Dropped { dropped }]);
    }

    /// Two requests at a time for the same.
    fn ask_twice(&mut self, prompt: &str) {
        (0..2).for_each(|_| self.ask(prompt.to_owned(), &[]));
        (0..2).for_each(|_| self.end(0, Outcome::Completed));
    }
}

#[test]
fn behind_a_gap_the_draws_go_on_where_they_were() {
    for seed in 0..8 {
        let header = plain("random");
        let mut recorded = Recorded::new(&header, seed);
        recorded.run_calmly(500);
        recorded.lose(|recorded| recorded.run_calmly(100));
        recorded.run_calmly(500);
        let found = replayed(&header, recorded.lines);
        assert!(found.dropped > 0 && found.decisions > 150, "seed {seed}: {found}");
        assert_eq!(found.identical, found.decisions, "seed {seed}: {found}");
    }
}

#[test]
fn a_cache_that_was_lost_in_a_gap_is_not_believed_in_for_ever() {
    let header = plain("cache_aware");
    let mut recorded = Recorded::with_workers(&header, 2);
    let prompt = "what both workers hold".repeat(9);
    recorded.ask(prompt.clone(), &[WorkerId(1)]);
    recorded.ask(prompt.clone(), &[WorkerId(0)]);
    (0..2).for_each(|_| recorded.end(0, Outcome::Completed));
    recorded.lose(|recorded| recorded.clear(WorkerId(0)));
    (0..100).for_each(|_| recorded.ask_twice(&prompt));
    let found = replayed(&header, recorded.lines);
    assert_eq!(found.decisions, 202);
    assert!(found.identical >= 200, "{found}");
}

#[test]
fn a_worker_that_came_back_in_a_gap_is_there_once_it_gets_requests() {
    let header = plain("random");
    let mut recorded = Recorded::with_workers(&header, 2);
    recorded.set_healthy(WorkerId(1), false);
    recorded.lose(|recorded| recorded.set_healthy(WorkerId(1), true));
    (0..100).for_each(|_| recorded.ask_twice("something"));
    let found = replayed(&header, recorded.lines);
    assert!(found.identical + 4 >= found.decisions, "{found}");
}

#[test]
fn workers_of_whom_nothing_is_said_are_gone() {
    let header = Header { part: 1, ..plain("random") };
    let mut recorded = Recorded::with_workers(&header, 3);
    (0..3).for_each(|worker| _ = recorded.router.remove_worker(0, WorkerId(worker)));
    recorded.lines.clear();
    recorded.add_one(Role::Regular, None);
    recorded.set_healthy(WorkerId(3), false);
    recorded.ask("something".to_owned(), &[]);
    let found = replayed(&header, recorded.lines);
    assert_eq!((found.decisions, found.identical), (1, 1), "{found}");
    assert_eq!(found.other_reason, 0, "how many are unhealthy is told: {found}");
}

#[test]
fn under_another_policy_everything_ends_that_ended() {
    let change = Change { policy: Some("round_robin".into()), set: Vec::new() };
    for seed in 0..8 {
        // Which refuses where a worker that was asked for is not there.
        let header = header("consistent_hashing");
        let mut recorded = Recorded::new(&header, seed);
        recorded.run(1000);
        while !recorded.open.is_empty() {
            recorded.end(0, Outcome::Completed);
        }
        let is_refused = |line: &Line| matches!(line, Line::Plan(plan) if plan.refused.is_some());
        assert!(recorded.lines.iter().any(is_refused), "seed {seed}");
        let mut machine = Machine::new(&header, &change).unwrap();
        recorded.lines.into_iter().for_each(|line| machine.feed(line).unwrap());
        assert_eq!(machine.in_flight(), 0, "seed {seed}");
    }
}

#[test]
fn another_policy_does_not_believe_in_what_failed() {
    let header = plain("round_robin");
    let mut recorded = Recorded::with_workers(&header, 2);
    for outcome in [Outcome::Failed, Outcome::Refused].repeat(20) {
        recorded.ask("what nobody has computed".repeat(9), &[]);
        recorded.end(0, outcome);
    }
    let change = Change { policy: Some("cache_aware".into()), set: Vec::new() };
    let found = replayed_as(&change, &header, recorded.lines);
    assert_eq!((found.decisions, found.replayed.predicted_hit_rate), (40, 0.0), "{found}");
}

#[test]
fn a_worker_that_said_late_what_it_does_counts() {
    let header = plain("random");
    let mut recorded = Recorded::empty(&header, 0);
    recorded.add_one(Role::Decode, None);
    recorded.router.set_role(0, WorkerId(0), Role::Regular);
    recorded.lines.push(Line::Role { t: 0, worker: 0, role: RoleName::Regular });
    recorded.ask_twice("something");
    let found = replayed(&header, recorded.lines);
    assert!(found.recorded.imbalance > 0.0 && found.recorded == found.replayed, "{found}");
}

#[test]
fn what_a_prefill_worker_found_is_heard_in_long_recordings_too() {
    // A worker that has lost its cache is led to its share.
    let header = Header { breaker: None, ..header("cache_aware") };
    let mut recorded = Recorded::empty(&header, 0);
    for role in [Role::Prefill, Role::Prefill, Role::Decode] {
        recorded.add_one(role, None);
    }
    let [lost, kept] = ["what one has lost", "what the other has kept"].map(|text| text.repeat(40));
    let mut ask = |prompt: &str, not: &[WorkerId], told: Option<u64>| {
        recorded.ask(prompt.to_owned(), not);
        let legs: Vec<_> = recorded.open.drain(..).map(|open| open.assignment).collect();
        for leg in &legs {
            recorded.router.finish(0, leg.lease, Outcome::Completed);
            let (lease, outcome) = (leg.lease.0, Outcome::Completed.into());
            recorded.lines.push(Line::Finish { t: 0, lease, outcome });
        }
        let tokens = told?;
        recorded.lines.push(Line::Cached { t: 0, lease: legs[0].lease.0, tokens });
        let is_lost = recorded.router.told_cached(0, &legs[0], tokens);
        is_lost.then(|| recorded.clear(legs[0].worker))
    };
    (0..40_000).for_each(|_| _ = ask("x", &[], None));
    ask(&lost, &[WorkerId(1)], None);
    ask(&kept, &[WorkerId(0)], None);
    let doubted = |_| ask(&lost, &[], Some(0)).or_else(|| ask(&kept, &[], None));
    assert!((0..60).filter_map(doubted).count() > 0, "eight in a row found nothing");
    let found = replayed(&header, recorded.lines);
    assert_eq!((found.identical, found.other_reason), (found.decisions, 0), "{found}");
}
