//! Bounds in characters and in memory: what is kept, what goes first, and how much at a time.

use router_core::ids::WorkerId;
use router_core::index::{IndexLimits, PrefixIndex};
use router_core::prompt::PromptView;

use crate::{SCOPE, index, rows, text};

#[test]
fn a_lookup_does_not_refresh() {
    let mut index = index(8);
    index.credit(SCOPE, text("old."), WorkerId(0));
    index.credit(SCOPE, text("new."), WorkerId(0));
    assert_eq!(rows(&index, "old."), [(0, 4)]);
    index.credit(SCOPE, text("next"), WorkerId(0));
    // "ne" is shared with "new.", so two characters had to go: the tail of the oldest.
    assert_eq!(rows(&index, "old."), [(0, 2)]);
    assert_eq!(rows(&index, "new."), [(0, 4)]);
}

#[test]
fn a_credit_refreshes() {
    let mut index = index(8);
    index.credit(SCOPE, text("old."), WorkerId(0));
    index.credit(SCOPE, text("mid."), WorkerId(0));
    index.credit(SCOPE, text("old."), WorkerId(0));
    index.credit(SCOPE, text("four"), WorkerId(0));
    assert_eq!(rows(&index, "mid."), []);
    assert_eq!(rows(&index, "old."), [(0, 4)]);
}

#[test]
fn the_bound_is_per_worker() {
    let mut index = index(4);
    index.credit(SCOPE, text("aaaa"), WorkerId(0));
    index.credit(SCOPE, text("bbbb"), WorkerId(1));
    assert_eq!(index.stats().chars, [(WorkerId(0), 4), (WorkerId(1), 4)]);
    index.credit(SCOPE, text("bbbb"), WorkerId(0));
    assert_eq!(rows(&index, "aaaa"), []);
    assert_eq!(rows(&index, "bbbb"), [(0, 4), (1, 4)]);
}

#[test]
fn a_prompt_longer_than_the_bound_is_credited_as_far_as_it_fits() {
    let mut index = index(5);
    index.credit(SCOPE, text("ééééééééé"), WorkerId(0));
    assert_eq!(rows(&index, "ééééééééé"), [(0, 5)]);
    index.credit(SCOPE, PromptView::Tokens(&[1, 2, 3]), WorkerId(0));
    assert_eq!(index.lookup(SCOPE, PromptView::Tokens(&[1, 2, 3])).of(WorkerId(0)), 4);
    assert_eq!(index.chars_of(WorkerId(0)), 5);
}

#[test]
fn only_the_first_256_kb_are_indexed() {
    let long = "x".repeat(300_000);
    let mut index = index(1 << 20);
    index.credit(SCOPE, text(&long), WorkerId(0));
    let matches = index.lookup(SCOPE, text(&long));
    assert_eq!((matches.best(), matches.prompt_chars()), (262_144, 262_144));
}

#[test]
fn memory_of_the_forgotten_is_the_first_to_be_reused() {
    let mut index = PrefixIndex::new(IndexLimits { max_tree_size: 1 << 20, max_tree_bytes: 64 << 10 });
    index.credit(SCOPE, text(&"live".repeat(2_500)), WorkerId(0));
    index.credit(SCOPE, text(&"dead".repeat(5_000)), WorkerId(1));
    index.forget(WorkerId(1));
    index.credit(SCOPE, text(&"next".repeat(5_000)), WorkerId(2));
    assert_eq!(index.stats().chars, [(WorkerId(0), 10_000), (WorkerId(2), 20_000)]);
    assert_eq!(index.stats().evicted_chars, 0);
}

#[test]
fn out_of_memory_the_oldest_of_all_workers_goes_first() {
    let mut index = PrefixIndex::new(IndexLimits { max_tree_size: 1 << 20, max_tree_bytes: 64 << 10 });
    for (worker, word) in ["one.", "two.", "six.", "one.", "ten."].iter().enumerate() {
        // The second "one." is another worker's: it keeps the text but not the first owner.
        index.credit(SCOPE, text(&word.repeat(3_500)), WorkerId(worker as u32));
        index.check().expect("invariants");
    }
    let held: Vec<u32> = index.stats().chars.iter().filter(|row| row.1 > 0).map(|row| row.0.0).collect();
    assert_eq!(held, [2, 3, 4]);
}

/// Letters that differ early between seeds.
fn letters(seed: u64, count: usize) -> String {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let letter = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + (state >> 33) as u8 % 26)
    };
    (0..count).map(letter).collect()
}

#[test]
fn a_prompt_that_would_displace_thousands_is_noted_step_by_step() {
    let long = letters(1 << 40, 90_000);
    // Alone, and where another worker has the same prompt: then the rows end within its edges.
    for other_holds in [0, 40_000, 90_000] {
        let mut index = index(100_000);
        index.credit(SCOPE, text(&long[..other_holds]), WorkerId(1));
        for n in 0..12_500 {
            index.credit(SCOPE, text(&letters(n, 8)), WorkerId(0));
        }
        assert!(index.chars_of(WorkerId(0)) > 50_000);
        let (mut held, mut credits) = (0, 0);
        while held < 90_000 {
            let before = index.stats().evicted_chars;
            index.credit(SCOPE, text(&long), WorkerId(0));
            index.check().expect("invariants");
            // Each leaf has eight characters of its own at most.
            assert!(index.stats().evicted_chars - before <= 1024 * 8);
            let now = index.lookup(SCOPE, text(&long)).of(WorkerId(0));
            assert!(now > held, "{now} after {held}");
            (held, credits) = (now, credits + 1);
        }
        assert!(credits > 3, "{credits}");
        assert_eq!(index.lookup(SCOPE, text(&long)).of(WorkerId(1)), other_holds as u64);
    }
}

#[test]
fn memory_that_thousands_hold_is_freed_step_by_step() {
    let mut index = PrefixIndex::new(IndexLimits { max_tree_size: 1 << 30, max_tree_bytes: 4 << 20 });
    let mut n = 0;
    while index.stats().evicted_chars == 0 {
        n += 1;
        index.credit(SCOPE, text(&letters(n, 8)), WorkerId(0));
    }
    let long = letters(1 << 40, 200_000);
    let mut credits = 0;
    while index.lookup(SCOPE, text(&long)).best() < 200_000 {
        let before = index.stats().evicted_chars;
        index.credit(SCOPE, text(&long), WorkerId(0));
        index.check().expect("invariants");
        let evicted = index.stats().evicted_chars - before;
        assert!(evicted > 0 && evicted <= 1024 * 8, "{evicted}");
        credits += 1;
    }
    assert!(credits > 1, "{credits}");
}

#[test]
fn a_smaller_index_keeps_what_is_newest_and_a_larger_one_all() {
    let mut index = index(100_000);
    let prompts: Vec<String> = (0..100).map(|n| letters(n, 1_000)).collect();
    prompts.iter().for_each(|prompt| _ = index.credit(SCOPE, text(prompt), WorkerId(0)));
    index.credit(SCOPE, text("small"), WorkerId(1));
    let limits = IndexLimits { max_tree_size: 10_000, max_tree_bytes: 1 << 30 };
    index.set_limits(limits);
    assert!(index.sweep(1), "it takes a while");
    assert!(index.chars_of(WorkerId(0)) > 90_000);
    while index.sweep(10) {}
    index.check().expect("the bounds hold");
    let held = |index: &PrefixIndex| -> Vec<u64> {
        prompts.iter().map(|prompt| index.lookup(SCOPE, text(prompt)).of(WorkerId(0))).collect()
    };
    let (gone, kept) = (held(&index)[..90].to_vec(), held(&index)[90..].to_vec());
    assert!(
        kept.iter().all(|chars| *chars > 990) && gone.iter().all(|chars| *chars < 10),
        "{gone:?} {kept:?}"
    );
    assert_eq!(index.chars_of(WorkerId(1)), 5, "it had no more than that");
    let before = index.stats();
    index.set_limits(IndexLimits { max_tree_size: 100_000, ..limits });
    assert!(!index.sweep(10));
    assert_eq!(index.stats(), before);
    prompts[..10].iter().for_each(|prompt| _ = index.credit(SCOPE, text(prompt), WorkerId(0)));
    assert_eq!(index.chars_of(WorkerId(0)) / 1_000, 19, "there is room again");
}

#[test]
fn with_less_memory_the_oldest_of_all_workers_goes() {
    let bytes = |max_tree_bytes| IndexLimits { max_tree_size: 1 << 20, max_tree_bytes };
    let mut index = PrefixIndex::new(bytes(1 << 20));
    let prompts: Vec<String> = (0..200).map(|n| letters(n, 2_000)).collect();
    for (n, prompt) in prompts.iter().enumerate() {
        index.credit(SCOPE, text(prompt), WorkerId(n as u32 % 4));
    }
    index.set_limits(bytes(256 << 10));
    while index.sweep(10) {
        index.check().expect("invariants");
    }
    assert!(index.stats().bytes <= 256 << 10);
    let kept = prompts.iter().rev().take_while(|it| index.lookup(SCOPE, text(it)).best() == 2_000).count();
    let rest = &prompts[..prompts.len() - kept];
    assert!(kept > 80, "{kept} of 2 KB each in 256 KB");
    assert!(rest.iter().all(|prompt| index.lookup(SCOPE, text(prompt)).best() < 10));
}

#[test]
fn a_credit_in_an_index_that_is_too_large_makes_room_and_notes_no_more_than_that() {
    let mut index = index(200_000);
    for n in 0..12_500 {
        index.credit(SCOPE, text(&letters(n, 8)), WorkerId(0));
    }
    let before = index.chars_of(WorkerId(0));
    index.set_limits(IndexLimits { max_tree_size: 1_000, max_tree_bytes: 1 << 30 });
    let mut credits = 0;
    while index.lookup(SCOPE, text("a new one")).of(WorkerId(0)) < 9 {
        let held = index.chars_of(WorkerId(0));
        index.credit(SCOPE, text("a new one"), WorkerId(0));
        index.check().expect("invariants");
        assert!(index.chars_of(WorkerId(0)) < held && held - index.chars_of(WorkerId(0)) <= 1024 * 8);
        credits += 1;
    }
    assert!(credits > 3, "{credits} for {before} characters");
    while index.sweep(10) {}
    index.check().expect("the bounds hold");
    assert_eq!(index.lookup(SCOPE, text("a new one")).of(WorkerId(0)), 9, "it is the newest");
}
