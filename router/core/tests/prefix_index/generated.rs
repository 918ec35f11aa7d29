//! Prompts known by where their tokens come from are as good as the tokens: two indexes that are told the same, one of each,
//! stay the same in all that can be seen, memory included.

use proptest::prelude::*;
use protocol::tokenizer::block_token;
use router_core::ids::{ScopeId, WorkerId};
use router_core::index::{Credit, IndexLimits, PrefixIndex};
use router_core::prompt::PromptView;
use router_core::{Generated, Part};

/// What is done to both.
#[derive(Debug, Clone)]
enum Act {
    Credit { prompt: Vec<Part>, worker: u32, withdraw: bool },
    Clear(u32),
    Sweep(usize),
    Limits(IndexLimits),
}

/// Prompts of few blocks of few lengths, so that many begin alike, and some so by accident: blocks 0 and `TWIN` begin with the
/// same token.
fn prompt() -> impl Strategy<Value = Vec<Part>> {
    let twin = twin();
    let block = prop_oneof![4 => 0..6u64, 1 => Just(twin)];
    let tokens = prop_oneof![1..20u32, Just(64), Just(65), 200..2_000u32];
    prop::collection::vec((block, tokens).prop_map(|(block, tokens)| Part { block, start: 0, tokens }), 1..6)
}

/// A block whose first token is that of block 0, and whose second one is not.
fn twin() -> u64 {
    let alike = |block: &u64| {
        block_token(*block, 0) == block_token(0, 0) && block_token(*block, 1) != block_token(0, 1)
    };
    (1_000..).find(alike).expect("one in 2^18 is")
}

fn limits() -> impl Strategy<Value = IndexLimits> {
    let sizes = prop_oneof![Just(1_000), Just(20_000), Just(1 << 30)];
    let bytes = prop_oneof![Just(30_000), Just(100_000), Just(1 << 30)];
    (sizes, bytes).prop_map(|(max_tree_size, max_tree_bytes)| IndexLimits { max_tree_size, max_tree_bytes })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        20 => (prompt(), 0..4u32, prop::bool::weighted(0.2))
            .prop_map(|(prompt, worker, withdraw)| Act::Credit { prompt, worker, withdraw }),
        1 => (0..4u32).prop_map(Act::Clear),
        1 => (1..20usize).prop_map(Act::Sweep),
        1 => limits().prop_map(Act::Limits),
    ]
}

fn act_on(index: &mut PrefixIndex, act: &Act, view: PromptView<'_>) -> Option<Credit> {
    match act {
        Act::Credit { worker, withdraw, .. } => {
            let credit = index.credit(ScopeId(0), view, WorkerId(*worker));
            if !withdraw {
                return Some(credit);
            }
            index.withdraw(view, credit);
        }
        Act::Clear(worker) => index.clear(WorkerId(*worker)),
        Act::Sweep(nodes) => {
            index.sweep(*nodes);
        }
        Act::Limits(limits) => index.set_limits(*limits),
    }
    None
}

proptest! {
    #[test]
    fn parts_are_as_good_as_tokens(limits in limits(), acts in prop::collection::vec(act(), 1..60)) {
        let (mut by_parts, mut by_tokens) = (PrefixIndex::new(limits), PrefixIndex::new(limits));
        for act in &acts {
            let parts: &[Part] = if let Act::Credit { prompt, .. } = act { prompt } else { &[] };
            let tokens: Vec<u32> =
                parts.iter().flat_map(|part| (0..part.tokens).map(|i| block_token(part.block, i))).collect();
            let (one, two) = (PromptView::Generated(Generated::new(parts)), PromptView::Tokens(&tokens));
            prop_assert_eq!(by_parts.lookup(ScopeId(0), one), by_tokens.lookup(ScopeId(0), two));
            prop_assert_eq!(act_on(&mut by_parts, act, one), act_on(&mut by_tokens, act, two));
            prop_assert_eq!(by_parts.stats(), by_tokens.stats());
            by_parts.check().map_err(TestCaseError::fail)?;
        }
    }
}
