//! Who owns what: credits, withdrawals, workers that are cleared or forgotten.

use router_core::ids::{ScopeId, WorkerId};
use router_core::prompt::PromptView;

use crate::{SCOPE, index, rows, text};

#[test]
fn every_owner_has_its_own_depth_and_parts_of_edges_count() {
    let mut index = index(1000);
    index.credit(SCOPE, text("shared prefix, then one"), WorkerId(3));
    index.credit(SCOPE, text("shared prefix, then two"), WorkerId(1));
    index.credit(SCOPE, text("shared"), WorkerId(2));
    assert_eq!(rows(&index, "shared prefix, then one!"), [(1, 20), (2, 6), (3, 23)]);
    assert_eq!(rows(&index, "shared pre"), [(1, 10), (2, 6), (3, 10)]);
    assert_eq!(rows(&index, "other"), []);
}

#[test]
fn scopes_and_alphabets_are_apart() {
    let mut index = index(1000);
    index.credit(SCOPE, text("abc"), WorkerId(0));
    index.credit(SCOPE, PromptView::Tokens(&[97, 98, 99]), WorkerId(1));
    let elsewhere = index.lookup(ScopeId(1), text("abc"));
    assert_eq!((elsewhere.rows(), elsewhere.prompt_chars()), (&[][..], 3));
    assert_eq!(rows(&index, "abc"), [(0, 3)]);
    assert_eq!(index.lookup(SCOPE, PromptView::Tokens(&[97, 98])).of(WorkerId(1)), 8);
    assert_eq!(index.lookup(SCOPE, PromptView::Unreadable).rows(), []);
}

#[test]
fn withdrawal_takes_back_what_the_credit_created_also_after_splits() {
    let mut index = index(1000);
    index.credit(SCOPE, text("system "), WorkerId(0));
    let credit = index.credit(SCOPE, text("system question"), WorkerId(0));
    index.credit(SCOPE, text("system query"), WorkerId(1));
    index.credit(SCOPE, text("system quest"), WorkerId(0));
    index.withdraw(text("system question"), credit);
    assert_eq!(rows(&index, "system question"), [(0, 12), (1, 10)]);
    index.check().expect("invariants");
}

#[test]
fn a_late_credit_does_not_bring_a_forgotten_worker_back() {
    let mut index = index(1000);
    let credit = index.credit(SCOPE, text("prompt"), WorkerId(0));
    index.credit(SCOPE, text("prompt"), WorkerId(1));
    index.forget(WorkerId(0));
    assert_eq!(rows(&index, "prompt"), [(1, 6)]);
    index.withdraw(text("prompt"), credit);
    index.credit(SCOPE, text("prompt"), WorkerId(0));
    assert!(!index.sweep(100));
    index.credit(SCOPE, text("prompt"), WorkerId(0));
    assert_eq!(index.stats().chars, [(WorkerId(1), 6)]);
    assert_eq!(rows(&index, "prompt"), [(1, 6)]);
}

#[test]
fn a_cleared_worker_owns_what_it_is_credited_with_afterwards_and_nothing_else() {
    let mut index = index(1000);
    let old = index.credit(SCOPE, text("system prompt"), WorkerId(0));
    index.credit(SCOPE, text("system prompt"), WorkerId(1));
    index.clear(WorkerId(0));
    assert_eq!(rows(&index, "system prompt"), [(1, 13)]);
    assert_eq!((index.chars_of(WorkerId(0)), index.stats().chars), (0, vec![(WorkerId(1), 13)]));
    index.credit(SCOPE, text("system"), WorkerId(0));
    assert_eq!(rows(&index, "system prompt"), [(0, 6), (1, 13)], "before the sweep");
    index.withdraw(text("system prompt"), old);
    while index.sweep(1) {
        index.check().expect("invariants");
    }
    assert_eq!(rows(&index, "system prompt"), [(0, 6), (1, 13)], "and after it");
    assert_eq!(index.stats().chars, [(WorkerId(0), 6), (WorkerId(1), 13)]);
    index.clear(WorkerId(0));
    index.clear(WorkerId(0));
    assert_eq!(rows(&index, "system prompt"), [(1, 13)]);
}
