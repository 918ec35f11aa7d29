//! Which events about KV leave an engine, and when.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails by panicking")]

use std::sync::Arc;

use protocol::kv_events::{KvEvent, Medium, Stored, chain, salt_seed};
use protocol::tokenizer::{Token, block_token, reply_block};
use simworker_core::{
    BlockNaming, CacheNames, DpConfig, Engine, EngineConfig, Event, LoadBalance, Ranks, RequestId, Submit,
    preset,
};

fn config() -> EngineConfig {
    let preset = preset("a100-80g-llama3-8b").unwrap();
    EngineConfig { kv_events: Some(BlockNaming::Default), ..EngineConfig::of(preset) }
}

fn prompt(block: u64, len: u32) -> Arc<[Token]> {
    (0..len).map(|i| block_token(block, i)).collect()
}

fn request(id: u64, prompt: &Arc<[Token]>, max_new: u32) -> Submit {
    Submit::new(RequestId(id), Arc::clone(prompt), max_new)
}

fn run_out(engine: &mut Engine, events: &mut Vec<Event>) {
    while let Some(due) = engine.next_deadline() {
        engine.advance(due, events);
    }
}

/// The batches of events about KV.
fn batches(events: &[Event]) -> Vec<(u64, Vec<KvEvent>)> {
    let kv = events.iter().filter_map(|event| match event {
        Event::Kv { at_ns, events, .. } => Some((*at_ns, events.clone())),
        _ => None,
    });
    kv.collect()
}

fn stored(events: &[KvEvent]) -> Vec<&Stored> {
    let stored = events.iter().filter_map(|event| match event {
        KvEvent::Stored(stored) => Some(stored),
        _ => None,
    });
    stored.collect()
}

#[test]
fn an_engine_that_is_not_asked_tells_nothing() {
    let mut engine = Engine::new(EngineConfig { kv_events: None, ..config() }).unwrap();
    let mut events = Vec::new();
    engine.submit(0, request(0, &prompt(1, 100), 50), &mut events).unwrap();
    run_out(&mut engine, &mut events);
    assert!(engine.flush() && engine.next_deadline().is_none());
    assert_eq!(batches(&events), []);
}

#[test]
fn it_begins_and_a_flush_ends_with_nothing() {
    let mut engine = Engine::new(config()).unwrap();
    let mut events = Vec::new();
    run_out(&mut engine, &mut events);
    assert_eq!(batches(&events), [(0, vec![KvEvent::Cleared])]);
    events.clear();
    assert!(engine.flush());
    run_out(&mut engine, &mut events);
    assert_eq!(batches(&events), [(0, vec![KvEvent::Cleared])], "also when it was empty");
    engine.submit(7, request(0, &prompt(1, 100), 1), &mut events).unwrap();
    assert!(!engine.flush());
    run_out(&mut engine, &mut events);
    assert!(batches(&events).iter().skip(1).all(|(_, batch)| !batch.contains(&KvEvent::Cleared)));
}

#[test]
fn prompts_are_told_after_their_prefill_and_replies_at_the_next_report() {
    for (overlap, decode_log_interval) in [(false, 40), (true, 40), (false, 7)] {
        let config = EngineConfig { overlap, decode_log_interval, page_size: 4, ..config() };
        let mut engine = Engine::new(config).unwrap();
        let mut events = Vec::new();
        let (short, long) = (prompt(1, 10), prompt(2, 8));
        engine.submit(1, request(0, &short, 11), &mut events).unwrap();
        engine.submit(1, request(1, &long, 70), &mut events).unwrap();
        run_out(&mut engine, &mut events);
        let told = batches(&events);
        let end = |wanted: u64| {
            let ends = events.iter().find_map(|event| match event {
                Event::Finish { id, at_ns, .. } if id.0 == wanted => Some(*at_ns),
                _ => None,
            });
            ends.unwrap()
        };
        let steps: Vec<u64> = events
            .iter()
            .filter_map(|event| match event {
                Event::Step { at_ns, .. } => Some(*at_ns),
                _ => None,
            })
            .collect();
        // With overlap, the pass that makes results known comes with the end of the step as well.
        let first = events.iter().find_map(|event| match event {
            Event::FirstToken { at_ns, .. } => Some(*at_ns),
            _ => None,
        });
        assert_eq!(told.len(), 4, "overlap {overlap}: {told:?}");
        assert_eq!(told[0].1, [KvEvent::Cleared]);
        assert_eq!(Some(told[1].0), first);
        assert_eq!(stored(&told[1].1).len(), 2, "two prompts, no common beginning");
        let report = if decode_log_interval == 7 { 14 } else { 40 };
        assert_eq!(told[2].0, steps[report - 1], "the first reply ended at step 10");
        assert!(end(0) < told[2].0);
        let reply = reply_block(&short);
        let sequence: Vec<Token> =
            short.iter().copied().chain((0..11).map(|i| block_token(reply, i))).collect();
        let [continued] = stored(&told[2].1)[..] else { panic!("{:?}", told[2]) };
        assert_eq!(continued.tokens, sequence[8..20], "whole pages of all but the last token");
        assert_eq!(continued.parent, stored(&told[1].1)[0].hashes.last().copied());
        assert_eq!(told[3].0, end(1), "with nothing left to do, the rest is told at once");
    }
}

#[test]
fn what_is_stored_says_how_it_is_called() {
    let names = |extra_key: Option<&str>, cache_salt: Option<&str>, lora: Option<&str>| {
        Some(Arc::new(CacheNames {
            extra_key: extra_key.map(Arc::from),
            cache_salt: cache_salt.map(Arc::from),
            lora: lora.map(Arc::from),
        }))
    };
    let tokens = prompt(1, 8);
    let store = |naming, namespace, names| {
        let config = EngineConfig { kv_events: Some(naming), page_size: 4, ..config() };
        let mut engine = Engine::new(config).unwrap();
        let mut events = Vec::new();
        engine.submit(1, Submit { namespace, names, ..request(0, &tokens, 1) }, &mut events).unwrap();
        run_out(&mut engine, &mut events);
        let batch = batches(&events).pop().unwrap().1;
        stored(&batch)[0].clone()
    };
    let plain = store(BlockNaming::Default, 0, None);
    let first = chain(None, &tokens[..4]);
    assert_eq!(plain.hashes, [first.hash(), chain(Some(first), &tokens[4..]).hash()]);
    assert_eq!((plain.parent, plain.block_size, plain.medium), (None, 4, Some(Medium::Gpu)));
    let keyed = store(BlockNaming::Default, 5, names(Some("k"), None, None));
    assert_eq!(keyed, plain, "an extra key does not show");
    let salted = store(BlockNaming::Default, 6, names(None, Some("tenantA"), None));
    assert_eq!(salted.hashes[0], chain(Some(salt_seed("tenantA")), &tokens[..4]).hash());
    assert_eq!((salted.parent, salted.cache_salt.as_deref()), (None, Some("tenantA")));
    let adapted = store(BlockNaming::Default, 7, names(None, None, Some("french")));
    assert_eq!(adapted.lora_name.as_deref(), Some("french"));
    let dynamo = store(BlockNaming::Dynamo, 5, names(Some("k"), None, None));
    for other in [&adapted, &dynamo, &salted] {
        assert!(other.hashes.iter().all(|hash| !plain.hashes.contains(hash)));
    }
}

#[test]
fn each_rank_tells_of_its_own_cache() {
    let dp = DpConfig { size: 2, balance: LoadBalance::RoundRobin, attention: true };
    let mut ranks = Ranks::new(config(), dp).unwrap();
    let mut events = Vec::new();
    ranks.submit(1, request(0, &prompt(1, 20), 5), Some(1), &mut events).unwrap();
    while let Some(due) = ranks.next_deadline() {
        ranks.advance(due, &mut events);
    }
    let told = |wanted: u32| -> usize {
        let kv = events.iter().filter_map(|event| match event {
            Event::Kv { rank, events, .. } if *rank == wanted => Some(stored(events).len()),
            _ => None,
        });
        kv.sum()
    };
    assert_eq!((told(0), told(1)), (0, 2), "prompt and reply");
    assert!(ranks.flush());
    events.clear();
    ranks.advance(u64::MAX / 2, &mut events);
    assert_eq!(batches(&events).len(), 2, "both are cleared");
}
