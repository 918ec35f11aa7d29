//! When things happen: closed forms, and a naive model that takes every step for every request.

use crate::support::{Script, a100, end, first_ns, play, request, run, submit};
use proptest::prelude::*;
use simworker_core::cost::{CostModel, PrefillWork};
use simworker_core::time::Ticks;
use simworker_core::{Engine, EngineConfig, Event, Pace, Refusal, RequestId};

fn prefill(cost: &CostModel, parts: &[(u64, u64)]) -> Ticks {
    let mut work = PrefillWork::default();
    for (new, cached) in parts {
        work.add(*new, *cached);
    }
    cost.prefill(work)
}

#[test]
fn a_single_request_takes_the_sum_of_its_steps() {
    let config = a100();
    let cost = config.cost;
    let events = run(config, &vec![submit(1_000, request(1, &[(1, 700)], 100))]);
    let first = Ticks::from_ns(1_000) + prefill(&cost, &[(700, 0)]);
    // The k-th decode step attends to the prompt and k outputs.
    let last = (1..100).fold(first, |at, k| at + cost.decode(1, 700 + k));
    assert_eq!(first_ns(&events, 1), first.ns());
    assert_eq!(end(&events, 1).at_ns, last.ns());
    assert_eq!(end(&events, 1).queue_ns, 0);
    assert_eq!(events.len(), 1 + 99 + 1);
}

#[test]
fn a_long_prompt_is_cut_and_each_part_pays_for_the_former() {
    let config = a100();
    let cost = config.cost;
    let events = run(config, &vec![submit(0, request(1, &[(1, 20_000)], 1))]);
    let parts = [(8192, 0), (8192, 8192), (3616, 16_384)];
    let first = parts.iter().fold(Ticks::ZERO, |at, part| at + prefill(&cost, &[*part]));
    assert_eq!(first_ns(&events, 1), first.ns());
    assert_eq!(end(&events, 1).at_ns, first.ns());

    let whole = EngineConfig { chunked_prefill: None, ..a100() };
    let events = run(whole, &vec![submit(0, request(1, &[(1, 20_000)], 1))]);
    assert_eq!(first_ns(&events, 1), prefill(&cost, &[(20_000, 0)]).ns());
}

#[test]
fn an_arrival_during_a_step_waits_for_its_end_and_stops_decoding() {
    let config = a100();
    let cost = config.cost;
    let first = prefill(&cost, &[(500, 0)]);
    let third = first + cost.decode(1, 501) + cost.decode(1, 502);
    let arrival = third.ns() - 10;
    let script = vec![submit(0, request(1, &[(1, 500)], 50)), submit(arrival, request(2, &[(2, 300)], 2))];
    let events = run(config, &script);
    let second_first = third + prefill(&cost, &[(300, 0)]);
    assert_eq!(first_ns(&events, 2), second_first.ns());
    assert_eq!(end(&events, 2).queue_ns, 10);
    let joint = second_first + cost.decode(2, 503 + 301);
    assert_eq!(end(&events, 2).at_ns, joint.ns());
    let gap = |gap_ns| Event::Step { at_ns: joint.ns(), gap_ns, tokens: 1 };
    assert!(
        events.contains(&gap(joint.ns() - third.ns())),
        "the first has waited for the prefill of the second"
    );
    assert!(events.contains(&gap(joint.ns() - second_first.ns())));
}

/// One request of the naive model.
#[derive(Debug, Clone)]
struct Naive {
    prompt: u64,
    max_new: u64,
    arrival: u64,
    made: u64,
    first: u64,
    last: u64,
}

/// Steps through the life of every request one token at a time: fcfs, nothing shared, nothing cut, KV without end.
fn naive(config: &EngineConfig, requests: &mut [Naive]) {
    let mut now = Ticks::ZERO;
    loop {
        let open = |r: &Naive| r.made < r.max_new;
        let Some(next) = requests.iter().filter(|r| open(r) && r.made == 0).map(|r| r.arrival).min() else {
            break;
        };
        if !requests.iter().any(|r| open(r) && (r.made > 0 || r.arrival <= now.ns())) {
            now = Ticks::from_ns(next);
        }
        step(config, requests, &mut now);
    }
    while requests.iter().any(|r| r.made < r.max_new) {
        step(config, requests, &mut now);
    }
}

fn step(config: &EngineConfig, requests: &mut [Naive], now: &mut Ticks) {
    let mut left = u64::from(config.max_prefill_tokens);
    let mut batch = Vec::new();
    for (i, r) in requests.iter().enumerate().filter(|(_, r)| r.made == 0 && r.arrival <= now.ns()) {
        if !batch.is_empty() && r.prompt >= left || left == 0 {
            break;
        }
        left = left.saturating_sub(r.prompt);
        batch.push(i);
    }
    if batch.is_empty() {
        batch.extend((0..requests.len()).filter(|i| {
            let r = &requests[*i];
            r.made > 0 && r.made < r.max_new
        }));
        let context = batch.iter().map(|i| requests[*i].prompt + requests[*i].made).sum();
        *now += config.cost.decode(batch.len() as u64, context);
    } else {
        let parts: Vec<_> = batch.iter().map(|i| (requests[*i].prompt, 0)).collect();
        *now += prefill(&config.cost, &parts);
        batch.iter().for_each(|i| requests[*i].first = now.ns());
    }
    for i in batch {
        requests[i].made += 1;
        requests[i].last = now.ns();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_engine_agrees_with_the_naive_model(
        raw in prop::collection::vec((1u32..4000, 1u32..60, 0u64..3_000_000_000), 1..40),
        page_size in prop::sample::select(vec![1u32, 16, 64]),
    ) {
        let config = EngineConfig {
            chunked_prefill: None, disable_prefix_cache: true, page_size, kv_tokens: 4_000_000, ..a100()
        };
        let mut raw = raw;
        raw.sort_by_key(|r| r.2);
        let script: Script = raw.iter().enumerate()
            .map(|(i, (prompt, max_new, at))| submit(*at, request(i as u64, &[(i as u64, *prompt)], *max_new)))
            .collect();
        let mut expected: Vec<Naive> = raw.iter().map(|(prompt, max_new, at)| Naive {
            prompt: u64::from(*prompt), max_new: u64::from(*max_new), arrival: *at, made: 0, first: 0, last: 0,
        }).collect();
        // Pages are rounded up in the budget of the batch, which the naive model does not know.
        let config = EngineConfig { max_prefill_tokens: if page_size == 1 { 16_384 } else { 1_000_000 }, ..config };
        naive(&config, &mut expected);
        let events = run(config, &script);
        for (i, r) in expected.iter().enumerate() {
            prop_assert_eq!(first_ns(&events, i as u64), r.first);
            prop_assert_eq!(end(&events, i as u64).at_ns, r.last);
        }
    }
}

#[test]
fn a_stretch_costs_calls_for_its_ends_only() {
    let mut engine = Engine::new(a100()).unwrap();
    let script = (0..64).map(|i| submit(0, request(i, &[(i, 100)], 1000))).collect();
    let mut calls = 0;
    let events = play(&mut engine, &script, |_| calls += 1);
    assert!(calls < 64 + 10, "{calls} calls for 999 steps");
    assert_eq!(crate::support::tokens(&events), 64_000);
}

#[test]
fn with_overlap_a_client_gets_each_token_when_it_is_made() {
    let cost = a100().cost;
    let mut ends = vec![prefill(&cost, &[(700, 0)])];
    for k in 1..4 {
        ends.push(ends[k - 1] + cost.decode(1, 700 + k as u64));
    }
    for max_new in 1..=4 {
        let mut engine = Engine::new(EngineConfig { overlap: true, pace: Pace::Step, ..a100() }).unwrap();
        let (mut events, mut seen) = (Vec::new(), Vec::new());
        engine.submit(0, request(1, &[(1, 700)], max_new), &mut events).unwrap();
        while let Some(due) = engine.next_deadline() {
            engine.advance(due, &mut events);
            seen.extend(engine.running().map(|(_, tokens)| (due, tokens)));
        }
        let last = max_new as usize - 1;
        let expected: Vec<_> = ends[..last].iter().map(|end| end.ns()).zip(1..).collect();
        assert_eq!(seen, expected, "every token but the last is seen by itself");
        assert_eq!(first_ns(&events, 1), ends[0].ns());
        let steps: Vec<u64> = events.iter().filter_map(step_ns).collect();
        assert_eq!(steps, ends[1..=last].iter().map(|end| end.ns()).collect::<Vec<_>>());
        assert_eq!(end(&events, 1).at_ns, ends[last].ns());
    }
}

#[test]
fn with_overlap_a_step_is_chosen_before_the_results_of_the_former_one_are_known() {
    // Each batch takes one prompt. The second is matched before the first is in the cache, the third after.
    let script: Script = (0..3).map(|id| submit(0, request(id, &[(1, 5000)], 1))).collect();
    let cached = |overlap| {
        let events = run(EngineConfig { overlap, max_prefill_tokens: 5000, ..a100() }, &script);
        [0, 1, 2].map(|id| end(&events, id).cached)
    };
    assert_eq!(cached(false), [0, 4999, 4999]);
    assert_eq!(cached(true), [0, 0, 4999]);
}

#[test]
fn with_overlap_an_arrival_waits_for_the_end_of_the_next_step() {
    let config = EngineConfig { overlap: true, ..a100() };
    let cost = config.cost;
    let first = prefill(&cost, &[(500, 0)]);
    let second = first + cost.decode(1, 501);
    let third = second + cost.decode(1, 502);
    // During the step that makes the second token; the next one has been chosen already.
    let arrival = second.ns() - 10;
    let script = vec![submit(0, request(1, &[(1, 500)], 50)), submit(arrival, request(2, &[(2, 300)], 2))];
    let events = run(config.clone(), &script);
    assert_eq!(end(&events, 2).queue_ns, third.ns() - arrival);
    assert_eq!(first_ns(&events, 2), (third + prefill(&cost, &[(300, 0)])).ns());

    // With nothing to do but to wait for it, it starts when the result is known; so does one that finds nobody.
    let script = vec![submit(7, request(1, &[(1, 500)], 1)), submit(9, request(2, &[(2, 300)], 1))];
    let events = run(config, &script);
    assert_eq!(end(&events, 1).queue_ns, 0);
    assert_eq!(
        first_ns(&events, 2),
        (Ticks::from_ns(7) + prefill(&cost, &[(500, 0)]) + prefill(&cost, &[(300, 0)])).ns()
    );
}

#[test]
fn with_overlap_an_arrival_that_waits_can_be_aborted_and_counts() {
    let mut engine = Engine::new(EngineConfig { overlap: true, max_queued: Some(1), ..a100() }).unwrap();
    let mut events = Vec::new();
    engine.submit(0, request(1, &[(1, 500)], 50), &mut events).unwrap();
    engine.advance(0, &mut events);
    engine.submit(1, request(2, &[(2, 300)], 50), &mut events).unwrap();
    assert_eq!(engine.loads().waiting, 1);
    assert_eq!(engine.loads().waiting_uncached_tokens, 300);
    assert_eq!(engine.submit(1, request(3, &[(3, 1)], 50), &mut events), Err(Refusal::QueueFull));
    assert!(engine.abort(2, RequestId(2), &mut events));
    assert_eq!(end(&events, 2).at_ns, 2);
    assert_eq!(engine.loads().waiting, 0);
}

fn step_ns(event: &Event) -> Option<u64> {
    match event {
        Event::Step { at_ns, .. } => Some(*at_ns),
        _ => None,
    }
}
