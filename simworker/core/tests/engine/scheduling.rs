//! What the scheduler decides: order, batches, retraction, aborts, limits.

use simworker_core::{Engine, EngineConfig, Event, FinishReason, Refusal, RequestId, Schedule};

use crate::support::{Act, Script, a100, end, first_ns, play, request, run, submit};

/// One second, long after whatever came before.
const LATER_NS: u64 = 1_000_000_000;

fn lpm() -> EngineConfig {
    EngineConfig { schedule: Schedule::Lpm, ..a100() }
}

/// Request 0 leaves a prefix in the cache; while 1 is prefilled, 2 comes without and 3 with that prefix.
fn one_of_two_is_cached() -> Script {
    vec![
        submit(0, request(0, &[(7, 2000)], 1)),
        submit(LATER_NS, request(1, &[(1, 500)], 1)),
        submit(LATER_NS + 1, request(2, &[(2, 2100)], 1)),
        submit(LATER_NS + 2, request(3, &[(7, 2000), (3, 100)], 1)),
    ]
}

#[test]
fn lpm_prefers_what_is_cached_and_fcfs_what_came_first() {
    let events = run(EngineConfig { max_running: 1, ..a100() }, &one_of_two_is_cached());
    assert!(first_ns(&events, 2) < first_ns(&events, 3));
    let events = run(EngineConfig { max_running: 1, ..lpm() }, &one_of_two_is_cached());
    assert!(first_ns(&events, 3) < first_ns(&events, 2));
    assert_eq!((end(&events, 2).cached, end(&events, 3).cached), (0, 2000));
}

#[test]
fn in_batch_caching_computes_each_new_prefix_once() {
    // Two requests fill a batch; two prefixes, two requests each.
    let script: Script = (0..4).map(|i| submit(0, request(i, &[(100 + i / 2, 2000), (i, 100)], 1))).collect();
    let cached = |in_batch_prefix_caching| {
        let config = EngineConfig { in_batch_prefix_caching, chunked_prefill: Some(4200), ..lpm() };
        let events = run(config, &script);
        [0, 1, 2, 3].map(|i| end(&events, i).cached)
    };
    assert_eq!(cached(false), [0; 4]);
    assert_eq!(cached(true), [0, 2000, 0, 2000]);
}

#[test]
fn a_half_computed_prefix_is_waited_for_unless_its_chunk_is_shared_first() {
    // The rest of 0 and all of 1 fill a step.
    let script = vec![
        submit(0, request(0, &[(7, 4000), (0, 10)], 1)),
        submit(0, request(1, &[(1, 1990)], 1)),
        submit(0, request(2, &[(7, 4000), (2, 10)], 1)),
        submit(0, request(3, &[(7, 4000), (3, 10)], 1)),
    ];
    let cached = |share_chunks_first| {
        let config = EngineConfig { share_chunks_first, chunked_prefill: Some(3000), ..lpm() };
        let events = run(config, &script);
        [0, 1, 2, 3].map(|i| end(&events, i).cached)
    };
    assert_eq!(cached(false), [0, 0, 4000, 4000]);
    assert_eq!(cached(true), [0, 0, 3000, 3000]);
}

#[test]
fn one_batch_computes_a_shared_prefix_for_each_and_keeps_it_once() {
    let mut engine = Engine::new(a100()).unwrap();
    let script = (0..3).map(|i| submit(0, request(i, &[(9, 2000), (i, 100)], 1))).collect();
    let events = play(&mut engine, &script, |_| {});
    assert!((0..3).all(|i| end(&events, i).cached == 0));
    assert_eq!(engine.totals().prefill_uncached_tokens, 3 * 2100);
    assert_eq!(engine.loads().evictable_tokens, 2000 + 3 * 100);
}

#[test]
fn outputs_are_cached_at_the_end_and_reports_say_what_was_found_first() {
    let first = request(0, &[(1, 300)], 50);
    let reply = protocol::tokenizer::reply_block(&first.prompt.tokens());
    let script = vec![submit(0, first), submit(LATER_NS, request(1, &[(1, 300), (reply, 50), (2, 20)], 5))];
    let events = run(a100(), &script);
    assert_eq!(end(&events, 1).cached, 300 + 49, "the last output has no KV");
}

#[test]
fn the_rest_of_a_chunked_prompt_shares_its_step_with_the_next() {
    let config = EngineConfig { chunked_prefill: Some(1000), ..a100() };
    let script = vec![submit(0, request(0, &[(1, 2500)], 4)), submit(0, request(1, &[(2, 300)], 4))];
    let events = run(config, &script);
    assert_eq!(first_ns(&events, 0), first_ns(&events, 1));
}

#[test]
fn prompts_are_cut_at_whole_pages() {
    let config = EngineConfig { chunked_prefill: Some(100), page_size: 16, ..a100() };
    let mut engine = Engine::new(config).unwrap();
    let events = play(&mut engine, &vec![submit(0, request(0, &[(1, 200)], 1))], |_| {});
    assert_eq!(end(&events, 0).outputs, 1);
    assert_eq!(engine.totals().prefill_steps, 3, "96 + 96 + 8");
}

#[test]
fn max_running_makes_them_take_turns() {
    let script: Script = (0..3).map(|i| submit(0, request(i, &[(i, 100)], 10))).collect();
    let events = run(EngineConfig { max_running: 1, ..a100() }, &script);
    assert!(first_ns(&events, 1) > end(&events, 0).at_ns);
    assert!(first_ns(&events, 2) > end(&events, 1).at_ns);
    assert_eq!(end(&events, 2).queue_ns, end(&events, 1).at_ns);
}

#[test]
fn the_first_in_the_queue_waits_for_room_and_nobody_passes_it() {
    let config = EngineConfig { kv_tokens: 1000, ..a100() };
    let script = vec![
        submit(0, request(0, &[(1, 300)], 200)),
        submit(1, request(1, &[(2, 400)], 200)),
        submit(2, request(2, &[(3, 50)], 2)),
    ];
    let events = run(config, &script);
    assert!(first_ns(&events, 1) > end(&events, 0).at_ns, "300 + 200 + 400 + 200 do not fit");
    assert_eq!(first_ns(&events, 2), first_ns(&events, 1), "50 + 2 would have");
}

#[test]
fn the_one_with_fewest_outputs_gives_way_and_comes_back_with_them() {
    let config = EngineConfig { kv_tokens: 600, conservativeness: 0.1, ..a100() };
    let hopeful =
        |id, block| simworker_core::Submit { ignore_eos: false, ..request(id, &[(block, 100)], 250) };
    let script = vec![submit(0, hopeful(0, 1)), submit(1, hopeful(1, 2))];
    let mut engine = Engine::new(config.clone()).unwrap();
    let (mut told, mut reported) = (false, 0);
    let events = play(&mut engine, &script, |engine| {
        engine.check().unwrap();
        told |= engine.retracted().any(|retracted| retracted == (RequestId(1), 1));
        reported = reported.max(engine.loads().retracted_lately);
    });
    assert_eq!((end(&events, 0).retractions, end(&events, 1).retractions), (0, 1));
    assert_eq!((end(&events, 0).outputs, end(&events, 1).outputs), (250, 250));
    assert_eq!(end(&events, 1).cached, 0, "what it finds when it comes back does not count");
    let totals = engine.totals();
    assert_eq!((totals.retractions, totals.generated_tokens), (1, 500));
    assert!(told, "it is told while the request goes on");
    assert_eq!((reported, engine.loads().retracted_lately), (1, 0), "an interval later it is no news");
    assert!(totals.prefill_uncached_tokens > 200, "its outputs were computed again");
    let firsts = events.iter().filter(|event| matches!(event, Event::FirstToken { .. })).count();
    assert_eq!(firsts, 2, "a first token comes once");

    // Said to run to the end, both are not admitted together.
    let script = vec![submit(0, request(0, &[(1, 100)], 250)), submit(1, request(1, &[(2, 100)], 250))];
    let events = run(config, &script);
    assert_eq!(end(&events, 1).retractions, 0);
    assert!(first_ns(&events, 1) > end(&events, 0).at_ns);
}

#[test]
fn with_nothing_running_a_full_batch_is_tried_again_at_once() {
    // Admitted together, both would be charged with all they may still make; once the first runs, only a share.
    let config = EngineConfig { kv_tokens: 800, conservativeness: 0.1, ..a100() };
    let hopeful = |id| simworker_core::Submit { ignore_eos: false, ..request(id, &[(id, 100)], 400) };
    let events = run(config, &vec![submit(0, hopeful(0)), submit(0, hopeful(1))]);
    assert!(first_ns(&events, 1) > first_ns(&events, 0), "not in one batch");
    assert!(first_ns(&events, 1) < end(&events, 0).at_ns, "yet before the first leaves");
}

#[test]
fn waiting_requests_are_aborted_at_once_and_running_ones_with_their_next_token() {
    let config = EngineConfig { max_running: 1, ..a100() };
    let decode_ns = 400_000_000;
    let script = vec![
        submit(0, request(0, &[(1, 100)], 1000)),
        submit(1, request(1, &[(2, 100)], 1000)),
        (decode_ns, Act::Abort(RequestId(1))),
        (decode_ns + 1, Act::Abort(RequestId(0))),
        submit(LATER_NS, request(2, &[(1, 100)], 1)),
    ];
    let events = run(config, &script);
    let waiting = end(&events, 1);
    assert_eq!((waiting.at_ns, waiting.outputs), (decode_ns, 0));
    assert_eq!(waiting.reason, FinishReason::Abort { message: "Abort in waiting queue" });
    assert_eq!(waiting.queue_ns, decode_ns - 1);
    let running = end(&events, 0);
    assert!(matches!(running.reason, FinishReason::Abort { .. }));
    assert!(running.at_ns > decode_ns && running.at_ns < decode_ns + 12_000_000, "after its step");
    assert!(running.outputs > 1 && running.outputs < 1000);
    assert_eq!(end(&events, 2).cached, 99, "an abort leaves the KV in the cache");
}

#[test]
fn a_chunked_request_is_aborted_after_its_chunk() {
    let script = vec![
        submit(0, request(0, &[(1, 60_000)], 10)),
        (1, Act::Abort(RequestId(0))),
        submit(LATER_NS, request(1, &[(1, 60_000)], 1)),
    ];
    let events = run(a100(), &script);
    assert_eq!(end(&events, 0).outputs, 0);
    assert_eq!(end(&events, 1).cached, 8192);
}

#[test]
fn refusals_leave_no_trace() {
    let config = EngineConfig { context_len: 1000, max_queued: Some(1), ..a100() };
    let mut engine = Engine::new(config).unwrap();
    let mut events = Vec::new();
    let mut refused = |request| {
        let refusal = engine.submit(0, request, &mut events).unwrap_err();
        (refusal.status(), refusal.is_scheduler_abort(), engine.is_idle())
    };
    assert_eq!(refused(request(0, &[(1, 1000)], 1)), (400, false, true));
    assert_eq!(refused(request(0, &[(1, 900)], 101)), (400, false, true));
    assert_eq!(refused(request(0, &[(1, 994)], 1)), (400, true, true));
    assert_eq!(refused(request(0, &[], 1)), (400, false, true));
    engine.submit(0, request(0, &[(1, 10)], 5), &mut events).unwrap();
    assert_eq!(engine.submit(0, request(0, &[(1, 10)], 5), &mut events), Err(Refusal::DuplicateId));
    let full = engine.submit(0, request(1, &[(1, 10)], 5), &mut events).unwrap_err();
    assert_eq!((full.status(), full.to_string().as_str()), (503, "The request queue is full."));
    assert!(events.is_empty());
    engine.check().unwrap();
}

#[test]
fn a_flush_needs_an_idle_engine_and_empties_the_cache() {
    let mut engine = Engine::new(a100()).unwrap();
    let mut events = Vec::new();
    engine.submit(0, request(0, &[(1, 100)], 5), &mut events).unwrap();
    assert!(!engine.flush());
    engine.advance(10_000_000, &mut events);
    assert!(!engine.flush());
    engine.advance(LATER_NS, &mut events);
    assert_eq!(engine.loads().evictable_tokens, 104);
    assert!(engine.flush());
    assert_eq!(engine.loads().evictable_tokens, 0);
    assert_eq!(engine.totals().evicted_tokens, 0, "a flush is not an eviction");
}

#[test]
fn loads_have_sglangs_meanings() {
    let mut engine = Engine::new(EngineConfig { max_running: 1, ..a100() }).unwrap();
    let mut events = Vec::new();
    engine.submit(0, request(0, &[(1, 100)], 200), &mut events).unwrap();
    engine.submit(0, request(1, &[(2, 70)], 5), &mut events).unwrap();
    engine.advance(1, &mut events);
    let prefilling = engine.loads();
    assert_eq!((prefilling.running, prefilling.waiting), (0, 1), "in a prefill step it is in neither");
    assert_eq!((prefilling.used_tokens, prefilling.total_tokens), (100, 170));
    engine.advance(600_000_000, &mut events);
    let made = u64::from(engine.running().next().unwrap().1);
    let decoding = engine.loads();
    assert_eq!((decoding.running, decoding.waiting), (1, 1));
    assert_eq!(decoding.used_tokens, 100 + made, "the step in progress has taken its slot");
    assert!((decoding.token_usage - decoding.used_tokens as f64 / 444_500.0).abs() < 1e-12);
    assert!(
        (decoding.gen_throughput - 98.0).abs() < 3.0,
        "one token each 10.2 ms: {}",
        decoding.gen_throughput
    );
    assert_eq!(decoding.waiting_uncached_tokens, 70, "nothing was found lately");
    let moments = decoding.decode_moments.unwrap();
    assert_eq!(
        (moments.steps, moments.batch),
        (made - 2, made - 2),
        "the step next to the prefill is left out"
    );
    engine.advance(60 * LATER_NS, &mut events);
    let idle = engine.loads();
    assert_eq!((idle.used_tokens, idle.total_tokens, idle.evictable_tokens), (0, 0, 299 + 74));
}
