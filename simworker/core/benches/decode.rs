//! Simulated output tokens per second of one core: a batch of 64 that does nothing but decode.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use protocol::tokenizer::block_token;
use simworker_core::{Engine, EngineConfig, Pace, RequestId, Submit, preset};

const BATCH: u64 = 64;
const REPLY: u32 = 4096;

fn run(config: &EngineConfig, prompts: &[Submit]) -> u64 {
    let mut engine = Engine::new(config.clone()).expect("a good configuration");
    let mut events = Vec::new();
    for prompt in prompts {
        engine.submit(0, prompt.clone(), &mut events).expect("it fits");
    }
    while let Some(due_ns) = engine.next_deadline() {
        engine.advance(due_ns, &mut events);
        events.clear();
    }
    engine.totals().generated_tokens
}

fn decode(criterion: &mut Criterion) {
    let prompt = |id: u64| (0..100).map(|i| block_token(id, i)).collect();
    let prompts: Vec<Submit> = (0..BATCH).map(|id| Submit::new(RequestId(id), prompt(id), REPLY)).collect();
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(BATCH * u64::from(REPLY)));
    for (name, overlap, pace) in [
        ("stretch", false, Pace::Stretch),
        ("stretch, overlap", true, Pace::Stretch),
        ("step", false, Pace::Step),
    ] {
        let preset = preset("h100-80g-llama3-8b").expect("a preset");
        let config = EngineConfig { overlap, pace, ..EngineConfig::of(preset) };
        group.bench_function(name, |bencher| {
            bencher.iter(|| assert_eq!(run(&config, &prompts), BATCH * u64::from(REPLY)));
        });
    }
    group.finish();
}

criterion_group!(benches, decode);
criterion_main!(benches);
