//! What a prefill step takes, and how it alternates with decode steps.

use simworker_core::cost::PrefillWork;
use simworker_core::{EngineConfig, Event, PrefillInterval, Schedule, Submit};

use crate::support::{Script, a100, end, first_ns, request, run, submit};

fn mixed(chunk: u32) -> EngineConfig {
    EngineConfig { mixed_chunk: true, chunked_prefill: Some(chunk), ..a100() }
}

/// Gaps between the tokens of the request that has run since `from_ns`, one per step.
fn gaps(events: &[Event], from_ns: u64, to_ns: u64) -> Vec<u64> {
    let steps = events.iter().filter_map(|event| match event {
        Event::Step { at_ns, gap_ns, .. } if (from_ns..=to_ns).contains(at_ns) => Some(*gap_ns),
        _ => None,
    });
    steps.collect()
}

#[test]
fn running_requests_make_a_token_in_each_prefill_step() {
    // Request 0 decodes when 1 comes, which is cut into 999, 999 and 502 tokens: one of each thousand is 0's.
    let script =
        vec![submit(0, request(0, &[(1, 500)], 60)), submit(300_000_000, request(1, &[(2, 2500)], 1))];
    let events = run(mixed(1000), &script);
    let first = first_ns(&events, 1);
    let before = events.iter().filter(|event| event.at_ns() <= 300_000_000).count() as u64;
    // `before` events are tokens of 0 (its first one included); the next one is still an ordinary step.
    let context = 500 + before + 1..;
    let mut expected = Vec::new();
    let mut done = 0;
    for (context, new) in context.zip([999, 999, 502]) {
        let mut work = PrefillWork::default();
        work.add(new, done);
        done += new;
        expected.push(a100().cost.mixed(work, 1, context).ns());
    }
    let gaps = gaps(&events, first - expected.iter().sum::<u64>() + 1_000_000, first);
    assert_eq!(gaps.len(), 3);
    for (gap, expected) in gaps.iter().zip(&expected) {
        assert!(gap.abs_diff(*expected) <= 1, "{gaps:?} {expected:?}");
    }
    assert_eq!([0, 1].map(|id| end(&events, id).outputs), [60, 1]);
    let apart = run(EngineConfig { mixed_chunk: false, ..mixed(1000) }, &script);
    assert!(first_ns(&apart, 1) < first, "its own steps were shorter");
    assert!(end(&apart, 0).at_ns > end(&events, 0).at_ns, "but 0 stood still meanwhile");
}

#[test]
fn with_overlap_all_get_their_tokens_too() {
    for overlap in [false, true] {
        let requests = (0..6).map(|id| submit(id * 90_000_000, request(id, &[(id, 1500)], 20 + id as u32)));
        let events = run(EngineConfig { overlap, ..mixed(600) }, &requests.collect());
        assert_eq!((0..6).map(|id| end(&events, id).outputs).collect::<Vec<_>>(), [20, 21, 22, 23, 24, 25]);
    }
}

#[test]
fn prompts_with_log_probabilities_are_not_mixed() {
    let plain = request(1, &[(2, 2500)], 1);
    let script = |second: Submit| vec![submit(0, request(0, &[(1, 500)], 60)), submit(300_000_000, second)];
    let first = |second| first_ns(&run(mixed(8192), &script(second)), 1);
    let apart = first_ns(&run(EngineConfig { mixed_chunk: false, ..mixed(8192) }, &script(plain.clone())), 1);
    assert_eq!(first(Submit { match_limit: Some(0), ..plain.clone() }), apart);
    assert!(first(plain) > apart);
}

/// Request 0 decodes; 1 and 2 come one after the other.
fn stream() -> Script {
    vec![
        submit(0, request(0, &[(1, 100)], 80)),
        submit(200_000_000, request(1, &[(2, 100)], 1)),
        submit(220_000_000, request(2, &[(3, 100)], 1)),
    ]
}

#[test]
fn so_many_decode_steps_come_between_two_prefill_steps() {
    let steps_between = |prefill_interval| {
        let events = run(EngineConfig { prefill_interval, ..a100() }, &stream());
        gaps(&events, first_ns(&events, 1) + 1, first_ns(&events, 2)).len()
    };
    let interval = |steps, min_batch| PrefillInterval { steps, min_batch };
    let usual = steps_between(interval(0, 0));
    assert!(usual <= 1);
    assert_eq!(steps_between(interval(7, 0)), 7);
    assert_eq!(steps_between(interval(7, 1)), 7);
    assert_eq!(steps_between(interval(7, 2)), usual, "one runs, and two are needed");
}

#[test]
fn with_nothing_running_no_prefill_waits() {
    let prefill_interval = PrefillInterval { steps: 50, min_batch: 0 };
    let script = vec![submit(0, request(0, &[(1, 100)], 1)), submit(1, request(1, &[(2, 100)], 1))];
    let slow = run(EngineConfig { prefill_interval, ..a100() }, &script);
    assert_eq!(slow, run(a100(), &script));
}

#[test]
fn a_prefill_step_takes_only_so_many_requests() {
    let script: Script = (0..4).map(|id| submit(0, request(id, &[(id, 100)], 1))).collect();
    let firsts = |prefill_max_requests| {
        let events = run(EngineConfig { prefill_max_requests, ..a100() }, &script);
        [0, 1, 2, 3].map(|id| first_ns(&events, id))
    };
    let two = firsts(Some(2));
    assert!(two[0] == two[1] && two[1] < two[2] && two[2] == two[3]);
    assert!(firsts(None)[0] == firsts(None)[3]);
}

#[test]
fn a_long_prompt_leaves_room_for_short_ones_under_shortest_prefill_first() {
    let config = |schedule| EngineConfig { schedule, chunked_prefill: Some(1000), ..a100() };
    let script = vec![submit(0, request(0, &[(1, 5000)], 1)), submit(1, request(1, &[(2, 100)], 1))];
    let fair = run(config(Schedule::Fcfs), &script);
    assert!(first_ns(&fair, 1) > first_ns(&fair, 0), "five parts leave no room before");
    let short = run(config(Schedule::ShortestPrefillFirst), &script);
    // The second step computes 900 of the long prompt and all of the short one.
    let mut work = PrefillWork::default();
    work.add(1000, 0);
    let mut second = PrefillWork::default();
    second.add(900, 1000);
    second.add(100, 0);
    let expected = a100().cost.prefill(work) + a100().cost.prefill(second);
    assert_eq!(first_ns(&short, 1), expected.ns());
    assert!(first_ns(&short, 0) > first_ns(&fair, 0), "100 tokens are left for a sixth");
}
