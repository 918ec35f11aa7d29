//! The prefix index when it is full: a lookup and a credit while every credit evicts as much as it adds.

mod prompts;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use prompts::{Load, Prompts};
use router_core::ids::ScopeId;
use router_core::index::{IndexLimits, PrefixIndex};
use router_core::prompt::PromptView;

const SCOPE: ScopeId = ScopeId(0);
const MAX_TREE_BYTES: u64 = 1 << 30;

const UNIQUE: Load = Load { heads: 1, head: 60, tail: 32 << 10, workers: 4, max_tree_size: 1 << 26 };
const SHARED: Load = Load { heads: 512, head: 8 << 10, tail: 200, workers: 8, max_tree_size: 2_000_000 };

const LOADS: &[(&str, Load)] = &[
    ("32 KB unique, 2^26", UNIQUE),
    ("4 KB unique, 10 M", Load { tail: 4 << 10, workers: 8, max_tree_size: 10_000_000, ..UNIQUE }),
    ("8 KB shared, 200 B own, 2 M", SHARED),
    ("8 KB shared, 200 B own, 100 k", Load { max_tree_size: 100_000, ..SHARED }),
];

/// An index that has evicted as much as it holds.
fn filled(load: Load, prompts: &mut Prompts) -> PrefixIndex {
    let limits = IndexLimits { max_tree_size: load.max_tree_size, max_tree_bytes: MAX_TREE_BYTES };
    let mut index = PrefixIndex::new(limits);
    while index.stats().evicted_chars < load.max_tree_size * load.workers {
        for _ in 0..100 {
            let (prompt, worker) = prompts.next();
            index.credit(SCOPE, PromptView::Text(prompt), worker);
        }
    }
    index
}

fn full(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("full");
    for &(name, load) in LOADS {
        group.throughput(Throughput::Bytes((load.head + load.tail) as u64));
        let mut prompts = Prompts::new(load);
        let mut index = filled(load, &mut prompts);
        group.bench_function(BenchmarkId::new("lookup", name), |bench| {
            bench.iter(|| black_box(index.lookup(SCOPE, PromptView::Text(prompts.next().0))));
        });
        group.bench_function(BenchmarkId::new("lookup and credit", name), |bench| {
            bench.iter(|| {
                let (prompt, worker) = prompts.next();
                black_box(index.lookup(SCOPE, PromptView::Text(prompt)));
                black_box(index.credit(SCOPE, PromptView::Text(prompt), worker))
            });
        });
        let stats = index.stats();
        eprintln!("{} nodes, {} B", stats.nodes, stats.bytes);
    }
    group.finish();
}

criterion_group!(benches, full);
criterion_main!(benches);
