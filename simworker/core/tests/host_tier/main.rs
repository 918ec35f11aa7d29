//! A second tier of the cache, seen from the engine: what it saves and what it costs.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails by panicking")]

use std::sync::Arc;

use protocol::tokenizer::{Token, block_token};
use simworker_core::cache::WritePolicy;
use simworker_core::{
    BlockNaming, ConfigError, Engine, EngineConfig, Event, HostTierConfig, RequestId, Submit, preset,
};

/// 10,000 tokens on the device, `host` times as many on the host.
fn config(write: WritePolicy, host: u64) -> EngineConfig {
    let preset = preset("a100-80g-llama3-8b").unwrap();
    let tier = HostTierConfig { tokens: host * 10_000, write, ..HostTierConfig::of(preset, 10_000) };
    EngineConfig { kv_tokens: 10_000, host_tier: Some(tier), ..EngineConfig::of(preset) }
}

fn prompt(block: u64, len: u32) -> Arc<[Token]> {
    (0..len).map(|i| block_token(block, i)).collect()
}

/// What became of a request: cached tokens, those of them from the host, time to the first token.
#[derive(Debug, PartialEq)]
struct Outcome {
    cached: u32,
    host: u32,
    ttft_ns: u64,
}

/// Serves one request after all others.
fn serve(engine: &mut Engine, id: u64, prompt: Arc<[Token]>) -> Outcome {
    let (mut events, begin) = (Vec::new(), id * 1_000_000_000_000);
    engine.submit(begin, Submit::new(RequestId(id), prompt, 4), &mut events).unwrap();
    while let Some(due) = engine.next_deadline() {
        engine.advance(due, &mut events);
        engine.check().unwrap();
    }
    let outcome = events.iter().find_map(|event| match event {
        Event::FirstToken { at_ns, cached_tokens, host_tokens, .. } => {
            Some(Outcome { cached: *cached_tokens, host: *host_tokens, ttft_ns: at_ns - begin })
        }
        _ => None,
    });
    outcome.unwrap()
}

/// A prompt, others that push it off the device, and the prompt again.
fn come_back(config: EngineConfig) -> (Outcome, Engine) {
    let mut engine = Engine::new(config).unwrap();
    serve(&mut engine, 1, prompt(1, 4_000));
    for id in 2..6 {
        serve(&mut engine, id, prompt(id, 4_000));
    }
    (serve(&mut engine, 6, prompt(1, 4_000)), engine)
}

#[test]
fn what_the_device_has_given_up_is_loaded_back() {
    for write in [WritePolicy::Through, WritePolicy::Back] {
        let (again, engine) = come_back(config(write, 4));
        assert_eq!((again.cached, again.host), (3_999, 3_999), "{write:?}");
        assert_eq!(engine.totals().host_tokens, 3_999);
        assert_eq!(engine.totals().host.loaded_back, 3_999);
        // 3,999 tokens of 131,072 bytes at 25 GB/s take longer than a prefill of one token.
        assert_eq!(again.ttft_ns / 1_000, 20_966, "{write:?}: the prefill waits for the load");
    }
}

#[test]
fn a_prompt_that_one_request_has_used_is_not_written_selectively() {
    let (again, engine) = come_back(config(WritePolicy::ThroughSelective, 4));
    assert_eq!((again.cached, again.host), (0, 0));
    assert_eq!(engine.totals().host.backed_up, 0);
    let mut engine = Engine::new(config(WritePolicy::ThroughSelective, 4)).unwrap();
    serve(&mut engine, 1, prompt(1, 4_000));
    serve(&mut engine, 2, prompt(1, 4_000));
    let (used, capacity) = engine.loads().host_tokens.unwrap();
    assert_eq!((used, capacity), (4_003, 40_000), "the second one has hit it, and its reply");
}

#[test]
fn without_a_second_tier_it_is_computed_again() {
    let (again, engine) = come_back(EngineConfig { host_tier: None, ..config(WritePolicy::Through, 1) });
    assert_eq!((again.cached, again.host), (0, 0));
    assert_eq!(engine.loads().host_tokens, None);
}

#[test]
fn a_host_that_is_too_small_loses_the_oldest() {
    let (again, engine) = come_back(config(WritePolicy::Through, 1));
    assert_eq!((again.cached, again.host), (0, 0));
    assert!(engine.totals().host.evicted > 0);
    let (used, capacity) = engine.loads().host_tokens.unwrap();
    assert!(used <= capacity, "{used} of {capacity}");
}

#[test]
fn little_is_not_worth_loading() {
    let mut config = config(WritePolicy::Through, 4);
    if let Some(tier) = &mut config.host_tier {
        tier.load_back_threshold = 4_000;
    }
    assert_eq!(come_back(config).0.cached, 0);
}

#[test]
fn a_flush_empties_both_tiers() {
    let (_, mut engine) = come_back(config(WritePolicy::Through, 4));
    assert!(engine.flush());
    engine.check().unwrap();
    assert_eq!(engine.loads().host_tokens, Some((0, 40_000)));
    assert_eq!(serve(&mut engine, 7, prompt(1, 4_000)).cached, 0);
}

#[test]
fn events_name_the_tier() {
    let config = EngineConfig { kv_events: Some(BlockNaming::Default), ..config(WritePolicy::Through, 4) };
    let mut engine = Engine::new(config).unwrap();
    let mut told = Vec::new();
    for (id, block) in [(1, 1), (2, 2), (3, 3), (4, 1)] {
        let mut events = Vec::new();
        engine
            .submit(id * 1_000_000_000_000, Submit::new(RequestId(id), prompt(block, 4_000), 1), &mut events)
            .unwrap();
        while let Some(due) = engine.next_deadline() {
            engine.advance(due, &mut events);
        }
        told.push(events.into_iter().filter_map(|event| match event {
            Event::Kv { events, .. } => Some(events),
            _ => None,
        }));
    }
    let words: Vec<Vec<String>> =
        told.into_iter().map(|batches| batches.flatten().map(word).collect()).collect();
    let stored = ["GPU +4000", "CPU_PINNED +4000"];
    assert_eq!(words[0], [&["cleared"][..], &stored].concat());
    assert_eq!(words[1], stored);
    assert_eq!(words[2], [&["GPU -4000"][..], &stored].concat());
    // 3,999 are loaded back, the last one is computed again: together they are one stretch.
    assert_eq!(words[3], ["GPU -4000", "GPU +4000"]);
}

fn word(event: protocol::kv_events::KvEvent) -> String {
    use protocol::kv_events::KvEvent;
    match event {
        KvEvent::Cleared => "cleared".into(),
        KvEvent::Stored(stored) => format!("{} +{}", stored.medium.unwrap().label(), stored.hashes.len()),
        KvEvent::Removed(removed) => format!("{} -{}", removed.medium.unwrap().label(), removed.hashes.len()),
    }
}

#[test]
fn an_impossible_bandwidth_is_refused() {
    let mut config = config(WritePolicy::Through, 1);
    if let Some(tier) = &mut config.host_tier {
        tier.bytes_per_second = 0.0;
    }
    assert_eq!(config.validate(), Err(ConfigError::HostBandwidth(0.0)));
}
