//! Random calls, to the index and to its model.

use proptest::prelude::*;
use router_core::ids::{ScopeId, WorkerId};
use router_core::index::{Credit, Held, IndexLimits, Match, PrefixIndex, Shared};
use router_core::prompt::PromptView;

use crate::model::{Model, Prompt};

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
    Resize(u64),
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
        1 => (0..60_u64).prop_map(Op::Resize),
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
    /// Of the index, which counts credits for which it has no room at all otherwise.
    clock: u64,
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
        let model = Model::new(max_tree_size);
        Self { index, model, bookings: Vec::new(), exact: max_tree_bytes == u64::MAX >> 1 }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Credit { scope, prompt, worker } => {
                let epoch = self.model.credit(*scope, prompt, *worker);
                let credit = self.index.credit(ScopeId(*scope), prompt.view(), WorkerId(*worker));
                let (scope, worker, prompt) = (*scope, *worker, prompt.clone());
                self.agree(scope, &prompt);
                let clock = self.index.clock();
                self.bookings.push(Booking { scope, prompt, worker, credit, epoch, clock });
            }
            Op::Withdraw(n) if !self.bookings.is_empty() => {
                let booking = self.bookings.remove(n % self.bookings.len());
                let Booking { scope, prompt, worker, credit, epoch, clock } = booking;
                self.model.withdraw(scope, &prompt, worker, epoch);
                // What is recalled is as good as the prompt, and needed only where something is.
                match self.index.recall(clock) {
                    _ if n % 2 == 0 => self.index.withdraw(prompt.view(), credit),
                    Some(Held::Text(text)) => self.index.withdraw(PromptView::Text(&text), credit),
                    Some(Held::Tokens(ids)) => self.index.withdraw(PromptView::Tokens(&ids), credit),
                    None => {}
                }
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
            Op::Resize(size) if self.exact => {
                self.model.resize(*size);
                self.index.set_limits(IndexLimits { max_tree_size: *size, max_tree_bytes: u64::MAX >> 1 });
                self.sweep_all();
            }
            // In the middle of it other calls come.
            Op::Resize(size) => self
                .index
                .set_limits(IndexLimits { max_tree_size: 4 * size, max_tree_bytes: 5_000 + 500 * size }),
            Op::Lookup { scope, prompt } => self.agree(*scope, prompt),
        }
        self.index.check().expect("invariants");
    }

    fn agree(&self, scope: u32, prompt: &Prompt) {
        let (found, expected) =
            (self.index.lookup(ScopeId(scope), prompt.view()), self.model.lookup(scope, prompt));
        assert_eq!(found.prompt_chars(), prompt.heads().iter().map(Prompt::weight).sum::<u64>());
        if self.exact {
            assert_eq!(found.rows(), expected, "scope {scope}, {prompt:?}");
            assert_eq!(found.looked(), self.model.epoch());
        }
        self.is_recalled(scope, prompt);
    }

    /// What anybody holds of the prompt is the beginning of what is recalled, and all of that is held.
    fn is_recalled(&self, scope: u32, prompt: &Prompt) {
        let shared = self.index.shared(ScopeId(scope), prompt.view());
        if self.exact {
            assert_eq!(shared.map_or(0, |shared| shared.symbols), self.model.shared(scope, prompt));
        }
        let longest = self.index.lookup(ScopeId(scope), prompt.view()).best();
        let Some(Shared { symbols, credit }) = shared else { return assert_eq!(longest, 0) };
        let recalled = match self.index.recall(credit).expect("somebody holds it") {
            Held::Text(text) => Prompt::Text(text),
            Held::Tokens(ids) => Prompt::Tokens(ids),
        };
        assert!(recalled.shares(prompt, symbols), "{recalled:?} for {symbols} of {prompt:?}");
        let whole = self.index.shared(ScopeId(scope), recalled.view()).map(|shared| shared.symbols);
        assert_eq!(whole, Some(recalled.heads().len()));
    }

    fn agree_on_everything(&self) {
        let chars: u64 = (0..4).map(|worker| self.index.chars_of(WorkerId(worker))).sum();
        assert_eq!(chars, (0..4).map(|worker| self.model.chars(worker)).sum::<u64>());
        assert_eq!(self.index.stats().evicted_chars, self.model.evicted_chars);
        for (scope, prompt) in self.model.owned.values().flat_map(|owned| owned.keys()) {
            self.agree(*scope, prompt);
        }
    }

    fn sweep_all(&mut self) {
        while self.index.sweep(3) {
            self.index.check().expect("invariants");
        }
        self.index.check().expect("the bounds hold");
    }

    fn clear(&mut self) {
        self.sweep_all();
        for worker in 0..4 {
            self.index.forget(WorkerId(worker));
        }
        self.sweep_all();
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
                let found = pair.index.lookup(ScopeId(*scope), prompt.view());
                let all = pair.model.lookup(*scope, prompt);
                for &Match { worker, chars, .. } in found.rows() {
                    let held = all.iter().find(|row| row.worker == worker).map_or(0, |row| row.chars);
                    prop_assert!(chars <= held, "{worker:?}: {chars} of {all:?}");
                }
            }
        }
        pair.clear();
    }
}
