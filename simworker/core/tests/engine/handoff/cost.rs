//! What waits costs nothing: work is in proportion to events.

use simworker_core::{Engine, EngineConfig, EngineRole, RequestId};

use super::world::{Act, Leg, World, config, lone, wanted, with_link};

#[test]
fn a_queue_that_cannot_move_makes_no_deadlines() {
    let mut engine = Engine::new(EngineConfig { kv_tokens: 20_000, ..config(EngineRole::Decode) }).unwrap();
    let mut events = Vec::new();
    for id in 0..2_000 {
        engine.submit(0, lone(id, 1_000, 4_000), &mut events).unwrap();
    }
    engine.advance(0, &mut events);
    let served = wanted(&events);
    for (id, _) in &served {
        assert!(engine.kv_arrived(0, RequestId(*id), 0, &mut events));
    }
    let mut calls = 0;
    while engine.totals().finished_requests == 0 {
        engine.advance(engine.next_deadline().unwrap(), &mut events);
        calls += 1;
    }
    let steps = engine.totals().decode_steps;
    assert!(
        steps > 3_000 && calls < steps / 20,
        "{calls} calls for {steps} steps of {} requests",
        served.len()
    );
}

#[test]
fn thousands_wait_for_slots_for_kv_and_for_the_link() {
    let many = 5_000;
    let prefill = with_link(EngineRole::Prefill, 1_000, 1_000_000);
    let decode = EngineConfig { kv_tokens: 10_000_000, max_running: 10_000, ..config(EngineRole::Decode) };
    let prefill = EngineConfig { kv_tokens: 10_000_000, max_running: 10_000, ..prefill };
    let mut world = World::new(prefill, decode);
    world.check_every = 1_000;
    for id in 0..many {
        world.both(id, lone(id, 10, 20));
    }
    for id in 0..many / 2 {
        world.at(5_000_000_000 + id, Leg::Decode, Act::Abort(2 * id));
        world.at(5_000_000_000 + id, Leg::Prefill, Act::Abort(2 * id));
    }
    world.run_until(5_000_000_000);
    let (sender, receiver) = (world.loads(Leg::Prefill).handoff, world.loads(Leg::Decode).handoff);
    assert!(sender.inflight > 4_000 && receiver.transfer > 4_000, "{sender:?} {receiver:?}");
    world.run();
    let (sender, receiver) = (&world.totals(Leg::Prefill)[0], &world.totals(Leg::Decode)[0]);
    assert_eq!((sender.finished_requests, receiver.finished_requests), (many, many));
    assert!(sender.aborted_requests <= many / 2 && receiver.aborted_requests > many / 3);
}
