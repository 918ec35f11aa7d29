//! How much of a prompt anybody holds, and what somebody holds. For those who write down what an index is told without its
//! prompts: another index that is told the same can then be asked with other prompts that share just as much.

use super::edge::Stretch;
use super::forest::Forest;
use super::holdings::{Holdings, Leaf};
use super::node::{NodeId, Owner};
use super::symbol::{Run, Symbol};
use super::{GeneratedToken, PrefixIndex};
use crate::ids::ScopeId;
use crate::prompt::PromptView;

/// What a prompt has in common with those of a scope that are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shared {
    /// Bytes or token ids from its beginning, at least 1.
    pub symbols: usize,
    /// The credit, by the index's clock, of a run that begins with them: [`PrefixIndex::recall`] finds it.
    pub credit: u64,
}

/// A run of symbols that somebody holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// Bytes of text.
    Text(Vec<u8>),
    /// Token ids.
    Tokens(Vec<u32>),
}

/// Children of one node that are compared: any of them would do, but a recent one is more likely to be known.
const MOST_COMPARED: usize = 64;

impl PrefixIndex {
    /// How much of the prompt is held by anybody; `None`: nothing.
    pub fn shared(&self, scope: ScopeId, prompt: PromptView<'_>) -> Option<Shared> {
        match prompt.indexed() {
            PromptView::Text(run) => u8::forest(&self.forests).shared(scope, run, &self.holdings),
            PromptView::Tokens(run) => u32::forest(&self.forests).shared(scope, run, &self.holdings),
            PromptView::Generated(run) => {
                GeneratedToken::forest(&self.forests).shared(scope, run, &self.holdings)
            }
            PromptView::Unreadable => None,
        }
    }

    /// What is left of the prompt of a credit, by the clock of that; `None` if nothing is, or if all of it was credited again
    /// to the same worker or is the beginning of what that holds. Generated prompts are not recalled.
    pub fn recall(&self, credit: u64) -> Option<Held> {
        match self.holdings.leaf(credit)? {
            Leaf::Text(node) => Some(Held::Text(self.forests.text.run_to(node))),
            Leaf::Tokens(node) => Some(Held::Tokens(self.forests.tokens.run_to(node))),
            Leaf::Generated(_) => None,
        }
    }

    /// How many credits there were: the clock of the next one is one more, if it changes anything.
    pub fn clock(&self) -> u64 {
        self.epoch
    }

    /// Goes on as if there had been so many credits at least.
    pub fn resume(&mut self, clock: u64) {
        self.epoch = self.epoch.max(clock);
    }
}

impl<S: Symbol> Forest<S> {
    fn shared(&self, scope: ScopeId, run: S::Run<'_>, holdings: &Holdings) -> Option<Shared> {
        let path = self.walk(scope, run);
        let mut end = path.matched;
        let inside = path.inside.map(|(node, same)| (node, end + same));
        let whole = path.nodes.iter().rev().map(|&node| {
            let symbols = end;
            end -= self.arena.node(node).edge.run().len();
            (node, symbols)
        });
        // What only the gone hold is nobody's.
        let is_live = |owner: &&Owner| holdings.get(owner.tenant).is_some();
        inside.into_iter().chain(whole).find_map(|(node, symbols)| {
            let owners = self.arena.node(node).owners.as_slice().iter();
            let latest = owners.filter(is_live).max_by_key(|owner| owner.stamp.epoch())?;
            Some(Shared { symbols, credit: self.leaf_below(node, *latest) })
        })
    }

    /// The credit of one of the owner's leaves below a node.
    fn leaf_below(&self, mut node: NodeId, mut owner: Owner) -> u64 {
        while owner.kids > 0 {
            let children = self.arena.node(node).children.values();
            let owned = |child: &NodeId| Some((*child, *self.arena.node(*child).owners.get(owner.tenant)?));
            let near = children.clone().take(MOST_COMPARED).filter_map(owned);
            let latest = near.max_by_key(|(_, owner)| owner.stamp.epoch());
            let Some(below) = latest.or_else(|| children.skip(MOST_COMPARED).find_map(owned)) else { break };
            (node, owner) = below;
        }
        owner.stamp.epoch()
    }
}

impl<S> Forest<S>
where
    S: for<'a> Symbol<Run<'a> = &'a [S]>,
{
    /// All symbols from the root to the end of a node.
    fn run_to(&self, node: NodeId) -> Vec<S> {
        let above = |node: &NodeId| Some(self.arena.node(*node).parent).filter(|id| *id != NodeId::NONE);
        let nodes: Vec<NodeId> = std::iter::successors(Some(node), above).collect();
        nodes.iter().rev().fold(Vec::new(), |mut run, node| {
            run.extend_from_slice(self.arena.node(*node).edge.run());
            run
        })
    }
}
