//! The prefix index, as a policy that follows prefixes wants it. It is made when such a policy is first there, and kept
//! while another one rules: what it knew is then still known.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{MappedRwLockReadGuard, MappedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use router_core::Signals;
use router_core::ids::WorkerId;
use router_core::index::{Credit, PrefixIndex};
use router_core::prompt::PromptView;

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Belief {
    /// Whether the policy looks at it.
    wanted: AtomicBool,
    index: RwLock<Option<PrefixIndex>>,
}

impl Belief {
    /// What a policy with these signals needs.
    pub(crate) fn new(signals: Signals) -> Self {
        let belief = Self::default();
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

    /// To note something; nothing if nobody wants to know.
    pub(crate) fn write(&self) -> Option<MappedRwLockWriteGuard<'_, PrefixIndex>> {
        self.wanted.load(Ordering::Acquire).then(|| self.write_anyway()).flatten()
    }

    /// Takes a credit back, whoever rules.
    pub(crate) fn withdraw(&self, prompt: PromptView<'_>, credit: Credit) {
        if let Some(mut index) = self.write_anyway() {
            index.withdraw(prompt, credit);
        }
    }

    /// Nothing is believed to be in the caches of these workers, whoever rules.
    pub(crate) fn forget(&self, workers: &[WorkerId]) {
        if let Some(mut index) = self.write_anyway() {
            workers.iter().for_each(|worker| index.clear(*worker));
        }
    }

    /// These workers have left for good.
    pub(crate) fn remove(&self, workers: &[WorkerId]) {
        if let Some(mut index) = self.write_anyway() {
            workers.iter().for_each(|worker| index.forget(*worker));
        }
    }

    /// Gives back memory; whether there may be more to give back.
    pub(crate) fn sweep(&self, nodes: usize) -> bool {
        self.write_anyway().is_some_and(|mut index| index.sweep(nodes))
    }

    fn write_anyway(&self) -> Option<MappedRwLockWriteGuard<'_, PrefixIndex>> {
        RwLockWriteGuard::try_map(self.index.write(), Option::as_mut).ok()
    }
}
