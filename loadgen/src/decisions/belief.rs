//! The prefix index of a replay.
//!
//! A recording does not tell what a prompt says, but how much of it the index held at each lookup and credit, and by which
//! credit. So a prompt is made for the moment: it begins with just that, and goes on as nothing does that is held there. Then
//! this index is asked and told what the recorded one was, but for the symbols, and answers the same. It counts credits as that
//! one did: a prompt is found by the number of its credit.

use std::collections::HashMap;

use router::record::line::{RoleName, Shared};
use router_core::ids::{ScopeId, WorkerId};
use router_core::index::{Credit, Held, IndexLimits, Matches, PrefixIndex};

use super::prompt::Prompt;

/// Rows of the index that are given back at a time.
const SWEEP: usize = 512;

/// See the module's description.
#[derive(Debug)]
pub(super) struct Belief {
    index: PrefixIndex,
    /// It is told what the recorded one was. Another one holds other prompts, and they are only made of their tags.
    is_same: bool,
    /// By look and role: what may be taken back, and the clock behind it.
    credits: HashMap<(u64, RoleName), (Credit, u64)>,
}

impl Belief {
    pub(super) fn new(limits: IndexLimits, is_same: bool) -> Self {
        Self { index: PrefixIndex::new(limits), is_same, credits: HashMap::new() }
    }

    pub(super) fn set_limits(&mut self, limits: IndexLimits) {
        self.index.set_limits(limits);
    }

    /// Gives back some memory.
    pub(super) fn sweep(&mut self) {
        self.index.sweep(SWEEP);
    }

    /// Who holds how much of a prompt of which so much was held.
    pub(super) fn lookup(&self, scope: ScopeId, prompt: Prompt, shared: Option<Shared>) -> Matches {
        self.index.lookup(scope, self.made(scope, prompt, shared).view())
    }

    /// Credits a worker with the prompt of a look; `shared` is how much of it was held then, `clock` how many credits there were
    /// with this one.
    pub(super) fn credit(
        &mut self,
        look: (u64, RoleName),
        (scope, worker): (ScopeId, WorkerId),
        prompt: Prompt,
        (shared, clock): (Option<Shared>, u64),
    ) {
        let prompt = self.made(scope, prompt, shared);
        if self.is_same {
            self.index.resume(clock.saturating_sub(1));
        }
        let credit = self.index.credit(scope, prompt.view(), worker);
        self.credits.insert(look, (credit, self.index.clock()));
    }

    /// Takes a credit back.
    pub(super) fn withdraw(&mut self, look: (u64, RoleName)) {
        let Some((credit, clock)) = self.credits.remove(&look) else { return };
        // What is not recalled is held for other reasons too, or no more.
        if let Some(held) = self.index.recall(clock) {
            self.index.withdraw(Prompt::from(held).view(), credit);
        }
    }

    /// Nothing more will be said of this look.
    pub(super) fn pass(&mut self, look: (u64, RoleName)) {
        self.credits.remove(&look);
    }

    pub(super) fn clear(&mut self, worker: WorkerId) {
        self.index.clear(worker);
    }

    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.index.forget(worker);
    }

    /// The prompt with the beginning that it shared. One of which that is not known stays as it is: where the recording begins
    /// in the middle, its tags are all there is.
    fn made(&self, scope: ScopeId, mut prompt: Prompt, shared: Option<Shared>) -> Prompt {
        if !self.is_same {
            return prompt;
        }
        let symbols = match shared {
            None => 0,
            Some(Shared(symbols, credit)) => {
                let symbols = usize::try_from(symbols).unwrap_or(usize::MAX);
                match self.index.recall(credit) {
                    Some(held) if prompt.begin(&held, symbols) => symbols,
                    _ => return prompt,
                }
            }
        };
        // The next symbol is one that does not follow there: if the recorded one did not, there is one.
        let longer = |prompt: &Prompt| {
            self.index.shared(scope, prompt.view()).is_some_and(|shared| shared.symbols > symbols)
        };
        let mut tries = 0;
        while longer(&prompt) && tries < MOST_SYMBOLS {
            prompt.change(symbols);
            tries += 1;
        }
        prompt
    }
}

/// As many as a byte of text can be. Of token ids the first one usually does.
const MOST_SYMBOLS: usize = 256;

impl From<Held> for Prompt {
    fn from(held: Held) -> Self {
        match held {
            Held::Text(text) => Self::Text(text),
            Held::Tokens(ids) => Self::Ids(ids),
        }
    }
}
