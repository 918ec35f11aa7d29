//! How much KV a decode engine promises.

use simworker_core::{Engine, EngineConfig, EngineRole, Event, HandoffConfig, RequestId, Submit};

use super::world::{config, lone, wanted};

fn decode(kv_tokens: u64) -> EngineConfig {
    EngineConfig { kv_tokens, ..config(EngineRole::Decode) }
}

/// Which of these requests, given to a new engine at once, get slots at once.
fn served(config: EngineConfig, submits: &[Submit]) -> Vec<u64> {
    let mut engine = Engine::new(config).unwrap();
    let mut events = Vec::new();
    for submit in submits {
        engine.submit(0, submit.clone(), &mut events).unwrap();
    }
    engine.advance(0, &mut events);
    engine.check().unwrap();
    wanted(&events).into_iter().map(|(id, _)| id).collect()
}

#[test]
fn every_prompt_is_given_with_its_reserve() {
    let three = |last| [lone(0, 3000, 10), lone(1, 3000, 10), lone(2, last, 10)];
    // 10,000 − 2 · (3000 + 512) leaves 2976, of which 512 are for the third itself.
    assert_eq!(served(decode(10_000), &three(2464)), [0, 1, 2]);
    assert_eq!(served(decode(10_000), &three(2465)), [0, 1]);
    let handoff = HandoffConfig { num_reserved_decode_tokens: 100, ..decode(1).handoff };
    let bold = EngineConfig { handoff, ..decode(10_000) };
    assert_eq!(served(bold.clone(), &three(3700)), [0, 1, 2]);
    assert_eq!(served(bold, &three(3701)), [0, 1]);
}

#[test]
fn prompts_take_whole_pages() {
    let paged = EngineConfig { page_size: 16, ..decode(10_000) };
    let three = |last| [lone(0, 3001, 10), lone(1, 3001, 10), lone(2, last, 10)];
    // 10,000 − 2 · (3008 + 512) − 512 leaves 2448, which is 153 pages.
    assert_eq!(served(paged.clone(), &three(2448)), [0, 1, 2]);
    assert_eq!(served(paged, &three(2449)), [0, 1]);
}

#[test]
fn the_whole_of_prompt_and_reply_must_fit_beside_what_cannot_be_retracted() {
    // The first is on its way, so that nothing can be retracted: 6000 − 1000 − 512 are left.
    let two = |max_new| [lone(0, 1000, 10), lone(1, 500, max_new)];
    assert_eq!(served(decode(6_000), &two(3988)), [0, 1]);
    assert_eq!(served(decode(6_000), &two(3989)), [0]);
    // Of a reply, 4096 tokens count.
    let long = [lone(0, 1000, 10), lone(1, 300, 5000)];
    assert_eq!(served(decode(1000 + 512 + 4396), &long), [0, 1]);
    assert_eq!(served(decode(1000 + 512 + 4395), &long), [0]);
}

#[test]
fn a_running_request_must_be_able_to_end_alone() {
    let second = |prompt| {
        let mut engine = Engine::new(decode(6_000)).unwrap();
        let mut events = Vec::new();
        engine.submit(0, lone(0, 1000, 4000), &mut events).unwrap();
        engine.advance(0, &mut events);
        assert!(engine.kv_arrived(1, RequestId(0), 0, &mut events));
        engine.advance(2_000_000_000, &mut events);
        // With n tokens of KV, 6000 − n are free, and n + 1 of the 5000 that it will have are there.
        engine.submit(2_000_000_000, lone(1, prompt, 10), &mut events).unwrap();
        engine.advance(2_100_000_000, &mut events);
        engine.check().unwrap();
        wanted(&events).len() == 2
    };
    assert!(second(1001 - 512));
    assert!(!second(1001 - 512 + 1));
}

#[test]
fn a_prompt_that_leaves_no_room_for_a_reserve_is_served_alone() {
    let big = [lone(0, 5900, 10), lone(1, 10, 10)];
    assert_eq!(served(decode(6_000), &big), [0]);
}

#[test]
fn few_running_requests_have_extra_slots_for_those_on_their_way() {
    let many: Vec<Submit> = (0..200).map(|id| lone(id, 10, 10)).collect();
    let most = |max_running| served(EngineConfig { max_running, ..config(EngineRole::Decode) }, &many).len();
    assert_eq!((most(1), most(32), most(33), most(150)), (3, 96, 33, 150));
}

#[test]
fn loads_tell_where_requests_wait_and_what_has_not_arrived() {
    let mut engine = Engine::new(decode(10_000)).unwrap();
    let mut events = Vec::new();
    for (id, prompt) in [(0, 1000), (1, 3000), (2, 3000), (3, 4000), (4, 70)] {
        engine.submit(0, lone(id, prompt, 300), &mut events).unwrap();
    }
    engine.advance(0, &mut events);
    assert!(engine.kv_arrived(5, RequestId(0), 0, &mut events));
    engine.advance(5, &mut events);
    assert!(engine.kv_arrived(6, RequestId(1), 0, &mut events));
    let loads = engine.loads();
    let queues = loads.handoff;
    assert_eq!((queues.prealloc, queues.transfer, queues.ready, queues.retracted), (2, 1, 1, 0));
    assert_eq!((loads.running, loads.waiting, queues.ready_tokens), (1, 4, 3000));
    // The step in progress has taken a slot.
    assert_eq!((loads.used_tokens, loads.total_tokens), (7001, 7001 + 4070));
    assert_eq!(loads.active_tokens, 7001 + 4070 - 3000);
    assert!((queues.pending_usage - 0.407).abs() < 1e-12);
    assert!(events.iter().all(|event| !matches!(event, Event::Finish { .. })));
}

#[test]
fn a_cache_on_the_decode_side_is_an_option() {
    let again = |decode_radix_cache| {
        let handoff = HandoffConfig { decode_radix_cache, ..decode(1).handoff };
        let mut engine = Engine::new(EngineConfig { handoff, ..decode(10_000) }).unwrap();
        let mut events = Vec::new();
        for at_ns in [0, 1_000_000_000] {
            engine.submit(at_ns, lone(0, 1000, 10), &mut events).unwrap();
            engine.advance(at_ns, &mut events);
            assert!(engine.kv_arrived(at_ns, RequestId(0), 0, &mut events));
            engine.advance(at_ns + 900_000_000, &mut events);
            assert!(engine.is_idle());
            engine.check().unwrap();
        }
        let lacking = events.iter().filter_map(|event| match event {
            Event::KvWanted { tokens, .. } => Some(*tokens),
            _ => None,
        });
        (lacking.collect::<Vec<_>>(), engine.loads().evictable_tokens)
    };
    assert_eq!(again(false), (vec![1000, 1000], 0));
    assert_eq!(again(true), (vec![1000, 1], 1009));
}
