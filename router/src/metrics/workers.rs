//! What is counted per worker.

use std::sync::atomic::{AtomicU64, Ordering};

use router_core::{POLICIES, PolicyId};

use super::labels::WorkerError;

/// Counters of one worker. They are shown as long as the worker is in the fleet.
#[derive(Debug, Default)]
pub(crate) struct WorkerMetrics {
    /// By the policy that chose it.
    selected: [AtomicU64; POLICIES.len()],
    errors: [AtomicU64; WorkerError::ALL.len()],
}

/// Health probes of one engine.
#[derive(Debug, Default)]
pub(crate) struct HealthChecks {
    /// Failed, good.
    ended: [AtomicU64; 2],
}

impl WorkerMetrics {
    /// A request was assigned to it by this policy.
    pub(crate) fn selected(&self, policy: PolicyId) {
        self.selected[policy.place()].fetch_add(1, Ordering::Relaxed);
    }

    /// A try at it failed.
    pub(crate) fn failed(&self, error: WorkerError) {
        self.errors[error as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// In the order of the policies.
    pub(super) fn selections(&self) -> impl Iterator<Item = u64> {
        self.selected.iter().map(|count| count.load(Ordering::Relaxed))
    }

    pub(super) fn errors(&self, error: WorkerError) -> u64 {
        self.errors[error as usize].load(Ordering::Relaxed)
    }
}

impl HealthChecks {
    /// One ended.
    pub(crate) fn note(&self, good: bool) {
        self.ended[usize::from(good)].fetch_add(1, Ordering::Relaxed);
    }

    /// How many did so far.
    pub(super) fn count(&self, good: bool) -> u64 {
        self.ended[usize::from(good)].load(Ordering::Relaxed)
    }
}
