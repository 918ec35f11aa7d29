//! The memory bound of the index against a counting allocator. Alone in its file: other tests would be counted too.

use std::alloc::System;

use cap::Cap;
use router_core::ids::{ScopeId, WorkerId};
use router_core::index::{IndexLimits, PrefixIndex};
use router_core::prompt::PromptView;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// A workload: prompts of `head` symbols out of `heads` followed by `tail` symbols of their own.
struct Case {
    name: &'static str,
    heads: u64,
    head: usize,
    tail: usize,
    workers: u64,
    credits: u64,
}

const MAX_TREE_BYTES: u64 = 2 << 20;

const CASES: &[Case] = &[
    Case { name: "long prompts", heads: 50, head: 8000, tail: 1000, workers: 8, credits: 2_000 },
    Case { name: "short prompts", heads: 50, head: 12, tail: 12, workers: 8, credits: 30_000 },
    Case { name: "many owners of each node", heads: 5, head: 40, tail: 20, workers: 64, credits: 20_000 },
    Case {
        name: "many workers, nothing shared",
        heads: 1 << 40,
        head: 6,
        tail: 3,
        workers: 500,
        credits: 20_000,
    },
];

fn symbols(seed: u64, count: usize) -> impl Iterator<Item = u32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..count).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 % 13
    })
}

fn credit(index: &mut PrefixIndex, case: &Case, n: u64) {
    let prompt = symbols(n * 7919 % case.heads, case.head).chain(symbols(n + (1 << 41), case.tail));
    let worker = WorkerId((n * 31 % 1009 % case.workers) as u32);
    if n.is_multiple_of(2) {
        let text: Vec<u8> = prompt.map(|symbol| b'a' + symbol as u8).collect();
        index.credit(ScopeId(0), PromptView::Text(&text), worker);
    } else {
        let ids: Vec<u32> = prompt.collect();
        index.credit(ScopeId(0), PromptView::Tokens(&ids), worker);
    }
}

#[test]
fn the_estimate_is_never_below_the_heap_and_not_far_above() {
    for case in CASES {
        let before = ALLOCATOR.allocated();
        let limits = IndexLimits { max_tree_size: 1 << 26, max_tree_bytes: MAX_TREE_BYTES };
        let mut index = PrefixIndex::new(limits);
        for n in 0..case.credits {
            credit(&mut index, case, n);
            let heap = (ALLOCATOR.allocated() - before) as u64;
            let estimate = index.stats().bytes;
            assert!(heap <= estimate, "{}, credit {n}: {heap} B in use, {estimate} B estimated", case.name);
            assert!(estimate <= MAX_TREE_BYTES, "{}, credit {n}: {estimate} B", case.name);
        }
        let (heap, estimate) = ((ALLOCATOR.allocated() - before) as u64, index.stats().bytes);
        assert!(estimate * 100 >= MAX_TREE_BYTES * 95, "{}: {estimate} B estimated", case.name);
        assert!(heap * 3 >= estimate * 2, "{}: {heap} B in use, {estimate} B estimated", case.name);
    }
}
