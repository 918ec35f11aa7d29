//! The shape of the trees: paths stay compressed, and no depth is too much.

use router_core::ids::WorkerId;

use crate::{SCOPE, index, rows, text};

#[test]
fn deep_chains_need_no_stack() {
    let long = "z".repeat(100_000);
    let mut index = index(1 << 20);
    for (n, end) in (1..=100_000).step_by(25).enumerate() {
        // Two workers in turn, so that owners differ from node to node and nothing can be joined.
        index.credit(SCOPE, text(&long[..100_001 - end]), WorkerId(n as u32 % 2));
    }
    assert!(index.stats().nodes > 3_000);
    index.check().expect("invariants");
    assert_eq!(index.lookup(SCOPE, text(&long)).best(), 100_000);
    index.forget(WorkerId(0));
    index.forget(WorkerId(1));
    while index.sweep(1000) {}
    assert_eq!(index.stats().nodes, 0);
}

#[test]
fn a_conversation_does_not_leave_a_node_for_each_turn() {
    let mut index = index(1 << 20);
    let mut conversation = String::new();
    for turn in 0..200 {
        conversation += &format!("turn {turn}: something is said. ");
        index.credit(SCOPE, text(&conversation), WorkerId(0));
    }
    assert!(index.stats().nodes <= 3, "{} nodes", index.stats().nodes);
    assert_eq!(index.chars_of(WorkerId(0)), conversation.len() as u64);
}

#[test]
fn an_eviction_may_join_the_path_that_is_being_credited() {
    let mut index = index(8);
    index.credit(SCOPE, text("head.x"), WorkerId(0));
    index.credit(SCOPE, text("head.y"), WorkerId(0));
    index.credit(SCOPE, text("head.xzz"), WorkerId(0));
    index.check().expect("invariants");
    assert_eq!(rows(&index, "head.xzz"), [(0, 8)]);
    assert_eq!(rows(&index, "head.y"), [(0, 5)]);
    assert_eq!(index.stats().nodes, 2);
}
