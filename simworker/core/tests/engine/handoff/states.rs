//! An abort finds a request in every state, and nothing is left of it.

use simworker_core::{Engine, EngineConfig, EngineRole, Event, FinishReason, HandoffConfig, Pace, RequestId};

use super::world::{config, lone, with_link};
use crate::support::end;

const LATER_NS: u64 = 200_000_000_000;

/// The request that is aborted, and what its end must look like.
struct Expected {
    /// Whether the end comes at once.
    at_once: bool,
    message: &'static str,
    outputs: u32,
}

fn abort(engine: &mut Engine, at_ns: u64, events: &mut Vec<Event>, expected: &Expected) {
    engine.check().unwrap();
    assert!(engine.abort(at_ns, RequestId(0), events));
    engine.check().unwrap();
    let ended = |events: &[Event]| events.iter().any(|e| matches!(e, Event::Finish { id, .. } if id.0 == 0));
    assert_eq!(ended(events), expected.at_once);
    engine.advance(LATER_NS, events);
    engine.check().unwrap();
    let end = end(events, 0);
    assert_eq!(end.reason, FinishReason::Abort { message: expected.message });
    assert_eq!(end.outputs, expected.outputs);
    assert!(!engine.abort(LATER_NS, RequestId(0), events), "it is gone");
    assert!(engine.is_idle());
    assert_eq!(engine.loads().used_tokens, 0);
    let totals = engine.totals();
    assert_eq!((totals.bootstrap_failed_requests, totals.transfer_failed_requests), (0, 0));
}

const BETWEEN: Expected = Expected { at_once: true, message: "Aborted by AbortReq.", outputs: 0 };
const WAITING: Expected = Expected { at_once: true, message: "Abort in waiting queue", outputs: 0 };
const COMPUTED: Expected = Expected { at_once: false, message: "Aborted", outputs: 0 };

/// An engine on whose link setting up takes a second.
fn prefill() -> (Engine, Vec<Event>) {
    (Engine::new(with_link(EngineRole::Prefill, 1_000_000_000, 1)).unwrap(), Vec::new())
}

#[test]
fn while_it_waits_for_the_decode_side() {
    let (mut engine, mut events) = prefill();
    engine.submit(0, lone(0, 100, 5), &mut events).unwrap();
    engine.advance(10, &mut events);
    abort(&mut engine, 20, &mut events, &BETWEEN);
}

#[test]
fn while_it_waits_for_its_prefill() {
    let (mut engine, mut events) = prefill();
    for (at_ns, id) in [(0, 1), (10, 0)] {
        engine.submit(at_ns, lone(id, 100, 5), &mut events).unwrap();
        engine.kv_wanted(at_ns, RequestId(id), &mut events);
        engine.advance(at_ns, &mut events);
    }
    engine.submit(11, lone(2, 100, 5), &mut events).unwrap();
    engine.kv_wanted(11, RequestId(2), &mut events);
    abort(&mut engine, 20, &mut events, &WAITING);
    assert_eq!(end(&events, 2).reason, FinishReason::Length, "others go on");
}

#[test]
fn while_it_is_prefilled() {
    for prompt in [100, 20_000] {
        let (mut engine, mut events) = prefill();
        engine.submit(0, lone(0, prompt, 5), &mut events).unwrap();
        engine.kv_wanted(0, RequestId(0), &mut events);
        engine.advance(10, &mut events);
        // A whole prompt has its token with the result, a part of one has none.
        let outputs = u32::from(prompt == 100);
        abort(&mut engine, 20, &mut events, &Expected { outputs, ..COMPUTED });
        assert_eq!(engine.totals().prefill_steps, 1);
        assert!(!events.iter().any(|event| matches!(event, Event::KvSent { .. })));
    }
}

#[test]
fn while_its_kv_is_on_its_way() {
    for prompt in [100, 20_000] {
        let (mut engine, mut events) = prefill();
        engine.submit(0, lone(0, prompt, 5), &mut events).unwrap();
        engine.kv_wanted(0, RequestId(0), &mut events);
        while engine.loads().handoff.inflight == 0 {
            let due_ns = engine.next_deadline().unwrap();
            engine.advance(due_ns, &mut events);
        }
        let now_ns = match events.last() {
            Some(Event::FirstToken { at_ns, .. }) => *at_ns,
            other => panic!("{other:?}"),
        };
        abort(&mut engine, now_ns + 1, &mut events, &Expected { outputs: 1, ..BETWEEN });
        assert!(!events.iter().any(|event| matches!(event, Event::KvSent { .. })));
        assert_eq!(engine.loads().evictable_tokens, u64::from(prompt), "what is computed stays in the cache");
    }
}

fn decode(kv_tokens: u64) -> (Engine, Vec<Event>) {
    let base = config(EngineRole::Decode);
    let handoff = HandoffConfig { num_reserved_decode_tokens: 20, ..base.handoff };
    (Engine::new(EngineConfig { kv_tokens, handoff, ..base }).unwrap(), Vec::new())
}

/// A request gets its KV and runs.
fn run(engine: &mut Engine, at_ns: u64, id: u64, prompt: u32, max_new: u32, events: &mut Vec<Event>) {
    engine.submit(at_ns, lone(id, prompt, max_new), events).unwrap();
    engine.advance(at_ns, events);
    if !engine.kv_arrived(at_ns, RequestId(id), 0, events) {
        // It came during a step.
        engine.advance(at_ns + 100_000_000, events);
        assert!(engine.kv_arrived(at_ns + 100_000_000, RequestId(id), 0, events));
    }
    engine.advance(at_ns + 200_000_000, events);
}

#[test]
fn while_it_waits_for_slots() {
    let (mut engine, mut events) = decode(1_000);
    run(&mut engine, 0, 1, 500, 100, &mut events);
    engine.submit(300_000_000, lone(0, 900, 5), &mut events).unwrap();
    engine.advance(350_000_000, &mut events);
    assert_eq!(engine.loads().handoff.prealloc, 1);
    abort(&mut engine, 350_000_001, &mut events, &BETWEEN);
    assert_eq!(end(&events, 1).outputs, 100, "others go on");
}

#[test]
fn while_its_kv_comes() {
    let (mut engine, mut events) = decode(1_000);
    engine.submit(0, lone(0, 900, 5), &mut events).unwrap();
    engine.submit(0, lone(1, 500, 5), &mut events).unwrap();
    engine.advance(0, &mut events);
    let loads = engine.loads().handoff;
    assert_eq!((loads.transfer, loads.prealloc), (1, 1));
    assert!(engine.abort(10, RequestId(0), &mut events));
    engine.advance(10, &mut events);
    assert_eq!(engine.loads().handoff.transfer, 1, "the next one gets its slots at once");
    assert!(engine.kv_arrived(20, RequestId(1), 0, &mut events));
    engine.advance(LATER_NS, &mut events);
    assert_eq!(end(&events, 0).reason, FinishReason::Abort { message: BETWEEN.message });
    assert_eq!(end(&events, 1).outputs, 5);
    assert_eq!(engine.loads().used_tokens, 0);
}

#[test]
fn while_it_has_its_kv_and_has_not_joined() {
    let (mut engine, mut events) = decode(2_000);
    engine.submit(0, lone(0, 200, 5), &mut events).unwrap();
    run(&mut engine, 0, 1, 500, 100, &mut events);
    assert!(engine.kv_arrived(300_000_000, RequestId(0), 0, &mut events));
    assert_eq!(engine.loads().handoff.ready, 1);
    abort(&mut engine, 300_000_000, &mut events, &WAITING);
}

#[test]
fn while_it_runs() {
    let (mut engine, mut events) = decode(2_000);
    run(&mut engine, 0, 0, 500, 1_000, &mut events);
    let made = engine.running().next().unwrap().1;
    abort(&mut engine, 200_000_001, &mut events, &Expected { outputs: made + 1, ..COMPUTED });
}

#[test]
fn while_it_is_on_the_host() {
    let base = config(EngineRole::Decode);
    let handoff = HandoffConfig { num_reserved_decode_tokens: 20, ..base.handoff };
    let config = EngineConfig { kv_tokens: 1_000, pace: Pace::Step, handoff, ..base };
    let (mut engine, mut events) = (Engine::new(config).unwrap(), Vec::new());
    for (at_ns, id) in [(0, 1), (300_000_000, 2), (600_000_000, 0)] {
        run(&mut engine, at_ns, id, 250, 300, &mut events);
    }
    let (mut made, mut now_ns) = (0, 0);
    while engine.loads().handoff.retracted == 0 {
        made = engine.running().find(|(id, _)| id.0 == 0).unwrap().1;
        now_ns = engine.next_deadline().unwrap();
        engine.advance(now_ns, &mut events);
    }
    let loads = engine.loads();
    assert_eq!((loads.running, loads.waiting), (2, 1));
    // The step after which it was retracted had made one more.
    abort(&mut engine, now_ns, &mut events, &Expected { outputs: made + 1, ..WAITING });
    assert_eq!((end(&events, 1).outputs, end(&events, 2).outputs), (300, 300));
}
