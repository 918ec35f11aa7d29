//! A world with one engine: arrivals in order of time, deadlines in between.

use std::sync::Arc;

use protocol::tokenizer::block_token;
use rand::RngExt;
use rand_pcg::Pcg64;
use simworker_core::{Engine, EngineConfig, Event, FinishReason, RequestId, Submit, preset};

/// Something done to the engine from outside.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Submit(Submit),
    Abort(RequestId),
}

/// What was done when, in order of time.
pub(crate) type Script = Vec<(u64, Act)>;

/// The seeds of a sweep, or the one that the environment names.
pub(crate) fn seeds() -> Vec<u64> {
    const SEEDS: u64 = 300;
    match std::env::var("ENGINE_SEED") {
        Ok(seed) => vec![seed.parse().expect("ENGINE_SEED is a number")],
        Err(_) => (0..SEEDS).collect(),
    }
}

pub(crate) fn pick<T: Copy>(rng: &mut Pcg64, of: &[T]) -> T {
    of[rng.random_range(0..of.len())]
}

/// The preset of most tests.
pub(crate) fn a100() -> EngineConfig {
    EngineConfig::of(preset("a100-80g-llama3-8b").unwrap())
}

/// A request whose prompt is made of runs of tokens from named blocks.
pub(crate) fn request(id: u64, runs: &[(u64, u32)], max_new_tokens: u32) -> Submit {
    let tokens = runs.iter().flat_map(|(block, n)| (0..*n).map(move |i| block_token(*block, i)));
    let prompt: Arc<[u32]> = tokens.collect();
    Submit::new(RequestId(id), prompt, max_new_tokens)
}

pub(crate) fn submit(at_ns: u64, request: Submit) -> (u64, Act) {
    (at_ns, Act::Submit(request))
}

/// Plays the script and then runs the engine until it is idle; `after_each` sees it after every call.
pub(crate) fn play(engine: &mut Engine, script: &Script, mut after_each: impl FnMut(&Engine)) -> Vec<Event> {
    let mut events = Vec::new();
    for (at_ns, act) in script {
        while let Some(due) = engine.next_deadline().filter(|due| due < at_ns) {
            engine.advance(due, &mut events);
            after_each(engine);
        }
        match act {
            Act::Submit(request) => engine.submit(*at_ns, request.clone(), &mut events).unwrap(),
            Act::Abort(id) => {
                engine.abort(*at_ns, *id, &mut events);
            }
        }
        after_each(engine);
    }
    while let Some(due) = engine.next_deadline() {
        engine.advance(due, &mut events);
        after_each(engine);
    }
    events
}

/// Plays the script on a new engine.
pub(crate) fn run(config: EngineConfig, script: &Script) -> Vec<Event> {
    let mut engine = Engine::new(config).unwrap();
    let events = play(&mut engine, script, |_| {});
    engine.check().unwrap();
    assert!(engine.is_idle());
    events
}

/// When a request got its first token.
pub(crate) fn first_ns(events: &[Event], wanted: u64) -> u64 {
    let found = events.iter().find_map(|event| match event {
        Event::FirstToken { id, at_ns, .. } if id.0 == wanted => Some(*at_ns),
        _ => None,
    });
    found.unwrap()
}

/// The end of a request, without its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) at_ns: u64,
    pub(crate) reason: FinishReason,
    pub(crate) cached: u32,
    pub(crate) outputs: u32,
    pub(crate) retractions: u32,
    pub(crate) queue_ns: u64,
}

/// The one end of a request.
pub(crate) fn end(events: &[Event], wanted: u64) -> End {
    let mut ends =
        events.iter().filter_map(|event| match event {
            Event::Finish {
                id, at_ns, reason, cached_tokens, output_tokens, retractions, queue_ns, ..
            } if id.0 == wanted => Some(End {
                at_ns: *at_ns,
                reason: *reason,
                cached: *cached_tokens,
                outputs: *output_tokens,
                retractions: *retractions,
                queue_ns: *queue_ns,
            }),
            _ => None,
        });
    let end = ends.next().unwrap();
    assert_eq!(ends.next(), None, "a request ends once");
    end
}

/// Output tokens that events speak of: first ones, and those of steps.
pub(crate) fn tokens(events: &[Event]) -> u64 {
    events
        .iter()
        .map(|event| match event {
            Event::FirstToken { .. } => 1,
            Event::Step { tokens, .. } => u64::from(*tokens),
            Event::Finish { .. } | Event::KvWanted { .. } | Event::KvSent { .. } | Event::Kv { .. } => 0,
        })
        .sum()
}
