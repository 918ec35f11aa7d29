//! When things happen: closed forms.

use simworker_core::cost::{CostModel, PrefillWork};
use simworker_core::time::Ticks;
use simworker_core::{EngineConfig, EngineRole, Event, FinishReason, link};

use super::world::{Act, Leg, World, config, in_room, lone, sent_ns, with_link};
use crate::support::{a100, end, first_ns, request};

const SETUP_NS: u64 = 1_000_000;

fn prefill(cost: &CostModel, parts: &[(u64, u64)]) -> Ticks {
    let mut work = PrefillWork::default();
    for (new, cached) in parts {
        work.add(*new, *cached);
    }
    cost.prefill(work)
}

/// A world on whose link a token takes `token_ns`.
fn world(token_ns: u32) -> World {
    World::new(
        with_link(EngineRole::Prefill, SETUP_NS, token_ns),
        with_link(EngineRole::Decode, SETUP_NS, token_ns),
    )
}

#[test]
fn a_lone_request_takes_prefill_then_transfer_then_decode() {
    let cost = a100().cost;
    let mut world = world(3);
    world.both(1_000, lone(1, 700, 100));
    world.run();
    let computed = (Ticks::from_ns(1_000) + prefill(&cost, &[(700, 0)])).ns();
    let arrived = computed + SETUP_NS + 700 * 3;
    let (sender, receiver) = (&world.prefill_events, &world.decode_events);
    assert_eq!(first_ns(sender, 1), computed);
    assert_eq!(sent_ns(sender, 1), arrived);
    let sent = end(sender, 1);
    assert_eq!((sent.at_ns, sent.reason, sent.outputs), (arrived, FinishReason::Length, 1));
    assert_eq!(first_ns(receiver, 1), arrived, "joining takes no forward pass");
    // The first decode step attends to the prompt and the token that came with the KV.
    let last = (1..100).fold(Ticks::from_ns(arrived), |at, k| at + cost.decode(1, 700 + k));
    let done = end(receiver, 1);
    assert_eq!((done.at_ns, done.outputs, done.queue_ns), (last.ns(), 100, arrived - 1_000));
    assert_eq!(receiver.len(), 1 + 1 + 99 + 1, "the slots, the first token, the others, the end");
    assert_eq!(world.totals(Leg::Decode)[0].prefill_steps, 0);
}

#[test]
fn a_named_link_carries_the_kv_of_the_preset() {
    let mut config = config(EngineRole::Prefill);
    config.handoff.link = link("roce-200g").unwrap();
    let mut world = World::new(config, super::world::config(EngineRole::Decode));
    world.both(0, lone(1, 2048, 1));
    world.run();
    let computed = prefill(&a100().cost, &[(2048, 0)]).ns();
    let bytes = 131_072.0 * 2048.0;
    let expected = computed as f64 + 1e6 + bytes / 20e9 * 1e9;
    assert!((sent_ns(&world.prefill_events, 1) as f64 - expected).abs() < 2.0);
    assert_eq!(
        end(&world.decode_events, 1).at_ns,
        sent_ns(&world.prefill_events, 1),
        "one token needs no step"
    );
    let loads = world.loads(Leg::Prefill).handoff;
    assert!((loads.transfer_ms - (1.0 + bytes / 20e6)).abs() < 1e-3, "{loads:?}");
    let gib_s = bytes / f64::from(1 << 30) / (0.001 + bytes / 20e9);
    assert!((loads.transfer_gb_s - gib_s).abs() < 1e-3, "{loads:?}");
}

#[test]
fn only_the_last_chunk_of_a_long_prompt_is_exposed() {
    let cost = a100().cost;
    let parts = [(8192, 0), (8192, 8192), (3616, 16_384)];
    let ends: Vec<u64> = (1..=3)
        .map(|n| parts[..n].iter().fold(Ticks::ZERO, |at, part| at + prefill(&cost, &[*part])).ns())
        .collect();
    let mut fast = world(10);
    fast.both(0, lone(1, 20_000, 2));
    fast.run();
    assert_eq!(first_ns(&fast.prefill_events, 1), ends[2]);
    assert_eq!(sent_ns(&fast.prefill_events, 1), ends[2] + 3616 * 10);
    // A link that is slower than the GPU is never idle from the first chunk on.
    let mut slow = world(200_000);
    slow.both(0, lone(1, 20_000, 2));
    slow.run();
    let expected = ends[0] + SETUP_NS + 20_000 * 200_000;
    assert!(sent_ns(&slow.prefill_events, 1).abs_diff(expected) < 2);
}

#[test]
fn what_is_cached_is_sent_while_the_rest_is_computed() {
    let cost = a100().cost;
    let mut world = world(1_000);
    world.both(0, in_room(request(1, &[(1, 4000)], 2)));
    let later = 1_000_000_000;
    world.both(later, in_room(request(2, &[(1, 3000), (2, 1000)], 2)));
    world.run();
    let computed = (Ticks::from_ns(later) + prefill(&cost, &[(1000, 3000)])).ns();
    assert!(computed > later + SETUP_NS + 3000 * 1_000, "the cached part is through by then");
    assert_eq!(sent_ns(&world.prefill_events, 2), computed + 1000 * 1_000);
    assert_eq!(end(&world.prefill_events, 2).cached, 3000, "KV that was sent stays in the cache");
    let told = world
        .decode_events
        .iter()
        .any(|event| matches!(event, Event::FirstToken { id, cached_tokens: 3000, .. } if id.0 == 2));
    assert!(told, "the decode side reports what the prefill side found");
    assert_eq!(end(&world.decode_events, 2).cached, 3000);
}

#[test]
fn two_transfers_share_the_link() {
    let cost = a100().cost;
    let mut world = world(50);
    world.both(0, lone(1, 1000, 1));
    world.both(0, lone(2, 3000, 1));
    world.run();
    let computed = prefill(&cost, &[(1000, 0), (3000, 0)]).ns();
    let begins = computed + SETUP_NS;
    assert_eq!(sent_ns(&world.prefill_events, 1), begins + 2 * 1000 * 50, "half the bandwidth");
    assert_eq!(sent_ns(&world.prefill_events, 2), begins + 4000 * 50, "all of it in the end");
}

#[test]
fn a_prefill_waits_for_the_decode_side_which_may_be_first() {
    let cost = a100().cost;
    let work = prefill(&cost, &[(700, 0)]);
    let mut late = world(3);
    late.at(0, Leg::Prefill, Act::Submit(lone(1, 700, 5)));
    late.at(50_000_000, Leg::Decode, Act::Submit(lone(1, 700, 5)));
    late.run_until(50_000_000);
    let loads = late.loads(Leg::Prefill);
    assert_eq!((loads.handoff.bootstrap, loads.waiting, loads.total_tokens), (1, 1, 700));
    late.run();
    assert_eq!(first_ns(&late.prefill_events, 1), (Ticks::from_ns(50_000_000) + work).ns());
    assert_eq!(end(&late.prefill_events, 1).queue_ns, 50_000_000);

    let mut early = world(3);
    early.at(0, Leg::Decode, Act::Submit(lone(1, 700, 5)));
    early.at(50_000_000, Leg::Prefill, Act::Submit(lone(1, 700, 5)));
    early.run();
    assert_eq!(first_ns(&early.prefill_events, 1), (Ticks::from_ns(50_000_000) + work).ns());
    assert_eq!(end(&early.prefill_events, 1).queue_ns, 0);
}

#[test]
fn messages_between_the_engines_take_their_time() {
    let cost = a100().cost;
    let mut world = world(3);
    world.hop_ns = 250_000;
    world.both(0, lone(1, 700, 1));
    world.run();
    let computed = (Ticks::from_ns(250_000) + prefill(&cost, &[(700, 0)])).ns();
    assert_eq!(first_ns(&world.decode_events, 1), computed + SETUP_NS + 2100 + 250_000);
}

#[test]
fn kv_that_arrives_during_a_step_joins_at_its_end_or_one_step_later_with_overlap() {
    let cost = a100().cost;
    let joins = |overlap| {
        let decode = EngineConfig { overlap, ..config(EngineRole::Decode) };
        let mut world = World::new(config(EngineRole::Prefill), decode);
        world.lost = |_| true;
        world.at(0, Leg::Decode, Act::Submit(lone(1, 500, 50)));
        world.at(0, Leg::Decode, Act::Submit(lone(2, 300, 50)));
        world.at(10, Leg::Decode, Act::Arrived(1, 0));
        world.at(20, Leg::Decode, Act::Arrived(2, 0));
        world.run_until(10_000_000_000);
        first_ns(&world.decode_events, 2)
    };
    let first = Ticks::from_ns(10) + cost.decode(1, 501);
    assert_eq!(joins(false), first.ns());
    assert_eq!(joins(true), (first + cost.decode(1, 502)).ns());
}
