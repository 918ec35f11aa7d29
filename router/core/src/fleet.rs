//! The fleet: the workers in the order in which they were added, as plain data, and the scopes that requests are
//! routed in.
//!
//! Load is the ledger's matter and belief about caches the index's; a worker is what was configured, whether it is
//! healthy, and whether it is about to leave. A worker's id is its place in the order of adding. It is never given to
//! another one.

mod scope;

use crate::request::UnknownModel;
use crate::{ScopeId, WorkerId};
pub(crate) use scope::Workers;
use scope::{Models, Scope};

/// What a worker does for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Prefill and decode.
    Regular,
    /// Prefill only.
    Prefill,
    /// Decode only.
    Decode,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 3] = [Role::Regular, Role::Prefill, Role::Decode];

    /// The word used in files, metrics and answers.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Role::Regular => "regular",
            Role::Prefill => "prefill",
            Role::Decode => "decode",
        }
    }
}

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
        let fixed = |role| [Models::Every, Models::Unstated].map(|models| Scope::new(role, models));
        let scopes = Role::ALL.into_iter().flat_map(fixed).collect();
        Self { workers: Vec::new(), next_id: 0, scopes }
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

    /// The scope of a model's workers of a role.
    pub(crate) fn scope(&self, role: Role, model: Option<&str>) -> Result<ScopeId, UnknownModel> {
        let place = |wanted: &Models| {
            self.scopes.iter().position(|scope| scope.role == role && scope.models == *wanted)
        };
        let of = |name: &str| {
            let is_it = |models: &Models| matches!(models, Models::One(model) if model == name);
            self.scopes.iter().position(|scope| scope.role == role && is_it(&scope.models))
        };
        let base = || model.and_then(|name| name.split_once(':')).and_then(|(base, _)| of(base));
        let others = || match self.who_may_serve_others(role) {
            None => Err(UnknownModel),
            Some(models) => Ok(place(&models).unwrap_or(0)),
        };
        match (model, model.and_then(of).or_else(base)) {
            (_, Some(at)) => Ok(ScopeId(at as u32)),
            (None, None) => Ok(ScopeId(place(&Models::Every).unwrap_or(0) as u32)),
            (Some(_), None) => others().map(|at| ScopeId(at as u32)),
        }
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

    /// The workers of a scope; `None` if there is no such scope.
    pub(crate) fn workers_of(&self, scope: ScopeId) -> Option<&Workers> {
        self.scopes.get(scope.0 as usize).map(|scope| &scope.workers)
    }

    /// Who gets a request for a model that nobody has stated: everybody, as long as there is no doubt which model is
    /// meant; otherwise those that have not said what they serve, and nobody if there are none.
    fn who_may_serve_others(&self, role: Role) -> Option<Models> {
        let of_unstated = |scope: &&Scope| scope.role == role && scope.models == Models::Unstated;
        let unstated = self.scopes.iter().find(of_unstated).map_or(0, |scope| scope.workers.members.len());
        // Those that have not said which are members of every model's scope.
        let is_stated = |scope: &&Scope| {
            let is_one = matches!(scope.models, Models::One(_));
            scope.role == role && is_one && scope.workers.members.len() > unstated
        };
        let several = self.scopes.iter().filter(is_stated).nth(1).is_some();
        match (several, unstated > 0) {
            (false, _) => Some(Models::Every),
            (true, true) => Some(Models::Unstated),
            (true, false) => None,
        }
    }

    fn ensure_scope(&mut self, role: Role, model: Option<&str>) {
        let Some(model) = model else { return };
        let models = Models::One(model.to_owned());
        if self.scopes.iter().any(|scope| scope.role == role && scope.models == models) {
            return;
        }
        let mut scope = Scope::new(role, models);
        self.workers.iter().for_each(|worker| scope.enlist(worker));
        self.scopes.push(scope);
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
