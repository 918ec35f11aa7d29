//! The prefix index under the load of a router: 9 KB prompts in groups with a shared head, over 8 workers, with the
//! bound of the published walk-through (10,000 characters per worker) and the default one (2^26).

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use router_core::ids::{ScopeId, WorkerId};
use router_core::index::{IndexLimits, PrefixIndex};
use router_core::prompt::PromptView;

const SCOPE: ScopeId = ScopeId(0);
const PROMPTS: usize = 1_000;
const PROMPTS_PER_GROUP: usize = 8;
const PROMPT_BYTES: usize = 9_000;
const HEAD_BYTES: usize = 8_000;
const WORKERS: usize = 8;
const MAX_TREE_BYTES: u64 = 64 << 20;

/// Text that differs early between seeds, as sentences do.
fn words(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b"etaoin shrdlu"[(state >> 33) as usize % 13]
    };
    (0..bytes).map(|_| letter()).collect()
}

fn prompts() -> Vec<Vec<u8>> {
    let prompt = |n: usize| {
        let mut prompt = words((n / PROMPTS_PER_GROUP) as u64, HEAD_BYTES);
        prompt.extend(words(1_000_000 + n as u64, PROMPT_BYTES - HEAD_BYTES));
        prompt
    };
    (0..PROMPTS).map(prompt).collect()
}

fn worker_of(n: usize) -> WorkerId {
    WorkerId((n / PROMPTS_PER_GROUP % WORKERS) as u32)
}

fn filled(prompts: &[Vec<u8>], max_tree_size: u64) -> PrefixIndex {
    let mut index = PrefixIndex::new(IndexLimits { max_tree_size, max_tree_bytes: MAX_TREE_BYTES });
    for (n, prompt) in prompts.iter().enumerate() {
        index.credit(SCOPE, PromptView::Text(prompt), worker_of(n));
    }
    index
}

fn index(criterion: &mut Criterion) {
    let mut prompts = prompts();
    for max_tree_size in [10_000, 1 << 26] {
        let mut group = criterion.benchmark_group(format!("max_tree_size={max_tree_size}"));
        group.throughput(Throughput::Bytes(PROMPT_BYTES as u64));
        let mut index = filled(&prompts, max_tree_size);
        let mut turns = (0..PROMPTS).rev().cycle();
        let mut turn = || turns.next().unwrap_or(0);
        group.bench_function("lookup", |bench| {
            bench.iter(|| black_box(index.lookup(SCOPE, PromptView::Text(&prompts[turn()]))));
        });
        group.bench_function("credit, the prompts again", |bench| {
            bench.iter(|| {
                let n = turn();
                black_box(index.credit(SCOPE, PromptView::Text(&prompts[n]), worker_of(n)))
            });
        });
        let mut serial = 0_u64;
        group.bench_function("credit, new questions under the heads", |bench| {
            bench.iter(|| {
                let n = turn();
                serial += 1;
                prompts[n][HEAD_BYTES..HEAD_BYTES + 8].copy_from_slice(&serial.to_le_bytes());
                black_box(index.credit(SCOPE, PromptView::Text(&prompts[n]), worker_of(n)))
            });
        });
        let stats = index.stats();
        eprintln!("{} nodes, {} B, {} characters evicted", stats.nodes, stats.bytes, stats.evicted_chars);
        group.finish();
    }
}

criterion_group!(benches, index);
criterion_main!(benches);
