use std::collections::VecDeque;
use std::num::NonZeroU32;

use proptest::prelude::*;

use super::{Admission, AdmissionConfig, Arrival, Ticket};

const SECOND: u64 = 1_000_000_000;

fn config(
    max_concurrent: impl Into<Option<u32>>,
    queue_size: u32,
    tokens_per_second: impl Into<Option<u32>>,
) -> AdmissionConfig {
    AdmissionConfig {
        max_concurrent: max_concurrent.into().and_then(NonZeroU32::new),
        queue_size,
        queue_timeout_ns: 10 * SECOND,
        tokens_per_second: tokens_per_second.into().and_then(NonZeroU32::new),
    }
}

/// Who is admitted and who is out of time now.
fn settle(admission: &mut Admission, now_ns: u64) -> (Vec<Ticket>, Vec<Ticket>) {
    let (mut admitted, mut expired) = (Vec::new(), Vec::new());
    admission.settle(now_ns, &mut admitted, &mut expired);
    (admitted, expired)
}

fn queued(admission: &mut Admission, now_ns: u64) -> Ticket {
    match admission.arrive(now_ns) {
        Arrival::Queued(ticket) => ticket,
        other => panic!("a place in the queue was expected, not {other:?}"),
    }
}

fn retry_after_secs(admission: &Admission, now_ns: u64) -> f64 {
    admission.retry_after_ns(now_ns) as f64 / SECOND as f64
}

#[test]
fn two_run_two_wait_and_two_are_turned_away() {
    let mut admission = Admission::new(config(2, 2, None));
    assert_eq!([(); 2].map(|()| admission.arrive(0)), [Arrival::Admitted; 2]);
    let [a, b] = [(); 2].map(|()| queued(&mut admission, 0));
    assert!([(); 2].map(|()| admission.arrive(0)).iter().all(|last| matches!(last, Arrival::Full { .. })));
    assert_eq!((admission.in_use(), admission.waiting()), (2, 2));
    assert_eq!(admission.next_deadline(), Some(10 * SECOND));
    admission.release(5 * SECOND);
    assert_eq!(settle(&mut admission, 5 * SECOND), (vec![a], vec![]));
    assert_eq!(settle(&mut admission, 10 * SECOND), (vec![], vec![b]));
    assert_eq!((admission.in_use(), admission.waiting(), admission.next_deadline()), (2, 0, None));
}

#[test]
fn without_limits_everybody_gets_in() {
    let mut admission = Admission::new(AdmissionConfig::default());
    assert!(admission.is_unlimited());
    assert!((0..1000).all(|n| admission.arrive(n) == Arrival::Admitted));
    assert_eq!(admission.in_use(), 1000);
    assert!(!Admission::new(config(1, 0, None)).is_unlimited());
    assert!(!Admission::new(config(None, 0, 1)).is_unlimited());
}

#[test]
fn a_newcomer_does_not_overtake_those_who_wait() {
    let mut admission = Admission::new(config(1, 5, None));
    admission.arrive(0);
    let first = queued(&mut admission, 0);
    admission.release(1);
    let second = queued(&mut admission, 1);
    assert_eq!(settle(&mut admission, 1), (vec![first], vec![]));
    admission.release(2);
    assert_eq!(settle(&mut admission, 2), (vec![second], vec![]));
}

#[test]
fn who_lays_its_permit_by_resumes_before_all_who_wait_without_another_token() {
    let mut admission = Admission::new(config(1, 1, 1));
    assert_eq!(admission.arrive(0), Arrival::Admitted);
    let waiting = queued(&mut admission, 0);
    admission.release(0);
    assert_eq!(settle(&mut admission, SECOND), (vec![waiting], vec![]), "somebody else meanwhile");
    let next = queued(&mut admission, SECOND);
    let Arrival::Queued(back) = admission.resume(SECOND) else { panic!("there is no permit") };
    assert!(matches!(admission.arrive(SECOND), Arrival::Full { .. }), "the queue's size is for others");
    admission.release(SECOND);
    assert_eq!(
        settle(&mut admission, SECOND),
        (vec![back], vec![]),
        "no token is due before the next second"
    );
    admission.release(2 * SECOND);
    assert_eq!(settle(&mut admission, 2 * SECOND), (vec![next], vec![]));
}

#[test]
fn whoever_leaves_the_queue_says_whether_it_was_there() {
    let mut admission = Admission::new(config(1, 5, None));
    admission.arrive(0);
    let [a, b, c] = [(); 3].map(|()| queued(&mut admission, 0));
    assert!(admission.abandon(0, b) && !admission.abandon(0, b));
    admission.release(1);
    assert_eq!(settle(&mut admission, 1), (vec![a], vec![]));
    assert!(!admission.abandon(1, a), "it holds a permit");
    admission.release(2);
    assert_eq!(settle(&mut admission, 2), (vec![c], vec![]));
}

#[test]
fn tokens_come_at_their_rate_and_as_many_at_once_as_in_a_second() {
    let mut admission = Admission::new(config(None, 5, 4));
    assert_eq!([(); 4].map(|()| admission.arrive(0)), [Arrival::Admitted; 4]);
    let [a, b] = [(); 2].map(|()| queued(&mut admission, 0));
    assert_eq!(admission.next_deadline(), Some(SECOND / 4));
    assert_eq!(settle(&mut admission, SECOND / 4 - 1), (vec![], vec![]));
    assert_eq!(settle(&mut admission, SECOND / 4), (vec![a], vec![]));
    assert_eq!(settle(&mut admission, SECOND / 2), (vec![b], vec![]));
    let burst = (0..6).filter(|_| admission.arrive(60 * SECOND) == Arrival::Admitted).count();
    assert_eq!(burst, 4, "an idle minute saves no more than a second's worth");
}

#[test]
fn retry_after_is_the_queue_times_the_pace_of_releases() {
    let patient = AdmissionConfig { queue_timeout_ns: 3600 * SECOND, ..config(1, 100, None) };
    let mut admission = Admission::new(patient);
    assert_eq!(retry_after_secs(&admission, 0), 1.0, "nothing is known, and less than a second is none");
    for _ in 0..=100 {
        admission.arrive(1000 * SECOND);
    }
    for n in 1..=98 {
        let now_ns = (1000 + 2 * n) * SECOND;
        admission.release(now_ns);
        assert_eq!(settle(&mut admission, now_ns).0.len(), 1);
    }
    let now_ns = 1196 * SECOND;
    assert_eq!((admission.waiting(), retry_after_secs(&admission, now_ns)), (2, 6.0), "3 turns of 2 s");
    assert_eq!(retry_after_secs(&admission, now_ns + 5 * SECOND), 15.0, "nobody has left for 5 s");
    assert_eq!(retry_after_secs(&admission, now_ns + 500 * SECOND), 60.0, "what is further away is a guess");
}

#[test]
fn permits_that_come_back_together_count_each() {
    let patient = AdmissionConfig { queue_timeout_ns: 3600 * SECOND, ..config(2, 1000, None) };
    let mut admission = Admission::new(patient);
    for _ in 0..=201 {
        admission.arrive(0);
    }
    for n in 1..=100 {
        admission.release(4 * n * SECOND);
        admission.release(4 * n * SECOND);
        assert_eq!(settle(&mut admission, 4 * n * SECOND).0.len(), 2);
    }
    let secs = retry_after_secs(&admission, 400 * SECOND);
    assert!((1.5..2.5).contains(&secs), "2 in 4 s were expected, not one in {secs} s");
}

#[test]
fn an_idle_hour_is_not_the_pace_of_releases() {
    let mut admission = Admission::new(config(2, 100, None));
    for hour in 0..20 {
        admission.arrive(hour * 3600 * SECOND);
        admission.release((hour * 3600 + 1) * SECOND);
    }
    assert_eq!(retry_after_secs(&admission, 20 * 3600 * SECOND), 1.0);
}

#[test]
fn retry_after_follows_the_tokens_where_they_are_what_is_short() {
    let mut admission = Admission::new(config(None, 100, 2));
    for _ in 0..9 {
        admission.arrive(0);
    }
    assert_eq!((admission.waiting(), retry_after_secs(&admission, 0)), (7, 4.0), "8 turns of half a second");
}

/// The rules, written down literally: who was admitted when, who is in, who waits until when.
#[derive(Default)]
struct Model {
    config: AdmissionConfig,
    admissions_ns: Vec<u64>,
    in_use: u32,
    queue: VecDeque<(Ticket, u64)>,
    resuming: VecDeque<(Ticket, u64)>,
}

impl Model {
    /// A token bucket lets through what keeps to its rate over every time that begins with an admission.
    fn may_admit(&self, now_ns: u64) -> bool {
        self.has_permit()
            && self.config.tokens_per_second.is_none_or(|rate| self.keeps_to(u64::from(rate.get()), now_ns))
    }

    fn has_permit(&self) -> bool {
        self.config.max_concurrent.is_none_or(|most| self.in_use < most.get())
    }

    fn resume(&mut self, now_ns: u64, answer: Arrival) -> Result<(), TestCaseError> {
        let may = self.resuming.is_empty() && self.has_permit();
        match answer {
            Arrival::Admitted => self.in_use += 1,
            Arrival::Queued(ticket) => {
                self.resuming.push_back((ticket, now_ns + self.config.queue_timeout_ns));
            }
            Arrival::Full { .. } => prop_assert!(false, "who has been in is not turned away"),
        }
        prop_assert_eq!(answer == Arrival::Admitted, may);
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.queue.len() + self.resuming.len()
    }

    fn keeps_to(&self, rate: u64, now_ns: u64) -> bool {
        self.admissions_ns.iter().enumerate().all(|(place, since_ns)| {
            let admitted = (self.admissions_ns.len() - place + 1) as u64;
            admitted * SECOND <= rate * SECOND + rate * (now_ns - since_ns)
        })
    }

    fn admit(&mut self, now_ns: u64) {
        self.in_use += 1;
        self.admissions_ns.push(now_ns);
    }

    fn settle(&mut self, now_ns: u64) -> (Vec<Ticket>, Vec<Ticket>) {
        let all = self.resuming.iter().chain(&self.queue);
        let expired = all.filter(|row| row.1 <= now_ns).map(|row| row.0).collect();
        self.queue.retain(|row| row.1 > now_ns);
        self.resuming.retain(|row| row.1 > now_ns);
        let mut admitted = Vec::new();
        while self.has_permit()
            && let Some((ticket, _)) = self.resuming.pop_front()
        {
            self.in_use += 1;
            admitted.push(ticket);
        }
        while self.may_admit(now_ns)
            && let Some((ticket, _)) = self.queue.pop_front()
        {
            self.admit(now_ns);
            admitted.push(ticket);
        }
        (admitted, expired)
    }

    fn arrive(&mut self, now_ns: u64, answer: Arrival) -> Result<(), TestCaseError> {
        let (may, full) = (self.may_admit(now_ns), self.queue.len() >= self.config.queue_size as usize);
        match answer {
            Arrival::Admitted => {
                prop_assert!(self.queue.is_empty() && may);
                self.admit(now_ns);
            }
            Arrival::Queued(ticket) => {
                prop_assert!(!full && (!self.queue.is_empty() || !may));
                self.queue.push_back((ticket, now_ns + self.config.queue_timeout_ns));
            }
            Arrival::Full { retry_after_ns } => {
                prop_assert!(full && (!self.queue.is_empty() || !may));
                prop_assert!((SECOND..=60 * SECOND).contains(&retry_after_ns));
            }
        }
        Ok(())
    }
}

fn configs() -> impl Strategy<Value = AdmissionConfig> {
    let limits = (prop::option::of(1_u32..4), 0_u32..6, 0_u64..3 * SECOND, prop::option::of(1_u32..5));
    limits.prop_map(|(max_concurrent, queue_size, queue_timeout_ns, tokens_per_second)| AdmissionConfig {
        max_concurrent: max_concurrent.and_then(NonZeroU32::new),
        queue_size,
        queue_timeout_ns,
        tokens_per_second: tokens_per_second.and_then(NonZeroU32::new),
    })
}

proptest! {
    /// Random arrivals, releases, departures and waits, then a phase in which nobody comes any more and all have to get out.
    #[test]
    fn everybody_is_admitted_in_turn_or_told_and_nothing_is_lost(
        config in configs(),
        steps in prop::collection::vec((0_u8..11, 0_u64..SECOND, 0_usize..16), 1..200),
    ) {
        let mut model = Model { config: config.clone(), ..Model::default() };
        let mut admission = Admission::new(config);
        let mut now_ns = 0;
        for (what, pause_ns, which) in steps {
            now_ns += if what % 2 == 0 { pause_ns } else { 0 };
            match what {
                0..=4 => model.arrive(now_ns, admission.arrive(now_ns))?,
                5 | 6 if model.in_use > 0 => {
                    model.in_use -= 1;
                    admission.release(now_ns);
                }
                7 if !model.queue.is_empty() => {
                    let row = model.queue.remove(which % model.queue.len()).expect("it is there");
                    prop_assert!(admission.abandon(now_ns, row.0));
                }
                // As after every release: who may go in goes before somebody else comes.
                8 if model.in_use > 0 => {
                    model.in_use -= 1;
                    admission.release(now_ns);
                    prop_assert_eq!(settle(&mut admission, now_ns), model.settle(now_ns));
                    model.resume(now_ns, admission.resume(now_ns))?;
                }
                9 if !model.resuming.is_empty() => {
                    let row = model.resuming.remove(which % model.resuming.len()).expect("it is there");
                    prop_assert!(admission.abandon(now_ns, row.0));
                }
                _ => prop_assert_eq!(settle(&mut admission, now_ns), model.settle(now_ns)),
            }
            prop_assert_eq!((admission.in_use(), admission.waiting()), (model.in_use, model.waiting()));
            prop_assert!(model.config.max_concurrent.is_none_or(|most| admission.in_use() <= most.get()));
        }
        for _ in 0..1000 {
            prop_assert_eq!(settle(&mut admission, now_ns), model.settle(now_ns));
            // Nothing is due before the deadline that is told, and something is due then.
            if let Some(next_ns) = admission.next_deadline() {
                prop_assert!(next_ns > now_ns);
                prop_assert_eq!(settle(&mut admission, next_ns - 1), (vec![], vec![]));
                let due = settle(&mut admission, next_ns);
                prop_assert!(!due.0.is_empty() || !due.1.is_empty());
                prop_assert_eq!(&due, &model.settle(next_ns));
                now_ns = next_ns;
            }
            if model.in_use > 0 {
                model.in_use -= 1;
                admission.release(now_ns);
            } else if model.waiting() == 0 {
                break;
            }
        }
        prop_assert_eq!((admission.in_use(), admission.waiting(), admission.next_deadline()), (0, 0, None));
    }
}
