use proptest::prelude::*;

use super::BreakerState::{Closed, HalfOpen, Open};
use super::{Breaker, BreakerConfig, BreakerState, BreakerTransitions, Gate, Pass};
use crate::ledger::Outcome;

const OPEN_NS: u64 = 100;
const DONE: Outcome = Outcome::Completed;
const OUTCOMES: [Outcome; 4] = [DONE, Outcome::Failed, Outcome::Refused, Outcome::ClientGone];

fn config(failure_threshold: u32, success_threshold: u32, half_open_permits: u32) -> BreakerConfig {
    BreakerConfig {
        failure_threshold,
        success_threshold,
        open_ns: OPEN_NS,
        half_open_permits,
        ..BreakerConfig::default()
    }
}

/// A breaker that opened at time 0.
fn opened(success_threshold: u32, permits: u32) -> Breaker {
    let mut breaker = Breaker::new(config(1, success_threshold, permits));
    assert_eq!(go(&mut breaker, 0, Outcome::Failed), Some((Closed, Open)));
    breaker
}

/// A leg that is booked and ends in the same moment.
fn go(breaker: &mut Breaker, now_ns: u64, outcome: Outcome) -> Option<(BreakerState, BreakerState)> {
    assert_eq!(breaker.gate(now_ns), Gate::Admits);
    let pass = breaker.book(now_ns);
    breaker.settle(now_ns, pass, outcome)
}

#[test]
fn only_failures_in_a_row_open_it() {
    let mut breaker = Breaker::new(BreakerConfig::default());
    for _ in 0..9 {
        go(&mut breaker, 0, Outcome::Failed);
    }
    assert_eq!(breaker.view(0).consecutive_failures, 9);
    go(&mut breaker, 0, DONE);
    assert_eq!(breaker.view(0).consecutive_failures, 0);
    for _ in 0..9 {
        assert_eq!(go(&mut breaker, 0, Outcome::Failed), None);
        assert_eq!(go(&mut breaker, 0, Outcome::Refused), None);
        assert_eq!(go(&mut breaker, 0, Outcome::ClientGone), None);
    }
    assert_eq!(go(&mut breaker, 0, Outcome::Failed), Some((Closed, Open)));
}

#[test]
fn refusals_open_nothing_however_many() {
    let mut breaker = Breaker::new(config(3, 1, 1));
    for status in [400, 404, 422, 429, 503].repeat(20) {
        assert_eq!(go(&mut breaker, 0, Outcome::of_status(status)), None, "{status}");
    }
    assert_eq!((breaker.view(0).state, breaker.view(0).consecutive_failures), (Closed, 0));
}

#[test]
fn it_is_half_open_when_its_time_is_over_and_not_a_moment_before() {
    let breaker = opened(1, 1);
    assert_eq!(
        (breaker.gate(OPEN_NS - 1), breaker.view(OPEN_NS - 1).state),
        (Gate::ShutUntil(OPEN_NS), Open)
    );
    assert_eq!((breaker.gate(OPEN_NS), breaker.view(OPEN_NS).state), (Gate::Admits, HalfOpen));
    assert_eq!(breaker.view(OPEN_NS).transitions.open_to_half_open, 1);
    assert_eq!(breaker.view(0).transitions.open_to_half_open, 0, "looking changes nothing");
}

#[test]
fn a_permit_comes_back_however_its_leg_ends() {
    for outcome in [Outcome::Refused, Outcome::ClientGone, DONE] {
        let mut breaker = opened(2, 1);
        let pass = breaker.book(OPEN_NS);
        assert_eq!(breaker.gate(OPEN_NS), Gate::Probing, "{outcome:?}");
        assert_eq!(breaker.settle(OPEN_NS, pass, outcome), None);
        assert_eq!(breaker.gate(OPEN_NS), Gate::Admits, "{outcome:?}");
    }
}

#[test]
fn successes_on_trial_close_it_and_one_failure_opens_it_for_the_whole_time() {
    let mut breaker = opened(3, 1);
    assert_eq!([(); 2].map(|()| go(&mut breaker, 150, DONE)), [None; 2]);
    assert_eq!(breaker.view(150).consecutive_successes, 2);
    assert_eq!(go(&mut breaker, 150, Outcome::Failed), Some((HalfOpen, Open)));
    assert_eq!(breaker.gate(150), Gate::ShutUntil(250));
    assert_eq!([(); 3].map(|()| go(&mut breaker, 250, DONE)), [None, None, Some((HalfOpen, Closed))]);
    let expected = BreakerTransitions {
        closed_to_open: 1,
        open_to_half_open: 2,
        half_open_to_open: 1,
        half_open_to_closed: 1,
    };
    assert_eq!(breaker.view(250).transitions, expected);
    assert_eq!(expected.iter().map(|(_, _, count)| count).sum::<u64>(), 5);
}

#[test]
fn legs_of_an_earlier_state_move_nothing() {
    let mut breaker = Breaker::new(config(1, 1, 2));
    let [slow_success, slow_failure, first] = [(); 3].map(|()| breaker.book(0));
    breaker.settle(0, first, Outcome::Failed);
    let [probe, second_probe] = [(); 2].map(|()| breaker.book(OPEN_NS));
    assert_eq!(breaker.settle(OPEN_NS, slow_success, DONE), None, "it was sent before the worker fell");
    assert_eq!(breaker.gate(OPEN_NS), Gate::Probing, "it gave back what it never had");
    assert_eq!(breaker.settle(OPEN_NS, probe, DONE), Some((HalfOpen, Closed)));
    assert_eq!(breaker.settle(OPEN_NS, slow_failure, Outcome::Failed), None);
    assert_eq!(breaker.settle(OPEN_NS, second_probe, Outcome::Failed), None);
    assert_eq!(breaker.view(OPEN_NS).consecutive_failures, 0, "neither spoke of the state that is now");
}

#[test]
fn thresholds_of_zero_mean_one() {
    let mut breaker = Breaker::new(config(0, 0, 0));
    assert_eq!(go(&mut breaker, 0, Outcome::Failed), Some((Closed, Open)));
    assert_eq!(go(&mut breaker, OPEN_NS, DONE), Some((HalfOpen, Closed)));
}

/// Everything that happened, and nothing else: what the state is now is found out by reading it from the beginning.
struct Model {
    config: BreakerConfig,
    events: Vec<(u64, Event)>,
}

#[derive(Clone, Copy)]
enum Event {
    /// Leg n was booked, n counting from 0.
    Book,
    End(usize, Outcome),
}

/// One state, from the event at `from` on.
struct Segment {
    state: BreakerState,
    from: usize,
    since_ns: u64,
    /// Legs whose word counts, in the order of booking.
    holders: Vec<usize>,
    /// What those said that have ended.
    said: Vec<(usize, Outcome)>,
}

impl Segment {
    fn new(state: BreakerState, from: usize, since_ns: u64) -> Self {
        Self { state, from, since_ns, holders: Vec::new(), said: Vec::new() }
    }

    fn out(&self) -> usize {
        self.holders.len() - self.said.len()
    }

    /// Length of the last run of `wanted`, passing over what says nothing.
    fn run(&self, wanted: Outcome) -> usize {
        let telling = self.said.iter().rev().filter(|(_, outcome)| [DONE, Outcome::Failed].contains(outcome));
        telling.take_while(|(_, outcome)| *outcome == wanted).count()
    }
}

impl Model {
    /// All states so far, the present one last.
    fn segments(&self, now_ns: u64) -> Vec<Segment> {
        let mut all = vec![Segment::new(Closed, 0, 0)];
        let mut legs = 0;
        for (place, (at_ns, event)) in self.events.iter().enumerate() {
            self.open_ends(&mut all, place, *at_ns);
            let segment = all.last_mut().expect("the first one stays");
            match event {
                Event::Book => {
                    let may =
                        segment.state == Closed || segment.out() < self.config.half_open_permits as usize;
                    if segment.state != Open && may {
                        segment.holders.push(legs);
                    }
                    legs += 1;
                }
                Event::End(leg, outcome) if segment.holders.contains(leg) => {
                    segment.said.push((*leg, *outcome));
                    let failures = segment.run(Outcome::Failed) as u32;
                    let next = match segment.state {
                        Closed if failures >= self.config.failure_threshold => Some(Open),
                        HalfOpen if failures > 0 => Some(Open),
                        HalfOpen if segment.run(DONE) as u32 >= self.config.success_threshold => Some(Closed),
                        _ => None,
                    };
                    all.extend(next.map(|state| Segment::new(state, place + 1, *at_ns)));
                }
                Event::End(..) => {}
            }
        }
        self.open_ends(&mut all, self.events.len(), now_ns);
        all
    }

    fn open_ends(&self, all: &mut Vec<Segment>, place: usize, now_ns: u64) {
        let last = all.last().expect("the first one stays");
        let half_open_ns = last.since_ns + self.config.open_ns;
        if last.state == Open && now_ns >= half_open_ns {
            all.push(Segment::new(HalfOpen, place, half_open_ns));
        }
    }
}

fn agrees(breaker: &Breaker, model: &Model, now_ns: u64) -> Result<(), TestCaseError> {
    let segments = model.segments(now_ns);
    let present = segments.last().expect("the first one stays");
    let view = breaker.view(now_ns);
    prop_assert_eq!(view.state, present.state);
    let failures = if present.state == Closed { present.run(Outcome::Failed) } else { 0 };
    let successes = if present.state == HalfOpen { present.run(DONE) } else { 0 };
    let seen = (view.consecutive_failures as usize, view.consecutive_successes as usize);
    prop_assert_eq!(seen, (failures, successes));
    let permits = model.config.half_open_permits as usize;
    let gate = match present.state {
        Open => Gate::ShutUntil(present.since_ns + model.config.open_ns),
        HalfOpen if present.out() == permits => Gate::Probing,
        _ => Gate::Admits,
    };
    prop_assert_eq!(breaker.gate(now_ns), gate);
    prop_assert!(present.state != HalfOpen || present.out() <= permits);
    for (from, to, count) in view.transitions.iter() {
        let happened =
            segments.windows(2).filter(|pair| (pair[0].state, pair[1].state) == (from, to)).count();
        prop_assert_eq!(count, happened as u64, "{:?} to {:?}", from, to);
    }
    prop_assert!(segments.windows(2).all(|pair| pair[0].from <= pair[1].from));
    Ok(())
}

proptest! {
    /// Oracle: the list of all events, read from the beginning for every answer. Some legs are booked against the
    /// breaker's will, as a caller may do that has no better choice.
    #[test]
    fn the_breaker_does_what_the_list_of_events_says(
        thresholds in (1_u32..5, 1_u32..4, 1_u32..4),
        steps in prop::collection::vec((0_u8..10, 0_u64..40, 0_usize..64, 0_usize..8), 1..150),
    ) {
        let config = config(thresholds.0, thresholds.1, thresholds.2);
        let mut model = Model { config, events: Vec::new() };
        let mut breaker = Breaker::new(config);
        let (mut now_ns, mut legs, mut open) = (0, 0_usize, Vec::<(usize, Pass)>::new());
        for (what, pause_ns, which, outcome) in steps {
            // Mostly little happens; sometimes an opening's whole time passes.
            now_ns += if what == 9 { OPEN_NS - 20 + pause_ns } else { pause_ns / 8 };
            let against_its_will = what == 0;
            if what < 6 && (breaker.gate(now_ns) == Gate::Admits || against_its_will) {
                open.push((legs, breaker.book(now_ns)));
                model.events.push((now_ns, Event::Book));
                legs += 1;
            } else if !open.is_empty() {
                // Failures are frequent.
                let outcome = OUTCOMES.get(outcome).copied().unwrap_or(Outcome::Failed);
                let (leg, pass) = open.swap_remove(which % open.len());
                let before = breaker.view(now_ns).state;
                let change = breaker.settle(now_ns, pass, outcome);
                model.events.push((now_ns, Event::End(leg, outcome)));
                let after = breaker.view(now_ns).state;
                prop_assert_eq!(change, (before != after).then_some((before, after)));
            }
            prop_assert_eq!(breaker.check(open.iter().map(|leg| leg.1)), Ok(()));
            agrees(&breaker, &model, now_ns)?;
        }
        // The last fault is over: whatever is left ends somehow, and the breaker closes.
        for (n, (_, pass)) in open.into_iter().enumerate() {
            breaker.settle(now_ns, pass, OUTCOMES[n % OUTCOMES.len()]);
        }
        now_ns += OPEN_NS;
        for _ in 0..config.success_threshold {
            go(&mut breaker, now_ns, DONE);
        }
        prop_assert_eq!(breaker.view(now_ns).state, Closed);
        prop_assert_eq!(breaker.check(std::iter::empty()), Ok(()));
    }
}
