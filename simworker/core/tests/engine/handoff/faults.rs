//! What goes wrong between two engines: rooms, timeouts, failures.

use simworker_core::{
    Engine, EngineConfig, EngineRole, Event, FinishReason, HandoffFault, Refusal, RequestId, Submit,
};

use super::world::{config, in_room, lone, with_link};
use crate::support::{a100, end, request};

const TIMEOUT_NS: u64 = 300_000_000_000;

fn engine(role: EngineRole) -> (Engine, Vec<Event>) {
    (Engine::new(config(role)).unwrap(), Vec::new())
}

/// The status and the text that a request ended with.
fn error(events: &[Event], id: u64) -> (u16, &'static str) {
    match end(events, id).reason {
        FinishReason::Error { status, message } => (status, message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_without_a_room_is_refused_where_there_is_a_hand_off() {
    for role in [EngineRole::Prefill, EngineRole::Decode] {
        let (mut engine, mut events) = engine(role);
        let refusal = engine.submit(0, request(1, &[(1, 10)], 5), &mut events).unwrap_err();
        assert_eq!((refusal.status(), &refusal), (400, &Refusal::NoRoom));
        assert_eq!(refusal.to_string(), "Disaggregated request received without bootstrap room id.");
        assert!(engine.is_idle() && events.is_empty());
    }
    let (mut whole, mut events) = engine(EngineRole::Whole);
    for id in [1, 2] {
        let submit = Submit { room: Some(7), ..request(id, &[(id, 10)], 5) };
        whole.submit(0, submit, &mut events).unwrap();
    }
    whole.advance(TIMEOUT_NS, &mut events);
    assert_eq!((end(&events, 1).outputs, end(&events, 2).outputs), (5, 5), "elsewhere it means nothing");
}

#[test]
fn a_prefill_engine_waits_300_s_for_the_decode_side() {
    let (mut prefill, mut events) = engine(EngineRole::Prefill);
    prefill.submit(5, lone(1, 100, 5), &mut events).unwrap();
    prefill.submit(6, lone(2, 100, 5), &mut events).unwrap();
    prefill.advance(6, &mut events);
    assert_eq!(prefill.next_deadline(), Some(5 + TIMEOUT_NS));
    assert!(!prefill.kv_wanted(5 + TIMEOUT_NS, RequestId(1), &mut events), "at that moment it has gone");
    assert!(prefill.kv_wanted(5 + TIMEOUT_NS, RequestId(2), &mut events));
    assert_eq!(end(&events, 1).at_ns, 5 + TIMEOUT_NS);
    let (status, message) = error(&events, 1);
    assert_eq!(status, 500);
    assert!(message.starts_with("Prefill bootstrap failed") && message.contains("timed out"), "{message}");
    let totals = prefill.totals();
    assert_eq!((totals.bootstrap_failed_requests, totals.transfer_failed_requests), (1, 0));
    prefill.advance(2 * TIMEOUT_NS, &mut events);
    assert_eq!(end(&events, 2).reason, FinishReason::Length, "the clock has stopped");
}

#[test]
fn a_decode_engine_waits_300_s_for_kv() {
    let (mut decode, mut events) = engine(EngineRole::Decode);
    decode.submit(7, lone(1, 100, 5), &mut events).unwrap();
    decode.submit(8, lone(2, 100, 5), &mut events).unwrap();
    decode.advance(8, &mut events);
    assert_eq!(decode.next_deadline(), Some(7 + TIMEOUT_NS));
    assert!(!decode.kv_arrived(7 + TIMEOUT_NS, RequestId(1), 0, &mut events), "at that moment it has gone");
    assert!(decode.kv_arrived(7 + TIMEOUT_NS, RequestId(2), 0, &mut events));
    assert_eq!(end(&events, 1).at_ns, 7 + TIMEOUT_NS);
    let (status, message) = error(&events, 1);
    assert_eq!(status, 500);
    assert!(message.starts_with("Decode transfer failed") && message.contains("timed out"), "{message}");
    let totals = decode.totals();
    assert_eq!((totals.bootstrap_failed_requests, totals.transfer_failed_requests), (0, 1));
    decode.advance(2 * TIMEOUT_NS, &mut events);
    assert_eq!(end(&events, 2).reason, FinishReason::Length);
    assert_eq!(decode.loads().used_tokens, 0);
}

#[test]
fn kv_that_is_freed_by_a_timeout_goes_to_the_next() {
    let config = EngineConfig { kv_tokens: 2_000, ..config(EngineRole::Decode) };
    let mut decode = Engine::new(config).unwrap();
    let mut events = Vec::new();
    decode.submit(0, lone(1, 1_500, 5), &mut events).unwrap();
    decode.submit(0, lone(2, 1_500, 5), &mut events).unwrap();
    decode.advance(TIMEOUT_NS, &mut events);
    let wanted = |event: &Event| matches!(event, Event::KvWanted { id, at_ns: TIMEOUT_NS, .. } if id.0 == 2);
    assert!(events.iter().any(wanted), "{events:?}");
}

#[test]
fn a_failure_says_at_which_stage_and_why() {
    use EngineRole::{Decode, Prefill};
    use HandoffFault::{PeerLost, Transfer, Unreached};
    let cases = [
        (Prefill, false, Transfer, "Prefill bootstrap failed", (1, 0)),
        (Prefill, false, PeerLost, "Prefill bootstrap failed", (1, 0)),
        (Prefill, true, Transfer, "Prefill transfer failed", (0, 1)),
        (Prefill, true, PeerLost, "Prefill transfer failed", (0, 1)),
        (Decode, false, Transfer, "Decode handshake failed", (1, 0)),
        (Decode, false, PeerLost, "Decode handshake failed", (1, 0)),
        (Decode, true, Transfer, "Decode transfer failed", (0, 1)),
        (Decode, true, PeerLost, "Decode transfer failed", (0, 1)),
        (Decode, false, Unreached, "Decode handshake failed", (1, 0)),
        (Decode, true, Unreached, "Decode handshake failed", (1, 0)),
    ];
    for (role, begun, fault, stage, counted) in cases {
        let mut engine = Engine::new(with_link(role, 1_000_000_000, 1)).unwrap();
        let mut events = Vec::new();
        engine.submit(0, lone(1, 100, 5), &mut events).unwrap();
        if begun {
            engine.kv_wanted(0, RequestId(1), &mut events);
            engine.advance(900_000_000, &mut events);
        }
        let at_ns = if begun { 950_000_000 } else { 0 };
        assert!(engine.handoff_failed(at_ns, RequestId(1), fault, &mut events));
        let (status, message) = error(&events, 1);
        assert_eq!(status, 500);
        assert!(message.starts_with(stage) && message.contains("KVTransferError"), "{message}");
        assert_eq!(message.contains("Lost connection"), fault == PeerLost, "{message}");
        let totals = engine.totals();
        assert_eq!((totals.bootstrap_failed_requests, totals.transfer_failed_requests), counted, "{message}");
        assert!(!engine.handoff_failed(960_000_000, RequestId(1), fault, &mut events), "it has ended");
        engine.check().unwrap();
        assert!(engine.is_idle() && engine.loads().used_tokens == 0);
    }
}

#[test]
fn a_failure_during_the_prefill_ends_it_with_the_result() {
    let (mut prefill, mut events) = engine(EngineRole::Prefill);
    prefill.submit(0, lone(1, 20_000, 5), &mut events).unwrap();
    prefill.kv_wanted(0, RequestId(1), &mut events);
    prefill.advance(1, &mut events);
    assert!(prefill.handoff_failed(2, RequestId(1), HandoffFault::Transfer, &mut events));
    assert!(!prefill.handoff_failed(3, RequestId(1), HandoffFault::Transfer, &mut events), "once is enough");
    prefill.advance(TIMEOUT_NS, &mut events);
    assert_eq!(error(&events, 1).0, 500);
    assert_eq!(end(&events, 1).outputs, 0, "the second chunk is not computed");
    assert_eq!((prefill.totals().prefill_steps, prefill.totals().transfer_failed_requests), (1, 1));
}

#[test]
fn what_a_decode_engine_has_got_cannot_fail_any_more() {
    let (mut decode, mut events) = engine(EngineRole::Decode);
    decode.submit(0, lone(1, 100, 50), &mut events).unwrap();
    decode.advance(0, &mut events);
    assert!(decode.kv_arrived(1, RequestId(1), 0, &mut events));
    assert!(!decode.handoff_failed(1, RequestId(1), HandoffFault::PeerLost, &mut events));
    decode.advance(2, &mut events);
    assert!(!decode.handoff_failed(3, RequestId(1), HandoffFault::PeerLost, &mut events));
    decode.advance(TIMEOUT_NS, &mut events);
    assert_eq!(end(&events, 1).reason, FinishReason::Length);
}

#[test]
fn queues_have_no_limit_where_a_part_waits_for_another_engine() {
    for role in [EngineRole::Prefill, EngineRole::Decode] {
        let mut engine = Engine::new(EngineConfig { max_queued: Some(1), ..config(role) }).unwrap();
        let mut events = Vec::new();
        for id in 0..10 {
            engine.submit(0, lone(id, 100, 5), &mut events).unwrap();
        }
    }
    let config = EngineConfig { context_len: 1_000, ..a100() };
    for role in EngineRole::ALL {
        let mut engine = Engine::new(EngineConfig { role, ..config.clone() }).unwrap();
        let long = in_room(request(1, &[(1, 994)], 1));
        let refusal = engine.submit(0, long, &mut Vec::new()).unwrap_err();
        assert_eq!(refusal.status(), 400, "too long for one is too long for all");
    }
}
