//! The fleet: the workers in the order in which they were added, as plain data, and the scopes that requests are
//! routed in.
//!
//! Load is the ledger's matter and belief about caches the index's; a worker is what was configured, whether it is
//! healthy, and whether it is about to leave. A worker's id is its place in the order of adding. It is never given to
//! another one.

mod models;
mod role;
mod scope;

use crate::plan::Scopes;
use crate::{ScopeId, WorkerId};
pub use role::{PerRole, Role};
pub(crate) use scope::Workers;
use scope::{Models, Scope};

/// What is said of a worker when it is added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSpec {
    /// Base URL.
    pub url: String,
    /// The model it serves; `None` if not known, and then it is taken to serve every one.
    pub model: Option<String>,
    /// What it does.
    pub role: Role,
}

/// One addressable engine endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// Its name in this process.
    pub id: WorkerId,
    /// Base URL.
    pub url: String,
    /// The model it serves; `None` serves every one.
    pub model: Option<String>,
    /// What it does.
    pub role: Role,
    /// Whether it is well enough for requests.
    pub healthy: bool,
    /// It is leaving: what is in flight on it ends, and nothing new begins. Never taken back.
    pub draining: bool,
}

/// All workers, ordered by id.
#[derive(Debug)]
pub(crate) struct Fleet {
    workers: Vec<Worker>,
    next_id: u32,
    /// Place = `ScopeId`. One for "every model" of each role, then one per role and model that some worker has stated:
    /// the names that clients make up never grow it.
    scopes: Vec<Scope>,
    /// The scopes of each model that some worker has stated.
    models: Vec<(String, Scopes)>,
}

// === impl Worker ===

impl Worker {
    /// Whether it may get requests, as far as its breaker lets them through.
    #[must_use]
    pub fn takes_requests(&self) -> bool {
        self.healthy && !self.draining
    }
}

// === impl Fleet ===

impl Fleet {
    pub(crate) fn new() -> Self {
        Self { workers: Vec::new(), next_id: 0, scopes: Self::fixed_scopes(), models: Vec::new() }
    }

    /// Adds a worker behind all others.
    pub(crate) fn add(&mut self, spec: WorkerSpec, healthy: bool) -> &Worker {
        let id = WorkerId(self.next_id);
        self.next_id += 1;
        let WorkerSpec { url, model, role } = spec;
        self.ensure_scope(role, model.as_deref());
        let at = self.workers.len();
        self.workers.push(Worker { id, url, model, role, healthy, draining: false });
        self.enlist(at);
        &self.workers[at]
    }

    /// Takes a worker out; false if there is none of that id.
    pub(crate) fn remove(&mut self, id: WorkerId) -> bool {
        let Some(at) = self.place(id) else { return false };
        self.workers.remove(at);
        self.scopes.iter_mut().for_each(|scope| scope.strike(id));
        true
    }

    /// Sets the health flag; whether that changed it.
    pub(crate) fn set_healthy(&mut self, id: WorkerId, healthy: bool) -> bool {
        let Some(at) = self.place(id) else { return false };
        let changed = std::mem::replace(&mut self.workers[at].healthy, healthy) != healthy;
        self.enlist(at);
        changed
    }

    /// Sets the draining flag; whether that changed it.
    pub(crate) fn set_draining(&mut self, id: WorkerId) -> bool {
        let Some(at) = self.place(id) else { return false };
        let changed = !std::mem::replace(&mut self.workers[at].draining, true);
        self.enlist(at);
        changed
    }

    /// Sets the model; whether that changed it.
    pub(crate) fn set_model(&mut self, id: WorkerId, model: Option<String>) -> bool {
        let Some(at) = self.place(id) else { return false };
        self.ensure_scope(self.workers[at].role, model.as_deref());
        let worker = &mut self.workers[at];
        let changed = worker.model != model;
        worker.model = model;
        self.enlist(at);
        changed
    }

    /// Sets what a worker does; whether that changed it.
    pub(crate) fn set_role(&mut self, id: WorkerId, role: Role) -> bool {
        let Some(at) = self.place(id) else { return false };
        let worker = &mut self.workers[at];
        let changed = std::mem::replace(&mut worker.role, role) != role;
        let model = worker.model.clone();
        self.ensure_scope(role, model.as_deref());
        self.enlist(at);
        changed
    }

    /// The model of a scope; `None` if it is not of a single one.
    pub(crate) fn scope_model(&self, scope: ScopeId) -> Option<&str> {
        match &self.scopes.get(scope.0 as usize)?.models {
            Models::One(model) => Some(model),
            Models::Every | Models::Unstated => None,
        }
    }

    /// All workers.
    pub(crate) fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// The worker of that id.
    pub(crate) fn get(&self, id: WorkerId) -> Option<&Worker> {
        self.place(id).map(|at| &self.workers[at])
    }

    /// The workers that a request may mean by `target`: the one of that index in the order of adding, or those of that URL.
    pub(crate) fn named<'s>(&'s self, target: &'s str) -> impl Iterator<Item = &'s Worker> + use<'s> {
        let index = target.trim().parse().map(WorkerId);
        let url = target.trim().trim_end_matches('/');
        let is_meant = move |worker: &&Worker| match index {
            Ok(id) => worker.id == id,
            Err(_) => worker.url.trim_end_matches('/') == url,
        };
        self.workers.iter().filter(is_meant)
    }

    /// The role of a scope's workers; `None` if there is no such scope.
    pub(crate) fn role_of(&self, scope: ScopeId) -> Option<Role> {
        self.scopes.get(scope.0 as usize).map(|scope| scope.role)
    }

    /// The workers of a scope; `None` if there is no such scope.
    pub(crate) fn workers_of(&self, scope: ScopeId) -> Option<&Workers> {
        self.scopes.get(scope.0 as usize).map(|scope| &scope.workers)
    }

    fn enlist(&mut self, at: usize) {
        let worker = &self.workers[at];
        self.scopes.iter_mut().for_each(|scope| scope.enlist(worker));
    }

    fn place(&self, id: WorkerId) -> Option<usize> {
        self.workers.binary_search_by_key(&id, |worker| worker.id).ok()
    }
}

#[cfg(test)]
mod tests;
