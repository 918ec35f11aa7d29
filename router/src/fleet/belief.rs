//! The prefix index, as a policy that follows prefixes wants it. It is made when such a policy is first there, and kept
//! while another one rules: what it knew is then still known.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{MappedRwLockReadGuard, MappedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use router_core::ids::{ScopeId, WorkerId};
use router_core::index::{Credit, PrefixIndex};
use router_core::prompt::PromptView;
use router_core::{Role, Signals};

use crate::record::Tape;
use crate::record::line::{Line, Look};

/// The prefix index, absent until a policy first wants it.
#[derive(Debug, Default)]
pub(crate) struct Belief {
    /// Whether the policy looks at it.
    wanted: AtomicBool,
    index: RwLock<Option<PrefixIndex>>,
    /// Told under the lock what is done to the index.
    tape: Option<Arc<Tape>>,
}

/// A credit, and what it was for.
#[derive(Debug)]
pub(crate) struct Owed {
    credit: Credit,
    /// The number under which the prompt's look was recorded.
    look: u64,
    role: Role,
}

impl Belief {
    /// What a policy with these signals needs.
    pub(crate) fn new(signals: Signals, tape: Option<Arc<Tape>>) -> Self {
        let belief = Self { tape, ..Self::default() };
        belief.want(signals);
        belief
    }

    /// Another policy rules.
    pub(crate) fn want(&self, signals: Signals) {
        if let Some(limits) = signals.prefix_index {
            self.index.write().get_or_insert_with(|| PrefixIndex::new(limits)).set_limits(limits);
        }
        self.wanted.store(signals.prefix_index.is_some(), Ordering::Release);
    }

    /// To look something up; nothing if nobody wants to know.
    pub(crate) fn read(&self) -> Option<MappedRwLockReadGuard<'_, PrefixIndex>> {
        let wanted = self.wanted.load(Ordering::Acquire);
        wanted.then(|| RwLockReadGuard::try_map(self.index.read(), Option::as_ref).ok()).flatten()
    }

    /// To look a prompt up, as [`Self::read`]; `look` is what is recorded of that.
    pub(crate) fn read_for(
        &self,
        prompt: PromptView<'_>,
        look: Option<Box<Look>>,
    ) -> Option<MappedRwLockReadGuard<'_, PrefixIndex>> {
        let index = self.read();
        if let (Some(tape), Some(mut look)) = (&self.tape, look) {
            if let Some(index) = &index {
                look.share(prompt, index);
            }
            tape.put(Line::Look(look));
        }
        index
    }

    /// Credits a worker of this role with a prompt whose look has this number; nothing if nobody wants to know.
    pub(crate) fn credit(
        &self,
        scope: ScopeId,
        prompt: PromptView<'_>,
        (worker, role): (WorkerId, Role),
        look: u64,
    ) -> Option<Owed> {
        let mut index = self.write()?;
        let shared = self.tape.as_ref().and_then(|_| index.shared(scope, prompt)).map(Into::into);
        let credit = index.credit(scope, prompt, worker);
        let clock = index.clock();
        self.put(|| Line::Credit { n: look, role: role.into(), worker: worker.0, shared, clock });
        Some(Owed { credit, look, role })
    }

    /// To note something; nothing if nobody wants to know.
    fn write(&self) -> Option<MappedRwLockWriteGuard<'_, PrefixIndex>> {
        self.wanted.load(Ordering::Acquire).then(|| self.write_anyway()).flatten()
    }

    /// Takes a credit back, whoever rules.
    pub(crate) fn withdraw(&self, prompt: PromptView<'_>, owed: Owed) {
        let Owed { credit, look, role } = owed;
        if let Some(mut index) = self.write_anyway() {
            index.withdraw(prompt, credit);
            self.put(|| Line::Withdraw { n: look, role: role.into() });
        }
    }

    /// Nothing is believed to be in the caches of these workers, whoever rules.
    pub(crate) fn forget(&self, workers: &[WorkerId]) {
        if let Some(mut index) = self.write_anyway() {
            workers.iter().for_each(|worker| index.clear(*worker));
            self.put(|| Line::Clear { workers: workers.iter().map(|worker| worker.0).collect() });
        }
    }

    /// These workers have left for good.
    pub(crate) fn remove(&self, workers: &[WorkerId]) {
        if let Some(mut index) = self.write_anyway() {
            workers.iter().for_each(|worker| index.forget(*worker));
            self.put(|| Line::Forget { workers: workers.iter().map(|worker| worker.0).collect() });
        }
    }

    /// Gives back memory; whether there may be more to give back.
    pub(crate) fn sweep(&self, nodes: usize) -> bool {
        self.write_anyway().is_some_and(|mut index| index.sweep(nodes))
    }

    fn put(&self, line: impl FnOnce() -> Line) {
        if let Some(tape) = &self.tape {
            tape.put(line());
        }
    }

    fn write_anyway(&self) -> Option<MappedRwLockWriteGuard<'_, PrefixIndex>> {
        RwLockWriteGuard::try_map(self.index.write(), Option::as_mut).ok()
    }
}
