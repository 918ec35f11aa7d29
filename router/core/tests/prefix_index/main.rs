//! The prefix index as its callers see it.

mod bounds;
mod generated;
mod model;
mod oracle;
mod ownership;
mod shape;

use router_core::ids::ScopeId;
use router_core::index::{IndexLimits, PrefixIndex};
use router_core::prompt::PromptView;

const SCOPE: ScopeId = ScopeId(0);

fn index(max_tree_size: u64) -> PrefixIndex {
    PrefixIndex::new(IndexLimits { max_tree_size, max_tree_bytes: 1 << 30 })
}

fn text(text: &str) -> PromptView<'_> {
    PromptView::Text(text.as_bytes())
}

fn rows(index: &PrefixIndex, prompt: &str) -> Vec<(u32, u64)> {
    index.lookup(SCOPE, text(prompt)).rows().iter().map(|row| (row.worker.0, row.chars)).collect()
}
