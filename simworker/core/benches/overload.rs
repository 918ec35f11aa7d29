//! What a scheduling pass costs while many requests wait, with the figures of the load read after each.

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use protocol::tokenizer::block_token;
use simworker_core::{Engine, EngineConfig, Pace, RequestId, Schedule, Submit, preset};

const PASSES: u64 = 400;

/// An engine in which 64 run and `waiting` wait.
fn engine(schedule: Schedule, waiting: u64) -> Engine {
    let preset = preset("h100-80g-llama3-8b").expect("a preset");
    let config = EngineConfig {
        schedule,
        pace: Pace::Step,
        max_running: 64,
        overlap: true,
        ..EngineConfig::of(preset)
    };
    let mut engine = Engine::new(config).expect("a good configuration");
    let mut events = Vec::new();
    for id in 0..64 + waiting {
        // One of 50 prefixes, then 40 tokens of its own; replies of 8 to 71 tokens, so that nearly each step somebody leaves.
        let shared = (0..200).map(|i| block_token(id % 50, i));
        let prompt = shared.chain((0..40).map(|i| block_token(1000 + id, i))).collect();
        let reply = 8 + (id * 37 % 64) as u32;
        engine.submit(0, Submit::new(RequestId(id), prompt, reply), &mut events).expect("it fits");
    }
    for _ in 0..50 {
        pass(&mut engine, &mut events);
    }
    engine
}

fn pass(engine: &mut Engine, events: &mut Vec<simworker_core::Event>) {
    if let Some(due_ns) = engine.next_deadline() {
        engine.advance(due_ns, events);
    }
    events.clear();
    black_box(engine.loads());
}

fn overload(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("overload");
    group.sample_size(20);
    group.throughput(Throughput::Elements(PASSES));
    for schedule in [Schedule::Fcfs, Schedule::Lpm] {
        for waiting in [1_000, 10_000] {
            group.bench_function(BenchmarkId::new(schedule.label(), waiting), |bencher| {
                bencher.iter_batched(
                    || engine(schedule, waiting),
                    |mut engine| {
                        let mut events = Vec::new();
                        (0..PASSES).for_each(|_| pass(&mut engine, &mut events));
                        // Its end is not part of a pass.
                        engine
                    },
                    BatchSize::PerIteration,
                );
            });
        }
    }
    group.finish();
}

criterion_group!(benches, overload);
criterion_main!(benches);
