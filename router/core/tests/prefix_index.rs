//! The prefix index against a model that is too slow to be wrong.

use std::collections::BTreeMap;

use proptest::prelude::*;
use router_core::ids::{ScopeId, WorkerId};
use router_core::index::{Credit, IndexLimits, Matches, PrefixIndex};
use router_core::prompt::PromptView;

/// A prompt that owns its symbols.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Prompt {
    Text(Vec<u8>),
    Tokens(Vec<u32>),
}

impl Prompt {
    fn view(&self) -> PromptView<'_> {
        match self {
            Self::Text(text) => PromptView::Text(text),
            Self::Tokens(ids) => PromptView::Tokens(ids),
        }
    }

    /// Its first `n` symbols, for every `n` from 1.
    fn heads(&self) -> Vec<Prompt> {
        match self {
            Self::Text(text) => (1..=text.len()).map(|n| Self::Text(text[..n].to_vec())).collect(),
            Self::Tokens(ids) => (1..=ids.len()).map(|n| Self::Tokens(ids[..n].to_vec())).collect(),
        }
    }

    /// Characters of the last symbol.
    fn weight(&self) -> u64 {
        match self {
            Self::Text(text) => text.last().map_or(0, |byte| u64::from(!(0x80..0xC0).contains(byte))),
            Self::Tokens(_) => 4,
        }
    }

    fn is_longer_than(&self, other: &Prompt) -> bool {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => a.len() > b.len() && a.starts_with(b),
            (Self::Tokens(a), Self::Tokens(b)) => a.len() > b.len() && a.starts_with(b),
            _ => false,
        }
    }
}

/// One owned symbol: named by the whole head of the prompt that it ends.
type Place = (u32, Prompt);

/// Per worker every symbol it owns, each with its last epoch and whether that one created it. No tree, no edges.
#[derive(Debug, Default)]
struct Model {
    max_tree_size: u64,
    epoch: u64,
    owned: BTreeMap<u32, BTreeMap<Place, (u64, bool)>>,
    forgotten: Vec<u32>,
    evicted_chars: u64,
}

impl Model {
    fn chars(&self, worker: u32) -> u64 {
        self.owned.get(&worker).map_or(0, |owned| owned.keys().map(|(_, head)| head.weight()).sum())
    }

    /// The heads of the part of the prompt that fits into one worker's share.
    fn fitting(&self, prompt: &Prompt) -> Vec<Prompt> {
        let mut chars = 0;
        let fits = |head: &Prompt| {
            chars += head.weight();
            chars <= self.max_tree_size
        };
        prompt.heads().into_iter().take_while(fits).collect()
    }

    fn credit(&mut self, scope: u32, prompt: &Prompt, worker: u32) -> u64 {
        // Bytes that continue a character which does not fit do not fit either, but those of the last one do.
        let heads = self.fitting(prompt);
        if heads.is_empty() || self.forgotten.contains(&worker) {
            return 0;
        }
        self.epoch += 1;
        let epoch = self.epoch;
        let owned = self.owned.entry(worker).or_default();
        let mut lacking = 0;
        for head in &heads {
            match owned.get_mut(&(scope, head.clone())) {
                Some(stamp) => *stamp = (epoch, false),
                None => lacking += head.weight(),
            }
        }
        while self.chars(worker) + lacking > self.max_tree_size {
            self.evict_one_symbol(worker);
        }
        let owned = self.owned.entry(worker).or_default();
        for head in heads {
            owned.entry((scope, head)).or_insert((epoch, true));
        }
        epoch
    }

    /// Takes the least recent of the symbols that no other owned symbol follows.
    fn evict_one_symbol(&mut self, worker: u32) {
        let owned = self.owned.entry(worker).or_default();
        let is_leaf =
            |place: &Place| !owned.keys().any(|other| other.0 == place.0 && other.1.is_longer_than(&place.1));
        let oldest = owned.iter().filter(|(place, _)| is_leaf(place)).min_by_key(|(_, stamp)| stamp.0);
        let place = oldest.expect("something is owned").0.clone();
        self.evicted_chars += place.1.weight();
        owned.remove(&place);
    }

    fn withdraw(&mut self, scope: u32, prompt: &Prompt, worker: u32, epoch: u64) {
        let Some(owned) = self.owned.get_mut(&worker) else { return };
        for head in prompt.heads() {
            let place = (scope, head);
            if owned.get(&place) == Some(&(epoch, true)) {
                owned.remove(&place);
            }
        }
    }

    fn clear(&mut self, worker: u32) {
        self.owned.remove(&worker);
    }

    fn forget(&mut self, worker: u32) {
        self.clear(worker);
        self.forgotten.push(worker);
    }

    fn lookup(&self, scope: u32, prompt: &Prompt) -> Matches {
        let heads = prompt.heads();
        let matched = |owned: &BTreeMap<Place, (u64, bool)>| {
            let held = heads.iter().take_while(|head| owned.contains_key(&(scope, (*head).clone())));
            let held: Vec<u64> = held.map(Prompt::weight).collect();
            (!held.is_empty()).then(|| held.iter().sum::<u64>())
        };
        let rows = self.owned.iter().filter_map(|(&worker, owned)| Some((WorkerId(worker), matched(owned)?)));
        Matches::new(rows, heads.iter().map(Prompt::weight).sum())
    }
}

#[derive(Debug, Clone)]
enum Op {
    Credit {
        scope: u32,
        prompt: Prompt,
        worker: u32,
    },
    /// Of the n-th credit that is still out.
    Withdraw(usize),
    Clear(u32),
    Forget(u32),
    Sweep(usize),
    Lookup {
        scope: u32,
        prompt: Prompt,
    },
}

/// Prompts over two or three symbols, so that they share heads; the bytes are cut anywhere in their characters.
fn prompt() -> impl Strategy<Value = Prompt> {
    let letters = prop::collection::vec(prop::sample::select(vec!["a", "b", "é", "日"]), 0..14);
    let text = (letters, 0..3_usize).prop_map(|(letters, lost)| {
        let text = letters.concat().into_bytes();
        Prompt::Text(text[..text.len().saturating_sub(lost)].to_vec())
    });
    let tokens = prop::collection::vec(0..2_u32, 0..10).prop_map(Prompt::Tokens);
    let pure = prop::collection::vec(prop::sample::select(b"ab".to_vec()), 0..24).prop_map(Prompt::Text);
    prop_oneof![text, tokens, pure]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (0..2_u32, prompt(), 0..4_u32).prop_map(|(scope, prompt, worker)| Op::Credit { scope, prompt, worker }),
        4 => (0..8_usize).prop_map(Op::Withdraw),
        2 => (0..4_u32).prop_map(Op::Clear),
        1 => (0..4_u32).prop_map(Op::Forget),
        2 => (0..4_usize).prop_map(Op::Sweep),
        4 => (0..2_u32, prompt()).prop_map(|(scope, prompt)| Op::Lookup { scope, prompt }),
    ]
}

/// A credit that may still be withdrawn, in both worlds.
struct Booking {
    scope: u32,
    prompt: Prompt,
    worker: u32,
    credit: Credit,
    epoch: u64,
}

/// Both worlds side by side. With `exact`, memory is no limit and the model says what every lookup must give.
struct Pair {
    index: PrefixIndex,
    model: Model,
    bookings: Vec<Booking>,
    exact: bool,
}

impl Pair {
    fn new(max_tree_size: u64, max_tree_bytes: u64) -> Self {
        let index = PrefixIndex::new(IndexLimits { max_tree_size, max_tree_bytes });
        let model = Model { max_tree_size, ..Model::default() };
        Self { index, model, bookings: Vec::new(), exact: max_tree_bytes == u64::MAX >> 1 }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Credit { scope, prompt, worker } => {
                let epoch = self.model.credit(*scope, prompt, *worker);
                let credit = self.index.credit(ScopeId(*scope), prompt.view(), WorkerId(*worker));
                let (scope, worker, prompt) = (*scope, *worker, prompt.clone());
                self.agree(scope, &prompt);
                self.bookings.push(Booking { scope, prompt, worker, credit, epoch });
            }
            Op::Withdraw(n) if !self.bookings.is_empty() => {
                let booking = self.bookings.remove(n % self.bookings.len());
                let Booking { scope, prompt, worker, credit, epoch } = booking;
                self.model.withdraw(scope, &prompt, worker, epoch);
                self.index.withdraw(prompt.view(), credit);
                self.agree(scope, &prompt);
            }
            Op::Withdraw(_) => {}
            Op::Clear(worker) => {
                self.model.clear(*worker);
                self.index.clear(WorkerId(*worker));
                assert_eq!(self.index.chars_of(WorkerId(*worker)), 0);
            }
            Op::Forget(worker) => {
                self.model.forget(*worker);
                self.index.forget(WorkerId(*worker));
                assert_eq!(self.index.chars_of(WorkerId(*worker)), 0);
            }
            Op::Sweep(budget) => {
                self.index.sweep(*budget);
            }
            Op::Lookup { scope, prompt } => self.agree(*scope, prompt),
        }
        self.index.check().expect("invariants");
    }

    fn agree(&self, scope: u32, prompt: &Prompt) {
        let (found, expected) =
            (self.index.lookup(ScopeId(scope), prompt.view()), self.model.lookup(scope, prompt));
        assert_eq!(found.prompt_chars(), expected.prompt_chars());
        if self.exact {
            assert_eq!(found, expected, "scope {scope}, {prompt:?}");
        }
    }

    fn agree_on_everything(&self) {
        let chars: u64 = (0..4).map(|worker| self.index.chars_of(WorkerId(worker))).sum();
        assert_eq!(chars, (0..4).map(|worker| self.model.chars(worker)).sum::<u64>());
        assert_eq!(self.index.stats().evicted_chars, self.model.evicted_chars);
        for (scope, prompt) in self.model.owned.values().flat_map(|owned| owned.keys()) {
            self.agree(*scope, prompt);
        }
    }

    fn clear(&mut self) {
        for worker in 0..4 {
            self.index.forget(WorkerId(worker));
        }
        while self.index.sweep(3) {
            self.index.check().expect("invariants");
        }
        let stats = self.index.stats();
        assert_eq!((stats.nodes, stats.bytes, stats.chars), (0, 0, vec![]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_model(max_tree_size in 0..60_u64, ops in prop::collection::vec(op(), 1..60)) {
        let mut pair = Pair::new(max_tree_size, u64::MAX >> 1);
        for op in &ops {
            pair.apply(op);
        }
        pair.agree_on_everything();
        pair.clear();
    }

    /// Memory is so short that it, not the characters, decides. What is left must still be true.
    #[test]
    fn short_of_memory_it_forgets_but_never_invents(
        max_tree_bytes in 8_000..40_000_u64,
        ops in prop::collection::vec(op(), 1..150),
    ) {
        let mut pair = Pair::new(1_000_000, max_tree_bytes);
        for op in &ops {
            pair.apply(op);
            if let Op::Credit { scope, prompt, .. } | Op::Lookup { scope, prompt } = op {
                let (found, all) = (pair.index.lookup(ScopeId(*scope), prompt.view()), pair.model.lookup(*scope, prompt));
                for &(worker, chars) in found.rows() {
                    prop_assert!(chars <= all.of(worker), "{worker:?}: {chars} of {all:?}");
                }
            }
        }
        pair.clear();
    }
}

const SCOPE: ScopeId = ScopeId(0);

fn index(max_tree_size: u64) -> PrefixIndex {
    PrefixIndex::new(IndexLimits { max_tree_size, max_tree_bytes: 1 << 30 })
}

fn text(text: &str) -> PromptView<'_> {
    PromptView::Text(text.as_bytes())
}

fn rows(index: &PrefixIndex, prompt: &str) -> Vec<(u32, u64)> {
    index.lookup(SCOPE, text(prompt)).rows().iter().map(|row| (row.0.0, row.1)).collect()
}

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
    assert_eq!(index.lookup(SCOPE, text("abc")).rows(), [(WorkerId(0), 3)]);
    assert_eq!(index.lookup(SCOPE, PromptView::Tokens(&[97, 98])).rows(), [(WorkerId(1), 8)]);
    assert_eq!(index.lookup(SCOPE, PromptView::Unreadable), Matches::default());
}

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
    assert_eq!(index.lookup(SCOPE, PromptView::Tokens(&[1, 2, 3])).rows(), [(WorkerId(0), 4)]);
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
