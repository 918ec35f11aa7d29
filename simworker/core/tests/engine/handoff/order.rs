//! Who comes first on a decode engine.

use simworker_core::{Engine, EngineConfig, EngineRole, Event, FinishReason, HandoffConfig, RequestId};

use super::world::{config, lone, wanted};
use crate::support::{end, tokens};

#[test]
fn a_prompt_that_does_not_fit_holds_up_all_behind_it() {
    let mut engine = Engine::new(EngineConfig { kv_tokens: 10_000, ..config(EngineRole::Decode) }).unwrap();
    let mut events = Vec::new();
    for (id, prompt) in [(0, 6000), (1, 7000), (2, 10)] {
        engine.submit(0, lone(id, prompt, 30), &mut events).unwrap();
    }
    engine.advance(0, &mut events);
    assert_eq!(wanted(&events), [(0, 0)], "the third would fit");
    assert!(engine.kv_arrived(1, RequestId(0), 0, &mut events));
    engine.advance(10_000_000_000, &mut events);
    let freed = end(&events, 0).at_ns;
    assert_eq!(wanted(&events), [(0, 0), (1, freed), (2, freed)]);
    let loads = engine.loads().handoff;
    assert_eq!((loads.prealloc, loads.transfer), (0, 2));
}

#[test]
fn who_has_its_kv_first_runs_first() {
    let mut engine = Engine::new(EngineConfig { max_running: 1, ..config(EngineRole::Decode) }).unwrap();
    let mut events = Vec::new();
    for id in 0..3 {
        engine.submit(0, lone(id, 100, 20), &mut events).unwrap();
    }
    engine.advance(0, &mut events);
    for (at_ns, id) in [(10, 2), (20, 0), (30, 1)] {
        assert!(engine.kv_arrived(at_ns, RequestId(id), 0, &mut events));
        assert!(!engine.kv_arrived(at_ns, RequestId(id), 0, &mut events), "KV comes once");
    }
    engine.advance(10_000_000_000, &mut events);
    let ends = [2, 0, 1].map(|id| end(&events, id).at_ns);
    assert!(ends.is_sorted(), "{ends:?}");
}

/// An engine in which replies are longer than the reserve: a batch that has outgrown its KV.
fn crowded(overlap: bool) -> (Engine, Vec<Event>) {
    let base = config(EngineRole::Decode);
    let handoff = HandoffConfig { num_reserved_decode_tokens: 20, ..base.handoff };
    let mut engine = Engine::new(EngineConfig { kv_tokens: 1_000, handoff, overlap, ..base }).unwrap();
    let mut events = Vec::new();
    for id in 0..8 {
        engine.submit(0, lone(id, 90 + id as u32, 300), &mut events).unwrap();
    }
    engine.advance(0, &mut events);
    (engine, events)
}

/// Gives KV as soon as it is wanted, until all have ended; `after_each` sees every call.
fn go_on(
    engine: &mut Engine,
    events: &mut Vec<Event>,
    mut after_each: impl FnMut(&mut Engine, &mut Vec<Event>, u64),
) {
    let mut given = 0;
    loop {
        for (id, at_ns) in wanted(events).split_off(given) {
            given += 1;
            assert!(engine.kv_arrived(at_ns, RequestId(id), 0, events));
        }
        let Some(due_ns) = engine.next_deadline() else { return };
        engine.advance(due_ns, events);
        engine.check().unwrap();
        after_each(engine, events, due_ns);
    }
}

#[test]
fn retracted_requests_come_back_before_anybody_new_gets_slots() {
    for overlap in [false, true] {
        let (mut engine, mut events) = crowded(overlap);
        let (mut small, mut served, mut blocked) = (false, false, 0);
        go_on(&mut engine, &mut events, |engine, events, now_ns| {
            let on_host = engine.loads().handoff.retracted;
            if on_host > 0 && !small {
                small = true;
                engine.submit(now_ns, lone(99, 1, 2), events).unwrap();
            }
            let now_served = wanted(events).iter().any(|(id, _)| *id == 99);
            if now_served && !std::mem::replace(&mut served, now_served) {
                assert_eq!(on_host, 0);
            }
            blocked += u64::from(small && !served);
        });
        assert!(blocked > 1, "it waited although it takes next to nothing");
        let totals = engine.totals();
        assert!(engine.is_idle() && totals.retractions > 0);
        assert_eq!((totals.prefill_steps, totals.finished_requests, totals.aborted_requests), (0, 9, 0));
    }
}

#[test]
fn a_retracted_request_goes_on_where_it_was() {
    let (mut engine, mut events) = crowded(false);
    go_on(&mut engine, &mut events, |_, _, _| {});
    let firsts = events.iter().filter(|event| matches!(event, Event::FirstToken { .. })).count();
    assert_eq!((firsts, tokens(&events)), (8, 8 * 300), "no token is told twice");
    let ends: Vec<_> = (0..8).map(|id| end(&events, id)).collect();
    assert!(ends.iter().all(|end| end.reason == FinishReason::Length && end.outputs == 300));
    assert!(ends.iter().any(|end| end.retractions > 0));
}
