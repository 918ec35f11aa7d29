//! DP attention: ranks step together. Closed forms, and what holds for random loads.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use simworker_core::cost::{CostModel, PrefillWork};
use simworker_core::time::Ticks;
use simworker_core::{ConfigError, DpConfig, EngineConfig, Event, LoadBalance, Ranks};

use crate::support::{a100, dp, end_ns, finish, first_ns, request, run_to};

fn together(size: u32) -> DpConfig {
    DpConfig { size, balance: LoadBalance::RoundRobin, attention: true }
}

fn prefill(cost: &CostModel, new: u64, cached: u64) -> Ticks {
    let mut work = PrefillWork::default();
    work.add(new, cached);
    cost.prefill(work)
}

#[test]
fn a_step_lasts_as_long_as_the_longest_of_all_ranks() {
    let mut ranks = Ranks::new(a100(), together(2)).unwrap();
    let cost = a100().cost;
    let mut events = Vec::new();
    ranks.submit(0, request(1, 3000, 3), Some(0), &mut events).unwrap();
    ranks.submit(0, request(2, 100, 3), Some(1), &mut events).unwrap();
    finish(&mut ranks, &mut events);
    let first = prefill(&cost, 3000, 0);
    let last = first + cost.decode(1, 3001) + cost.decode(1, 3002);
    for id in [1, 2] {
        assert_eq!(first_ns(&events, id), first.ns(), "both prompts take the time of the long one");
        assert_eq!(end_ns(&events, id), last.ns(), "and both decode with the long context");
    }
}

#[test]
fn an_idle_rank_waits_for_the_step_in_progress() {
    let mut ranks = Ranks::new(a100(), together(2)).unwrap();
    let cost = a100().cost;
    let mut events = Vec::new();
    ranks.submit(0, request(1, 3000, 2), Some(0), &mut events).unwrap();
    run_to(&mut ranks, 1_000, &mut events);
    ranks.submit(1_000, request(2, 100, 1), Some(1), &mut events).unwrap();
    finish(&mut ranks, &mut events);
    let first = prefill(&cost, 3000, 0);
    assert_eq!(first_ns(&events, 1), first.ns());
    let second = first + prefill(&cost, 100, 0).max(cost.decode(1, 3001));
    assert_eq!(first_ns(&events, 2), second.ns(), "it starts with the next step of all");
    let alone = {
        let mut ranks = Ranks::new(a100(), dp(2, LoadBalance::RoundRobin)).unwrap();
        let mut events = Vec::new();
        ranks.submit(0, request(1, 3000, 2), Some(0), &mut events).unwrap();
        run_to(&mut ranks, 1_000, &mut events);
        ranks.submit(1_000, request(2, 100, 1), Some(1), &mut events).unwrap();
        finish(&mut ranks, &mut events);
        first_ns(&events, 2)
    };
    assert_eq!(
        alone,
        (Ticks::from_ns(1_000) + prefill(&cost, 100, 0)).ns(),
        "without it ranks are strangers"
    );
}

#[test]
fn a_prefill_on_one_rank_stalls_decoding_on_the_others() {
    let mut ranks = Ranks::new(a100(), together(2)).unwrap();
    let cost = a100().cost;
    let mut events = Vec::new();
    ranks.submit(0, request(1, 200, 100), Some(0), &mut events).unwrap();
    let first = prefill(&cost, 200, 0);
    let third = first + cost.decode(1, 201) + cost.decode(1, 202);
    let arrival_ns = third.ns() - 10;
    run_to(&mut ranks, arrival_ns, &mut events);
    ranks.submit(arrival_ns, request(2, 4000, 1), Some(1), &mut events).unwrap();
    finish(&mut ranks, &mut events);
    let stalled = third + prefill(&cost, 4000, 0);
    assert_eq!(first_ns(&events, 2), stalled.ns());
    let gap_ns = stalled.ns() - third.ns();
    let stall = Event::Step { at_ns: stalled.ns(), gap_ns, tokens: 1 };
    assert!(events.contains(&stall), "one token comes as late as the prefill makes it");
}

#[test]
fn chunks_and_running_requests_are_shared() {
    let config = EngineConfig { chunked_prefill: Some(2000), max_running: 8, ..a100() };
    let mut ranks = Ranks::new(config.clone(), together(4)).unwrap();
    assert_eq!(ranks.loads(3).max_running, 2);
    let mut events = Vec::new();
    ranks.submit(0, request(1, 1000, 1), Some(0), &mut events).unwrap();
    finish(&mut ranks, &mut events);
    let halves = prefill(&config.cost, 500, 0) + prefill(&config.cost, 500, 500);
    assert_eq!(first_ns(&events, 1), halves.ns());
    let apart = Ranks::new(config, dp(4, LoadBalance::RoundRobin)).unwrap();
    assert_eq!(apart.loads(3).max_running, 8);
    let tiny = EngineConfig { max_running: 3, ..a100() };
    let refused = ConfigError::TooFewToShare { max_running: 3, ranks: 4 };
    assert_eq!(Ranks::new(tiny, together(4)).unwrap_err(), refused);
}

/// Advances moment by moment. Whenever a rank has made a step, so have all that had somebody to decode for since the
/// moment before: none of them is on its own.
fn run_watched(ranks: &mut Ranks, until_ns: u64, events: &mut Vec<Event>) {
    let steps = |ranks: &Ranks, rank| {
        let totals = ranks.totals(rank);
        totals.prefill_steps + totals.decode_steps
    };
    while let Some(due) = ranks.next_deadline().filter(|due| *due < until_ns) {
        let before: Vec<_> =
            (0..ranks.size()).map(|rank| (steps(ranks, rank), ranks.loads(rank).running)).collect();
        ranks.advance(due, events);
        let made: Vec<bool> =
            (0..).zip(&before).map(|(rank, (made, _))| steps(ranks, rank) > *made).collect();
        let others = before.iter().zip(&made).filter(|((_, running), _)| *running > 0);
        assert!(
            !made.contains(&true) || others.clone().all(|(_, made)| *made),
            "{before:?} {made:?} at {due}"
        );
    }
}

#[test]
fn under_any_load_a_rank_that_decodes_takes_part_in_every_step() {
    for seed in 0..30 {
        let mut rng = Pcg64::seed_from_u64(seed);
        let config = EngineConfig { kv_tokens: rng.random_range(3000..20_000), ..a100() };
        let mut ranks = Ranks::new(config, together(3)).unwrap();
        let (mut events, mut now_ns) = (Vec::new(), 0);
        for id in 0..60 {
            now_ns += rng.random_range(0..30_000_000);
            run_watched(&mut ranks, now_ns, &mut events);
            let wish = request(id, rng.random_range(1..2000), rng.random_range(1..100));
            ranks.submit(now_ns, wish, None, &mut events).unwrap();
        }
        run_watched(&mut ranks, u64::MAX, &mut events);
        assert!(ranks.is_idle(), "seed {seed}");
    }
}

/// Moments at which something became known.
fn moments(events: &[Event]) -> Vec<u64> {
    let mut moments: Vec<u64> = events
        .iter()
        .filter(|event| matches!(event, Event::FirstToken { .. } | Event::Step { .. }))
        .map(Event::at_ns)
        .collect();
    moments.dedup();
    moments
}

#[test]
fn under_any_load_all_ranks_make_their_tokens_at_the_same_moments() {
    for seed in 0..30 {
        let mut rng = Pcg64::seed_from_u64(seed);
        let config =
            EngineConfig { kv_tokens: rng.random_range(3000..20_000), overlap: rng.random(), ..a100() };
        let mut ranks = Ranks::new(config, together(3)).unwrap();
        let (mut events, mut now_ns) = (Vec::new(), 0);
        for id in 0..60 {
            now_ns += rng.random_range(0..30_000_000);
            run_to(&mut ranks, now_ns, &mut events);
            let wish = request(id, rng.random_range(1..2000), rng.random_range(1..100));
            ranks.submit(now_ns, wish, None, &mut events).unwrap();
            ranks.check().unwrap();
        }
        finish(&mut ranks, &mut events);
        assert!(events.iter().map(Event::at_ns).is_sorted(), "time goes back");
        let ends = events.iter().filter(|event| matches!(event, Event::Finish { .. })).count();
        assert_eq!(ends, 60, "seed {seed}");
        // Steps of strangers would end at about as many moments as there are steps; here all ranks share them.
        let most = (0..3).map(|rank| ranks.totals(rank)).map(|t| t.prefill_steps + t.decode_steps);
        let (longest, sum) = most.fold((0, 0), |(longest, sum), steps| (longest.max(steps), sum + steps));
        let moments = moments(&events).len() as u64;
        assert!(
            moments >= longest.saturating_sub(60) && moments < sum * 2 / 3,
            "seed {seed}: {moments} of {sum}"
        );
    }
}
