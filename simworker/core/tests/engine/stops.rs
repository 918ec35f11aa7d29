//! Replies that end by themselves, requests without a reply, prompts of which only a part is looked up.

use simworker_core::{Engine, EngineConfig, Event, FinishReason, RequestId, Submit};

use crate::support::{Act, a100, end, first_ns, play, request, run, submit};

fn stops(id: u64, prompt: u32, most: u32, after: u32) -> Submit {
    Submit { ends_after: Some(after), ..request(id, &[(500 + id, prompt)], most) }
}

/// What is cached after a lone request, and how many decode steps were made.
fn lone(overlap: bool, request: Submit) -> (u64, u64, Vec<Event>) {
    let mut engine = Engine::new(EngineConfig { overlap, ..a100() }).unwrap();
    let events = play(&mut engine, &vec![submit(0, request)], |engine| engine.check().unwrap());
    (engine.loads().evictable_tokens, engine.totals().decode_steps, events)
}

#[test]
fn the_whole_length_is_reserved_though_the_reply_ends_before() {
    let config = EngineConfig { kv_tokens: 1000, ..a100() };
    let pair = |most| vec![submit(0, stops(0, 300, most, 5)), submit(0, stops(1, 300, most, 5))];
    let together = run(config.clone(), &pair(20));
    assert_eq!(first_ns(&together, 0), first_ns(&together, 1));
    let apart = run(config, &pair(300));
    assert!(first_ns(&apart, 1) > end(&apart, 0).at_ns, "300 + 300 + 300 + 300 do not fit");
    for events in [together, apart] {
        let end = end(&events, 0);
        assert_eq!((end.reason, end.outputs), (FinishReason::Stop, 5));
    }
}

#[test]
fn an_end_at_the_limit_is_one_by_length() {
    let (_, _, events) = lone(false, stops(0, 100, 5, 9));
    assert_eq!((end(&events, 0).reason, end(&events, 0).outputs), (FinishReason::Length, 5));
}

#[test]
fn with_overlap_the_end_comes_as_a_surprise_and_costs_a_step_and_a_slot() {
    let (cached, steps, foreseen) = lone(true, request(0, &[(500, 100)], 5));
    assert_eq!((cached, steps), (104, 4));
    let (cached, steps, surprise) = lone(true, stops(0, 100, 50, 5));
    assert_eq!((cached, steps), (105, 5), "the step after has fed the last token back");
    let (foreseen, surprise) = (end(&foreseen, 0), end(&surprise, 0));
    assert_eq!((surprise.outputs, surprise.at_ns), (5, foreseen.at_ns), "the client waits no longer");
    assert_eq!((surprise.reason, foreseen.reason), (FinishReason::Stop, FinishReason::Length));
    let (cached, steps, _) = lone(false, stops(0, 100, 50, 5));
    assert_eq!((cached, steps), (104, 4), "without it all is known in time");
}

#[test]
fn the_first_token_can_be_a_surprise() {
    let (cached, steps, events) = lone(true, stops(0, 100, 50, 1));
    assert_eq!((cached, steps, end(&events, 0).outputs), (101, 1, 1));
    assert_eq!(end(&events, 0).at_ns, first_ns(&events, 0));
}

#[test]
fn with_overlap_an_abort_costs_a_step_and_a_slot_too() {
    let aborted = |overlap| {
        let mut engine = Engine::new(EngineConfig { overlap, ..a100() }).unwrap();
        let script = vec![submit(0, request(0, &[(1, 100)], 500)), (300_000_000, Act::Abort(RequestId(0)))];
        let events = play(&mut engine, &script, |engine| engine.check().unwrap());
        let outputs = u64::from(end(&events, 0).outputs);
        assert!(outputs > 5);
        (engine.totals().decode_steps.wrapping_sub(outputs), engine.loads().evictable_tokens - outputs)
    };
    // The first token comes without a decode step; the last one has no KV, unless it was fed back.
    assert_eq!(aborted(false), (u64::MAX, 99));
    assert_eq!(aborted(true), (0, 100));
}

#[test]
fn who_comes_after_a_surprise_waits_for_the_wasted_step() {
    let after = |first: Submit| {
        let mut engine = Engine::new(EngineConfig { overlap: true, ..a100() }).unwrap();
        let mut events = Vec::new();
        engine.submit(0, first, &mut events).unwrap();
        while !engine.is_idle() {
            engine.advance(engine.next_deadline().unwrap(), &mut events);
        }
        let now_ns = end(&events, 0).at_ns;
        engine.submit(now_ns + 1, request(1, &[(9, 100)], 1), &mut events).unwrap();
        while let Some(due) = engine.next_deadline() {
            engine.advance(due, &mut events);
        }
        end(&events, 1).queue_ns
    };
    assert_eq!(after(request(0, &[(500, 100)], 5)), 0);
    assert!(after(stops(0, 100, 50, 5)) > 9_000_000);
}

#[test]
fn a_request_without_a_reply_ends_with_its_prefill() {
    let embed = Submit { is_prefill_only: true, ..request(0, &[(1, 500)], 400) };
    let config = EngineConfig { kv_tokens: 600, ..a100() };
    for overlap in [false, true] {
        let mut engine = Engine::new(EngineConfig { overlap, ..config.clone() }).unwrap();
        let events = play(&mut engine, &vec![submit(0, embed.clone())], |engine| engine.check().unwrap());
        let end = end(&events, 0);
        assert_eq!(
            (events.len(), end.outputs, end.reason),
            (1, 0, FinishReason::Length),
            "and no first token"
        );
        assert_eq!(engine.totals().generated_tokens, 0);
        assert_eq!(engine.loads().evictable_tokens, 500);
        let prefill = run(EngineConfig { overlap, ..a100() }, &vec![submit(0, request(0, &[(1, 500)], 1))]);
        assert_eq!(end.at_ns, first_ns(&prefill, 0));
    }
    // Nothing is reserved for replies: two of 290 fit.
    let small = |id| Submit { is_prefill_only: true, ..request(id, &[(id, 290)], 200) };
    let events = run(config, &vec![submit(0, small(0)), submit(0, small(1))]);
    assert_eq!(end(&events, 0).at_ns, end(&events, 1).at_ns);
}

#[test]
fn no_more_than_the_limit_of_a_prompt_is_looked_up() {
    let later_ns = 1_000_000_000;
    for (limit, cached) in [(None, 799), (Some(900), 799), (Some(799), 799), (Some(500), 500), (Some(0), 0)] {
        let second = Submit { match_limit: limit, ..request(1, &[(1, 800)], 1) };
        let events = run(a100(), &vec![submit(0, request(0, &[(1, 800)], 1)), submit(later_ns, second)]);
        assert_eq!(end(&events, 1).cached, cached, "{limit:?}");
    }
}
